"""Calls of programs that run on a device: recorded as one piece of work, where it can, and timed by the device's clock.

Each call works on another copy of the task's memory, so that no more is found in the cache than in a model. There are
copies for twice the device's last cache, `MOST_COPIES` at most: what is smaller than that, a model finds there as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.runtime.memory import require_memory
from hidet.target import DeviceMemory, DeviceWork
from hidet.tuning.loaded import LoadedProgram
from hidet.tuning.results import Array
from hidet.tuning.runner import TURN
from hidet.tuning.trial import TaskMemory

MOST_COPIES = 32
MOST_CALLS = 256
"""Calls that are recorded for a turn."""

_ALIGNMENT = 256
_DEFAULT_STREAM = 0


class DeviceInputs:
    """`hidet.tuning.runner.TaskInputs` in memory of a device, whose errors tell of too little of it, or a lost device.

    Programs share the copies of the inputs, unless they write to them, and what they write to but for the first copy,
    from which results are read.
    """

    def __init__(self, memory: DeviceMemory, task: TaskMemory, inputs: Sequence[Array]) -> None:
        self.memory = memory
        self.task = task
        self._inputs = inputs
        self._copies: list[list[Any]] = []
        self._written: list[tuple[Any, int, int]] = []

    def copy(self, number: int) -> list[Any]:
        """Arrays of a copy, all of which are made when they are first asked for."""
        while len(self._copies) <= number:
            self._copies.append(list(map(self.memory.place, self._inputs)))
        return self._copies[number]

    def written(self, nbytes: int) -> int:
        """The address of so much memory that programs may write to in turns."""
        if not self._written or self._written[-1][2] < nbytes:
            # What was made before stays: recorded calls write to it.
            self._written.append((*self.memory.adapter().empty((nbytes,), (1,), "uint8"), nbytes))
        return self._written[-1][1]

    def unwritten(self, dtype: str, elements: int) -> Any:
        """An array of one program, all bits set: NaN in floats."""
        made, address = self.memory.adapter().empty((elements,), (1,), dtype)
        self.memory.fill(address, elements * dtypes.dtype(dtype).numpy().itemsize, 0xFF)
        return made

    def calls(self, program: LoadedProgram) -> DeviceCalls:
        """Calls of a program on them."""
        own = DeviceInputs(self.memory, self.task, self._inputs) if self.task.in_place else self
        return DeviceCalls(program, own)


class DeviceCalls:
    """`hidet.tuning.runner.Calls` on inputs of a device."""

    def __init__(self, program: LoadedProgram, inputs: DeviceInputs) -> None:
        require_memory(sum(program.text.scratch))
        self._memory = inputs.memory
        self._program = program
        self._inputs = inputs
        self._pointer = self._memory.adapter().pointer
        arrays = inputs.copy(0)
        task = inputs.task
        self._shared = dict(task.in_place)
        self._outputs = [
            arrays[self._shared[number]] if number in self._shared else inputs.unwritten(buffer.dtype, buffer.elements)
            for number, buffer in enumerate(task.outputs)
        ]
        scratch = [inputs.unwritten("uint8", nbytes) for nbytes in program.text.scratch]
        self._held = scratch
        self._tables = [program.table(list(map(self._pointer, (*arrays, *self._outputs, *scratch))))]
        self._work: DeviceWork | None = None
        self._count = 0

    def run(self) -> None:
        """Call it once on the first copy, and wait."""
        self._program.call(self._tables[0], _DEFAULT_STREAM)
        self._memory.finish(_DEFAULT_STREAM)

    def results(self) -> list[Array]:
        """Outputs of the first copy."""
        return [np.asarray(self._memory.download(array)) for array in self._outputs]

    def seconds(self) -> float:
        """How long a call takes, by one launch of the recorded calls."""
        if self._work is None:
            self._work = self._record()
            self._work.launch(_DEFAULT_STREAM)
            self._memory.finish(_DEFAULT_STREAM)
        return self._memory.time(self._work.launch) / self._count

    def _record(self) -> DeviceWork:
        """Calls for a turn, on one copy after the other."""
        self._memory.synchronize()
        once = self._memory.time(partial(self._program.call, self._tables[0]))
        turn = min(max(math.ceil(TURN / max(once, 1e-7)), 1), MOST_CALLS)
        task = self._inputs.task
        nbytes = sum(buffer.nbytes for buffer in (*task.inputs, *task.outputs)) + sum(self._program.text.scratch)
        copies = min(math.ceil(2 * self._memory.cache_bytes / max(nbytes, 1)), MOST_COPIES)
        # A turn uses every copy, unless calls take so long that what the cache keeps makes little difference.
        self._count = min(max(turn, copies), max(turn, math.ceil(10 * TURN / max(once, 1e-7))))
        self._place_copies(min(copies, self._count))
        self._memory.synchronize()

        def put(stream: int) -> None:
            for number in range(self._count):
                self._program.call(self._tables[number % len(self._tables)], stream)

        return self._memory.capture(put) if self._memory.can_capture else _Repeated(put)

    def _place_copies(self, count: int) -> None:
        """Memory for more calls. What programs write to is one piece for all of them: each takes the driver time."""
        outputs = enumerate(self._inputs.task.outputs)
        sizes = [0 if number in self._shared else _aligned(buffer.nbytes) for number, buffer in outputs]
        sizes += map(_aligned, self._program.text.scratch)
        starts = [0, *itertools.accumulate(sizes)]
        base = self._inputs.written(starts[-1] * (count - 1))
        for number in range(1, count):
            arrays = list(map(self._pointer, self._inputs.copy(number)))
            begin = base + starts[-1] * (number - 1)
            written = [
                arrays[self._shared[place]] if place in self._shared else begin + start
                for place, start in enumerate(starts[:-1])
            ]
            self._tables.append(self._program.table([*arrays, *written]))


@dataclass(frozen=True, slots=True)
class _Repeated:
    """`hidet.target.DeviceWork` of a device that records nothing: calls, made anew."""

    launch: Callable[[int], None]
    kernels: int = 0


def _aligned(nbytes: int) -> int:
    """As much as programs may expect tensors to be apart."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
