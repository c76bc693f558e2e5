"""Where trials run: programs are compiled wherever there is room, and measured one at a time a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from hidet.context import make_context
from hidet.errors import PluginError
from hidet.plugins.registry import Registry
from hidet.tuning.building import Builders, builder_count
from hidet.tuning.measuring import Measurer
from hidet.tuning.trial import Outcome, Settings, Trial


class Executor(Protocol):
    """A way to have trials run, as a context manager. What it is given and gives is plain data."""

    def __enter__(self) -> Self:
        """Begin; processes may be started later."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every process, whatever they do."""

    @property
    def device(self) -> str:
        """What measures, for people; "" before anything was measured."""

    @property
    def compiles_ahead(self) -> bool:
        """Whether something is done with what is announced: making programs early is worth it then."""

    def announce(self, trials: Sequence[Trial]) -> None:
        """These trials are asked for next, in about this order: programs may be compiled and trials run ahead. What was
        announced before and not asked for counts no more."""

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        """The outcome of a trial. What ends the process that runs it is its failure.

        most: seconds that are left; TimeoutError where it has not ended by then, which blames no candidate.
        CompileError where nothing can run any more.
        """


MakeExecutor = Callable[[Settings, float], Executor]
"""Makes an executor. It is told how programs are compiled and run, and the seconds that a trial may take before it
counts as one that never ends."""


class LocalExecutor:
    """A process of this machine measures. For a device, others compile meanwhile, into a kernel cache of their own: a
    device has clocks of its own, where on a CPU they would be measured as well."""

    def __init__(self, settings: Settings, seconds: float) -> None:
        self._seconds = seconds
        self._held = ExitStack()
        folder = ""
        self._builders: Builders | None = None
        if make_context(settings.target, settings.options).target.memory is not None:
            folder = self._held.enter_context(TemporaryDirectory(prefix="hidet-tune-", ignore_cleanup_errors=True))
            settings = replace(settings, cache=True)
            self._builders = Builders(settings, folder, builder_count())
        self._measurer = Measurer(settings, seconds, folder)

    def __enter__(self) -> Self:
        self._held.push(self._measurer)
        if self._builders is not None:
            self._held.enter_context(self._builders)
        self._measurer.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()

    @property
    def device(self) -> str:
        """The device of the process."""
        return self._measurer.device

    @property
    def compiles_ahead(self) -> bool:
        """For a device."""
        return self._builders is not None

    def announce(self, trials: Sequence[Trial]) -> None:
        """Have their programs compiled."""
        if self._builders is not None:
            self._builders.announce([program for trial in trials for program in trial.programs])

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        """The outcome, measured by the process, which is started again where it has ended."""
        if self._builders is None:
            return self._measurer.run(trial, most)
        start = time.monotonic()
        limit = self._seconds if most is None else min(most, self._seconds)
        for program in trial.programs:
            self._builders.wait(program, limit - (time.monotonic() - start))
        if most is None:
            return self._measurer.run(trial)
        left = most - (time.monotonic() - start)
        if left <= 0:
            raise TimeoutError(f"a trial has not ended within {most:.1f} s")
        return self._measurer.run(trial, left)


def executor_named(name: str, registry: Registry) -> MakeExecutor:
    """What makes executors of that name, of hidet-tune or of another plug-in.

    OptionError for a name that nobody offers; PluginError for one that cannot be loaded.
    """
    spec = registry.tuning_executor(name)
    make: Any = spec.resolve()
    if not callable(make):
        owner = registry.owners["tuning_executors", spec.name]
        raise PluginError(
            f"{owner}: tuning executor {spec.name!r} is {make!r}, which cannot be called",
            hint="`load` of its ExecutorSpec names a class or a function of Settings and seconds that gives a "
            "hidet.tuning.Executor",
        )
    made: MakeExecutor = make
    return made
