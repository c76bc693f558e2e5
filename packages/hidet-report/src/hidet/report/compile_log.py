"""The log of compilations: what was compiled when, for which model, and how long it took.

A line of JSON for each graph, in a file beside the kernel cache, which `hidet cache log` shows. It is for people:
nothing reads it to decide anything, and where it cannot be written nothing is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from hidet import option
from hidet.cache import cache_directory
from hidet.context import CompileContext
from hidet.graph import Graph
from hidet.private_files import distrust_directory, make_private, open_private
from hidet.runtime.compiled import CompileReport

_MOST_BYTES = 1 << 20
"""From this size on the older half is dropped."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """A line of the log.

    when: seconds since the epoch. model: name of the graph. place: of its first operator in the user's model, "" where
    none is known. nodes, kernels: of the graph. modules, cached: compiled or found, and found. seconds: all phases.
    """

    when: float
    model: str
    place: str
    target: str
    nodes: int
    kernels: int
    modules: int
    cached: int
    seconds: float


def log_path() -> Path:
    """The file of the log, which need not exist."""
    return cache_directory(option.get_cache_dir()) / "compiled.jsonl"


def note(graph: Graph, report: CompileReport, ctx: CompileContext) -> None:
    """Add a line, unless the compilation leaves the cache alone."""
    if not ctx.options.cache:
        return
    places = (str(node.loc) for node in graph.nodes if node.loc is not None)
    line = Compilation(
        when=round(time.time(), 3),
        model=graph.name,
        place=next(places, ""),
        target=ctx.target.name if ctx.machine is None else f"{ctx.target.name}:{ctx.machine}",
        nodes=report.graph_nodes,
        kernels=report.kernels,
        modules=report.modules,
        cached=report.cached_modules,
        seconds=round(sum(report.seconds.values()), 4),
    )
    path = log_path()
    with contextlib.suppress(OSError):
        make_private(path.parent)
        if distrust_directory(path.parent, may_be_link=True) is None:
            _shorten(path)
            # One write to the end of a file: lines of several processes do not mix.
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")


def read_log() -> Iterator[Compilation]:
    """The lines, oldest first; what is no line of a log is left out."""
    try:
        descriptor, _ = open_private(log_path())
    except OSError:
        return
    names = {field.name for field in fields(Compilation)}
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        for text in file:
            with contextlib.suppress(ValueError, TypeError):
                found = json.loads(text)
                if isinstance(found, dict) and set(found) == names:
                    yield Compilation(**found)


def _shorten(path: Path) -> None:
    if not path.exists() or path.stat().st_size < _MOST_BYTES:
        return
    kept = path.read_bytes()[-_MOST_BYTES // 2 :].partition(b"\n")[2]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(kept)
    temporary.replace(path)
