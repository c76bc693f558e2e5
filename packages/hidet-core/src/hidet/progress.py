"""Telling a person at a terminal or in a notebook that a compilation goes on, if it takes more than two seconds."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 2.0
"""Seconds without a word."""


class CompileProgress:
    """A progress bar on stderr, or a line below a notebook's cell, as a context manager; silent in a pipe, under CI,
    and for quick compilations."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._in_notebook = "ipykernel" in sys.modules
        self._silent = not (sys.stderr.isatty() or self._in_notebook)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._cell: Any = None

    def __enter__(self) -> CompileProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._cell is not None:
            self._cell.update({"text/plain": ""}, raw=True)

    def update(self, done: int, total: int) -> None:
        """`done` of `total` kernels are compiled."""
        if self._silent or time.monotonic() - self._start < PATIENCE:
            return
        if self._in_notebook:
            self._show_in_cell(f"hidet: {done} of {total} kernels compiled")
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("hidet: compiling kernels", total=total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)

    def _show_in_cell(self, text: str) -> None:
        """Replace the line below a notebook's cell."""
        if self._cell is None:
            self._cell = import_module("IPython.display").display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._cell.update({"text/plain": text}, raw=True)
