"""Trials, run: what a candidate computes is held against the default's results, then both are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hidet import dtypes
from hidet.tuning.loaded import LoadedProgram, Loader
from hidet.tuning.results import Array, difference
from hidet.tuning.trial import Buffer, Outcome, TaskMemory, Trial

TURN = 1e-3
"""Seconds of calls in a turn, at least one call."""


class Calls(Protocol):
    """Calls of a program on memory of its own."""

    def run(self) -> None:
        """Call it once, and wait until it has ended."""

    def results(self) -> list[Array]:
        """Copies of the outputs, flat, as the calls so far have left them."""

    def seconds(self) -> float:
        """How long a call takes, by one turn of calls."""


class TaskInputs(Protocol):
    """What programs of a task are called on."""

    def calls(self, program: LoadedProgram) -> Calls:
        """Calls of a program, with outputs of its own that nothing was written to."""


PlaceInputs = Callable[[TaskMemory, Sequence[Array]], TaskInputs]
"""Puts arrays where programs run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Default:
    """The default of a task: its program, and calls and results on inputs of seed 0."""

    key: tuple[str, TaskMemory]
    program: LoadedProgram
    inputs: TaskInputs
    calls: Calls
    results: list[Array]


class Runner:
    """Runs trials one after the other. What the default has computed is kept for the next trial of its task."""

    def __init__(self, loader: Loader, place: PlaceInputs) -> None:
        self._loader = loader
        self._place = place
        self._default: _Default | None = None

    def run(self, trial: Trial) -> Outcome:
        """The outcome. What a program raises is the caller's."""
        default = self._default_of(trial)
        compared = [default.calls]
        if trial.candidate is not None:
            program = self._loader.load(trial.candidate)
            if program.spilled > default.program.spilled:
                # Local memory is slow memory: such a program is measured where the default is one itself alone.
                those = f"{program.spilled} bytes a thread do not fit into registers"
                return Outcome(failure=f"spills: {those}, {default.program.spilled} of the default")
            candidate = default.inputs.calls(program)
            candidate.run()
            failure = difference(default.results, candidate.results(), trial.memory.terms)
            if not failure and trial.seed:
                failure = self._difference_on_others(trial, default.program, program)
            if failure:
                return Outcome(failure=failure)
            compared.append(candidate)
        seconds: list[list[float]] = [[] for _ in compared]
        order = list(range(len(compared)))
        for number in range(trial.rounds):
            # Whoever comes first in a round comes last in the next one.
            for place in order if number % 2 == 0 else reversed(order):
                seconds[place].append(compared[place].seconds())
        if trial.candidate is not None and not trial.memory.in_place:
            failure = difference(default.results, compared[-1].results(), trial.memory.terms)
            if failure:
                return Outcome(failure=f"{failure}, after right ones at first")
        return Outcome(tuple(seconds[0]), tuple(seconds[1]) if trial.candidate is not None else ())

    def _default_of(self, trial: Trial) -> _Default:
        key = (trial.default.digest, trial.memory)
        if self._default is None or self._default.key != key:
            self._default = None  # its memory may be in the way of what is asked for now
            program = self._loader.load(trial.default)
            inputs = self._inputs_of(trial.memory, 0)
            calls = inputs.calls(program)
            calls.run()
            self._default = _Default(key, program, inputs, calls, calls.results())
        return self._default

    def _inputs_of(self, memory: TaskMemory, seed: int) -> TaskInputs:
        generator = np.random.default_rng(seed)
        return self._place(memory, [_random(buffer, generator) for buffer in memory.inputs])

    def _difference_on_others(self, trial: Trial, default: LoadedProgram, candidate: LoadedProgram) -> str:
        """What `difference` says of a call on inputs of the trial's seed."""
        inputs = self._inputs_of(trial.memory, trial.seed)
        expected, found = (_results(inputs.calls(program)) for program in (default, candidate))
        return difference(expected, found, trial.memory.terms)


def _results(calls: Calls) -> list[Array]:
    calls.run()
    return calls.results()


def unwritten(buffer: Buffer) -> Array:
    """An output before a call, all bits set: NaN in floats."""
    dtype = dtypes.dtype(buffer.dtype).numpy()
    return np.full(buffer.elements * dtype.itemsize, 0xFF, np.uint8).view(dtype)


_DRAWN = 1_048_573
"""Random numbers that are drawn for an array, a prime; a longer one repeats them, and no two of its rows are alike."""


def _random(buffer: Buffer, generator: np.random.Generator) -> Array:
    dtype, count = dtypes.dtype(buffer.dtype), min(buffer.elements, _DRAWN)
    if dtype.is_float:
        drawn = generator.standard_normal(count, dtype=np.float32).astype(dtype.numpy())
    else:
        drawn = generator.integers(0, 2 if dtype.is_bool else buffer.bound, count).astype(dtype.numpy())
    return drawn if count == buffer.elements else np.resize(drawn, buffer.elements)
