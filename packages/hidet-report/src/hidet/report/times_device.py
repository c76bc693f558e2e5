"""Times of tasks that run on a device, by its own clock.

The first so many tasks of a call are recorded, right behind a whole call, and timed together: what a call takes longer
with a few more tasks is theirs, with the caches and the gaps between kernels as the model has them. Neighbours that
such a difference does not tell apart share it as their times alone do, each repeated many times over.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hidet.report.split import Call, SplitGraph
from hidet.report.times import Times
from hidet.runtime.adapter import adapter_for
from hidet.target import DeviceMemory

_TURN = 3e-4
"""Seconds that a timed record should take: many times what the clock's events do."""
_MOST_REPEATS = 200
_LEAST_TURNS = 3
_LEAST_ROUNDS = 3
_CALLS_OF_ROUND = 5
_LEAST_SHARE = 0.02
"""What part of a call a difference between two of its beginnings tells for sure."""
_LEAST_DIFFERENCE = 5e-6

Launch = Callable[[int], object]
"""Puts work into a stream."""


def device_times(split: SplitGraph, inputs: Sequence[Any], seconds: float) -> Times:
    """Times of a graph on a device, measured for about `seconds` besides the recording.

    A task is timed while the graph runs, on the memory that it has there, and repeated: what it overwrites in place
    holds other numbers afterwards, on copies of the inputs. Where a call can be recorded, these times are made those
    that tasks have in it; elsewhere they stay as they are, and operators outside of compiled code are waited for.
    """
    memory = split.origin.ctx.target.memory
    assert memory is not None
    if all(isinstance(value, np.ndarray) for value in inputs):
        # Copies between host and device are no part of the model.
        inputs = list(map(memory.place, inputs))
        split.compiled.call_on_inputs(inputs)
    own = _with_own_memory(split, inputs, memory)
    alone = _times_alone(split, own, memory, seconds / 4)
    in_place = _times_in_place(split, own, memory, alone, seconds * 3 / 4)
    if in_place is None:
        runs, host = alone, 0.0
        call, calls = _whole(split, inputs, memory, seconds / 2)
    else:
        runs, host, call, calls = in_place
    sums = {name: math.fsum(value for each, value in runs if each == name) for name in (*split.tasks, *split.foreign)}
    counts = {name: sum(each == name for each, _ in runs) for name in sums}
    timeline, at = [], host
    for name, value in runs:
        timeline.append((name, at, at + value))
        at += value
    return Times(sums, counts, host, call, calls, tuple(timeline))


def _times_alone(
    split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory, seconds: float
) -> list[tuple[str, float]]:
    """What runs in a call, in order, and how long each takes when it is repeated."""
    taken: list[tuple[str, float]] = []
    share = seconds / max(len(split.tasks), 1)

    def task(name: str, call: Call) -> Call:
        def timed(address: int, stream: int) -> None:
            call(address, stream)
            memory.finish(stream)
            taken.append((name, _seconds(memory, partial(call, address), share)))

        return timed

    def foreign(name: str, call: Call) -> Call:
        def timed(*arguments: Any, **named: Any) -> object:
            memory.synchronize()
            start = time.perf_counter()
            result = call(*arguments, **named)
            memory.synchronize()
            taken.append((name, time.perf_counter() - start))
            return result

        return timed

    functions = {symbol: task(symbol, split.functions[symbol]) for symbol in split.tasks}
    split.callable(functions, split.with_foreign(foreign)).call_on_inputs(inputs)
    return taken


def _times_in_place(
    split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory, alone: Sequence[tuple[str, float]], seconds: float
) -> tuple[list[tuple[str, float]], float, float, int] | None:
    """Times of runs in a recorded call, of what is there without any, of the call, and how often it was measured. None
    where a call cannot be recorded."""
    whole = split.compiled.record(inputs)
    if whole is None:
        return None
    start = _Beginning(split, inputs)
    values = [value for _, value in alone]
    # Of long calls fewer beginnings are measured in the same time.
    rounds_of_call = _LEAST_ROUNDS * _CALLS_OF_ROUND * math.fsum(values)
    ends = ends_of_groups(values, max(_LEAST_SHARE, rounds_of_call / seconds))
    calls: list[float] = []
    shares: list[float] = []
    for end in (0, *ends):
        recorded = start.record(end)
        if recorded is None:
            return None
        shares.append(_share_of_call(memory, whole.launch, recorded.launch, calls, seconds / (len(ends) + 1)))
    call = statistics.median(calls)
    parts = parts_of_groups(values, ends, [share * call for share in shares])
    named = [(name, part) for (name, _), part in zip(alone, parts, strict=True)]
    return named, max(shares[0] * call, 0.0), call, len(calls)


