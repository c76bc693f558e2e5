"""Tuning as it goes on: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hidet.report.profile_text import duration
from hidet.tuning.report import TaskReport

_REFRESHES = 4.0
"""A second."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far tuning is with a task.

    number: of the task, from 1, of `total`. task: what is known of it now. share: of the model's time, from 0 to 1.
    end: of the budget, by `time.monotonic`. is_done: whether the search of the task has ended.
    """

    number: int
    total: int
    task: TaskReport
    share: float
    end: float
    is_done: bool = False

    @property
    def gain(self) -> float | None:
        """How many times as fast as by default the task is by the best point so far; None before there is one."""
        if self.is_done:
            return self.task.gain if self.task.is_changed else 1.0
        ratios = [trial.ratio for trial in self.task.trials if trial.ratio is not None]
        return max(1.0, 1 / min(ratios)) if ratios else None

    def __str__(self) -> str:
        return f"[{self.number}/{self.total}] {self.share:.0%} of the model: {self.task}"


Observe = Callable[[Progress], None]
"""Hears how far tuning is: when a task begins, after each of its measurements, and when it is done."""


class LiveTable:
    """Shows progress, as a context manager: call it with each `Progress`.

    console: where to; stderr by default. On a terminal a table that is drawn anew; elsewhere a line for each task that
    is done.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._rows: dict[int, Progress] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=_REFRESHES, get_renderable=self.table)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        self._rows[progress.number] = progress
        if self._live is None and progress.is_done:
            # Names of models are not markup.
            self._console.print(Text(str(progress)), soft_wrap=True)

    def table(self) -> Table:
        """What is shown now."""
        left = max((progress.end for progress in self._rows.values()), default=time.monotonic()) - time.monotonic()
        table = Table(box=box.SIMPLE_HEAD, caption=f"{max(left, 0.0):.0f} s of the budget left", caption_justify="left")
        table.add_column("task", overflow="fold", ratio=1)
        for title in ("candidates", "best", "gain", "share"):
            table.add_column(title, justify="right", no_wrap=True)
        for progress in self._rows.values():
            table.add_row(*_cells(progress), style="" if progress.is_done else "bold")
        return table


def _cells(progress: Progress) -> tuple[Text, ...]:
    task, gain = progress.task, progress.gain
    name = f"{task.uses} x {task.summary}"
    if task.note:
        return (Text(f"{name}: {task.note}"), Text(""), Text(""), Text(""), Text(f"{progress.share:.0%}"))
    best = "" if gain is None or not task.default_seconds else duration(task.default_seconds / gain)
    style = "green" if gain is not None and gain > 1 else ""
    return (
        Text(name),
        Text(f"{task.tried}/{task.points}"),
        Text(best),
        Text("" if gain is None else f"{gain:.2f} x", style),
        Text(f"{progress.share:.0%}"),
    )
