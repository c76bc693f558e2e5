"""Times of tasks that run on a device, by its own clock: the launches of a task are recorded several times over, and
the record is timed as a whole, as the call of the whole model is."""

from __future__ import annotations

import math
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
_STREAM = 0


def device_times(split: SplitGraph, inputs: Sequence[Any], seconds: float) -> Times:
    """Times of a graph on a device, measured for about `seconds` besides the recording.

    A task is timed while the graph runs, on the memory that it has there, and repeated: what it overwrites in place
    holds other numbers afterwards, on copies of the inputs.
    """
    memory = split.origin.ctx.target.memory
    assert memory is not None
    if all(isinstance(value, np.ndarray) for value in inputs):
        # Copies between host and device are no part of the model.
        inputs = list(map(memory.place, inputs))
        split.compiled.call_on_inputs(inputs)
    taken: dict[str, list[float]] = {symbol: [] for symbol in split.tasks}
    share = seconds / 2 / max(len(taken), 1)
    functions = {symbol: _timed(memory, split.functions[symbol], taken[symbol], share) for symbol in split.tasks}
    waits: dict[str, list[float]] = {}

    def around(name: str, call: Call) -> Call:
        waits[name] = []

        def timed(*arguments: Any, **named: Any) -> object:
            memory.synchronize()
            start = time.perf_counter()
            result = call(*arguments, **named)
            memory.synchronize()
            waits[name].append(time.perf_counter() - start)
            return result

        return timed

    graph = split.callable(functions, split.with_foreign(around))
    graph.call_on_inputs(_with_own_memory(split, inputs, memory))
    found = {**taken, **waits}
    sums = {name: math.fsum(values) for name, values in found.items()}
    call, calls = _whole(split, inputs, memory, seconds / 2)
    timeline, at = [], 0.0
    for name, value in sums.items():
        timeline.append((name, at, at + value))
        at += value
    runs = {name: len(values) for name, values in found.items()}
    return Times(sums, runs, 0.0, call, calls, tuple(timeline))


def _with_own_memory(split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory) -> list[Any]:
    """The inputs, with copies of those that the graph overwrites."""
    overwritten = {output.mutates for output in split.program.outputs if output.mutates is not None}
    given = list(inputs)
    for number in overwritten:
        adapter = adapter_for(type(given[number]), memory)
        tensor = adapter.convert(given[number])
        given[number] = adapter.laid_out(tensor, adapter.describe(tensor).strides)
    return given


def _timed(memory: DeviceMemory, call: Call, taken: list[float], seconds: float) -> Call:
    """A segment that is also timed: each call of it appends the seconds that it takes."""

    def timed(address: int, stream: int) -> None:
        call(address, stream)
        memory.finish(stream)
        taken.append(_seconds(memory, partial(call, address), seconds))

    return timed


def _seconds(memory: DeviceMemory, launch: Callable[[int], object], seconds: float) -> float:
    """Seconds of the device for what `launch` puts into a stream."""
    once = memory.time(launch)
    count = min(max(math.ceil(_TURN / max(once, 1e-7)), 1), _MOST_REPEATS)

    def put(stream: int) -> None:
        for _ in range(count):
            launch(stream)

    run: Callable[[int], object] = memory.capture(put).launch if memory.can_capture else put
    memory.time(run)
    turns: list[float] = []
    end = time.perf_counter() + seconds
    while len(turns) < _LEAST_TURNS or time.perf_counter() < end:
        turns.append(memory.time(run) / count)
    return min(turns)


def _whole(split: SplitGraph, inputs: Sequence[Any], memory: DeviceMemory, seconds: float) -> tuple[float, int]:
    """Seconds of a call of the whole model, and how many calls were measured."""
    recorded = split.compiled.record(inputs)
    run: Callable[[int], object] = (
        (lambda stream: split.compiled.call_on_inputs(inputs)) if recorded is None else recorded.launch
    )
    memory.time(run)
    turns: list[float] = []
    end = time.perf_counter() + seconds
    while len(turns) < _LEAST_TURNS or time.perf_counter() < end:
        turns.append(memory.time(run))
    return min(turns), len(turns)
