"""What a page reads of what `hidet.tune` returns, which is of a wheel above this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Measured(Protocol):
    """A measurement of a point: see `hidet.tuning.TrialReport`."""

    @property
    def params(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def failure(self) -> str: ...


class TunedTask(Protocol):
    """A task that was tuned: see `hidet.tuning.TaskReport`."""

    @property
    def summary(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def params(self) -> str: ...
    @property
    def default_seconds(self) -> float | None: ...
    @property
    def trials(self) -> Sequence[Measured]: ...


class Tuning(Protocol):
    """What tuning has found: see `hidet.tuning.TuneReport`. Its `str` has a line for each task."""

    @property
    def tasks(self) -> Sequence[TunedTask]: ...
