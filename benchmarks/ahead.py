"""Compiling ahead: processes beside each other fill the caches that a measuring process reads.

A compiler that chooses by measuring must not read what it chose there, beside others. Of Inductor's `max-autotune`,
only Triton's compiled candidates are kept: the measuring process measures them alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from benchmarks.processes import run_python

Command = tuple[Sequence[str], Mapping[str, str]]
"""Arguments of this Python, and what its environment has beside this process's."""


def keep_triton_candidates() -> None:
    """Have Triton's kernels lie outside of Inductor's cache, here and in child processes, if they do not already."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(tempfile.gettempdir(), "hidet-benchmarks-triton")))


def run_ahead(console: Console, commands: Sequence[Command], processes: int, limit: float) -> None:
    """Run each command, at most `processes` at a time; the last words of those that fail are printed, and what they
    were to compile is compiled later.

    limit: seconds after which a process is ended.
    """
    with ThreadPoolExecutor(processes) as pool:
        found = pool.map(lambda command: _find_failure(*command, limit), commands)
        for (arguments, _), words in zip(commands, found, strict=True):
            if words is not None:
                console.print(f"ahead: {' '.join(arguments)}: {words}", style="bold red", markup=False)


def _find_failure(arguments: Sequence[str], environment: Mapping[str, str], limit: float) -> str | None:
    """The last words of a process that failed; None of one that did not."""
    try:
        run_python(arguments, limit, {**os.environ, **environment})
    except RuntimeError as error:
        return str(error)
    return None
