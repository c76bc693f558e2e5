"""Instruments of graph passes: what is called before and after each pass, in the block of a `PassContext`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hidet.compat.netron import dump
from hidet.graph.graph import Graph

_FIRST, _LAST = "unfold-control", "split-prepare"
"""Core's passes that run before and after all others."""


class GraphPassInstrument:
    """To be derived from. A pass takes and gives a `hidet.graph.Graph`, whose `str` is its text; passes also run on
    sub-graphs, those of branches and loops."""

    def before_all_passes(self, graph: Graph) -> None:
        """Before the first pass."""

    def before_pass(self, pass_name: str, graph: Graph) -> None:
        """A pass begins with this graph. Called when it has run, right before `after_pass`."""

    def after_pass(self, pass_name: str, graph: Graph) -> None:
        """What a pass made of the graph."""

    def after_all_passes(self, graph: Graph) -> None:
        """After the last pass."""

    def told(self, pass_name: str, before: object, after: object, seconds: float) -> None:
        """`pass_done` of what the compiler tells."""
        assert isinstance(before, Graph) and isinstance(after, Graph)
        self.pass_done(pass_name, before, after, seconds)

    def pass_done(self, pass_name: str, before: Graph, after: Graph, seconds: float) -> None:
        """Calls the functions above."""
        if pass_name == _FIRST:
            self.before_all_passes(before)
        self.before_pass(pass_name, before)
        self.after_pass(pass_name, after)
        if pass_name == _LAST:
            self.after_all_passes(after)


class ProfileInstrument(GraphPassInstrument):
    """Writes, or prints, the milliseconds that each pass takes, at its end."""

    def __init__(self, log_file: str | os.PathLike[str] | None = None, print_stdout: bool = False) -> None:
        self._file = None if log_file is None else Path(log_file)
        self._prints = print_stdout
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text("")

    def pass_done(self, pass_name: str, before: Graph, after: Graph, seconds: float) -> None:
        """A line."""
        line = f"{pass_name:32} {1e3 * seconds:10.3f} ms"
        if self._file is not None:
            with self._file.open("a") as log:
                log.write(f"{line}\n")
        if self._prints:
            print(line)


class SaveGraphInstrument(GraphPassInstrument):
    """Writes the graph after every pass that changes it into a folder: text, and JSON for the viewer Netron."""

    def __init__(self, out_dir: str | os.PathLike[str]) -> None:
        self._folder = Path(out_dir)
        self._count = 0

    def pass_done(self, pass_name: str, before: Graph, after: Graph, seconds: float) -> None:
        """Two files, for the first pass those of its graph before them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if pass_name == _FIRST:
            self._write("import", before)
        if after is not before:
            self._write(pass_name, after)

    def _write(self, name: str, graph: Graph) -> None:
        path = self._folder / f"{self._count}_{name}"
        self._count += 1
        path.with_name(f"{path.name}.txt").write_text(str(graph))
        with path.with_name(f"{path.name}.json").open("w") as file:
            dump(graph, file)


class VerboseInstrument(GraphPassInstrument):
    """Prints what every pass makes of the number of operators."""

    def pass_done(self, pass_name: str, before: Graph, after: Graph, seconds: float) -> None:
        """A line a pass that changes something."""
        if after is not before:
            print(f"{pass_name}: {len(before.nodes)} -> {len(after.nodes)} operators")


class VisualInstrument(GraphPassInstrument):
    """Writes what all passes make of a graph into a folder, as JSON for the viewer Netron, by its name and contents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pass_done(self, pass_name: str, before: Graph, after: Graph, seconds: float) -> None:
        """A file, after the last pass."""
        if pass_name == _LAST:
            self._folder.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256(str(after).encode()).hexdigest()[:8]
            with (self._folder / f"{after.name}_{digest}.json").open("w") as file:
                dump(after, file)
