"""Calls of a whole model, measured: by the clock of its device where that repeats them alone, else by the host's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hidet.cli.inputs import random_array
from hidet.errors import OptionError
from hidet.runtime.compiled import CompiledGraph, RecordedCall
from hidet.target import DeviceMemory


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """A call of a graph. run: makes it and waits for its end. recorded: the same as work of a device; None where the
    graph runs on the host, or from Python in part."""

    run: Callable[[], object]
    recorded: RecordedCall | None


def graph_call(
    compiled: CompiledGraph, inputs: Sequence[Any] | Mapping[str, Any] | None, memory: DeviceMemory | None
) -> GraphCall:
    """A call of a graph, made once before. inputs: None for random arrays. The error of the call where it fails."""
    if inputs is None:
        arrays = _random_inputs(compiled)
        ordered = arrays if memory is None else list(map(memory.place, arrays))
    else:
        named = inputs if isinstance(inputs, Mapping) else {}
        arguments = () if named else tuple(inputs)
        ordered = compiled.signature.arranged(arguments, named, len(compiled.bundle.program.inputs))
    call = partial(compiled.call_on_inputs, ordered)
    call()
    if memory is None:
        return GraphCall(call, None)
    memory.synchronize()
    return GraphCall(partial(_finished, call, memory), compiled.record(ordered))


def seconds_of(calls: Sequence[GraphCall], memory: DeviceMemory | None) -> float:
    """Seconds that the calls take, one behind the other. On a device, what the host does besides counts where one of
    them is not recorded."""
    recorded = [call.recorded for call in calls if call.recorded is not None]
    if memory is not None and len(recorded) == len(calls):
        return memory.time(partial(_launch, recorded))
    start = time.perf_counter()
    for call in calls:
        call.run()
    return time.perf_counter() - start


def _finished(call: Callable[[], object], memory: DeviceMemory) -> None:
    call()
    memory.synchronize()


def _launch(recorded: Sequence[RecordedCall], stream: int) -> None:
    for each in recorded:
        each.launch(stream)


def _random_inputs(compiled: CompiledGraph) -> list[Any]:
    """Arrays for the inputs of a graph. OptionError for one whose shape is open."""
    generator = np.random.default_rng(0)
    arrays = []
    for slot in compiled.bundle.program.inputs:
        extents = () if slot.tensor is None else slot.tensor.shape
        shape = [extent for extent in extents if isinstance(extent, int)]
        if slot.tensor is None or len(shape) < len(extents):
            raise OptionError(f"input {slot.name} has no fixed shape", hint="give hidet.tune example_inputs, or shapes")
        arrays.append(random_array(generator, shape, slot.tensor.dtype.numpy()))
    return arrays