class _Beginning:
    """Calls of a graph that end after so many runs of tasks."""

    def __init__(self, split: SplitGraph, inputs: Sequence[Any]) -> None:
        self._left = 0
        self._inputs = inputs
        self._graph = split.callable({name: self._limited(split.functions[name]) for name in split.tasks})
        self._graph.call_on_inputs(inputs)

    def _limited(self, call: Call) -> Call:
        def run(address: int, stream: int) -> None:
            self._left -= 1
            if self._left >= 0:
                call(address, stream)

        return run

    def record(self, runs: int) -> Any:
        """The first runs of a call. None where nothing is recorded."""
        self._left = runs
        return self._graph.record(self._inputs)


def ends_of_groups(alone: Sequence[float], share: float = _LEAST_SHARE) -> list[int]:
    """How many runs there are up to the end of each group of neighbours that together take long enough for a
    difference between two calls to tell. alone: seconds of each run by itself. share: of a call, that is long enough.
    """
    least = max(share * math.fsum(alone), _LEAST_DIFFERENCE)
    ends: list[int] = []
    taken = 0.0
    for number, value in enumerate(alone):
        taken += value
        if taken >= least:
            ends.append(number + 1)
            taken = 0.0
    if not ends or taken:
        # What is left is too short for a group of its own.
        ends[-1:] = [len(alone)]
    return ends


def parts_of_groups(alone: Sequence[float], ends: Sequence[int], found: Sequence[float]) -> list[float]:
    """Seconds of each run: groups take what a call takes longer with them, and their runs shares of that.

    alone: seconds of each run by itself. ends: of groups. found: seconds of a call without any run, and up to each end.
    """
    parts: list[float] = []
    at, before = 0, max(found[0], 0.0)
    for end, until in zip(ends, found[1:], strict=True):
        # By what the clock is not sure of, a call with one kernel more may be the shorter one.
        until = max(until, before)
        group = alone[at:end]
        total = math.fsum(group)
        parts += [(until - before) * value / total if total else 0.0 for value in group]
        at, before = end, until
    return parts


def _share_of_call(memory: DeviceMemory, call: Launch, beginning: Launch, calls: list[float], seconds: float) -> float:
    """What part of a call its beginning takes, both right behind a call. Appends the seconds of calls to `calls`.

    The device's clock frequency changes from one moment to the next, and with it both.
    """

    def behind(launch: Launch) -> Launch:
        def both(stream: int) -> None:
            call(stream)
            launch(stream)

        return both

    runs = (call, behind(beginning), behind(call))
    for run in runs:
        memory.time(run)
    shares: list[float] = []
    end = time.perf_counter() + seconds
    while len(shares) < _LEAST_ROUNDS or time.perf_counter() < end:
        once, short, twice = map(memory.time, runs)
        calls.append(max(twice - once, 1e-9))
        shares.append((short - once) / calls[-1])
    return statistics.median(shares)


def _with_own_memory(split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory) -> list[Any]:
    """The inputs, with copies of those that the graph overwrites."""
    overwritten = {output.mutates for output in split.program.outputs if output.mutates is not None}
    given = list(inputs)
    for number in overwritten:
        adapter = adapter_for(type(given[number]), memory)
        tensor = adapter.convert(given[number])
        given[number] = adapter.laid_out(tensor, adapter.describe(tensor).strides)
    return given


def _seconds(memory: DeviceMemory, launch: Launch, seconds: float) -> float:
    """Seconds of the device for what `launch` puts into a stream."""
    once = memory.time(launch)
    count = min(max(math.ceil(_TURN / max(once, 1e-7)), 1), _MOST_REPEATS)

    def put(stream: int) -> None:
        for _ in range(count):
            launch(stream)

    run: Launch = memory.capture(put).launch if memory.can_capture else put
    memory.time(run)
    turns: list[float] = []
    end = time.perf_counter() + seconds
    while len(turns) < _LEAST_TURNS or time.perf_counter() < end:
        turns.append(memory.time(run) / count)
    return min(turns)


def _whole(split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory, seconds: float) -> tuple[float, int]:
    """Seconds of a call of the whole model that cannot be recorded, and how many calls were measured."""

    def run(stream: int) -> None:
        split.compiled.call_on_inputs(inputs)

    memory.time(run)
    turns: list[float] = []
    end = time.perf_counter() + seconds
    while len(turns) < _LEAST_TURNS or time.perf_counter() < end:
        turns.append(memory.time(run))
    return min(turns), len(turns)
