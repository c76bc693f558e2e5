"""Calls of programs that run on a device: recorded as one piece of work and timed by the device's clock.

Each call works on another copy of the task's memory, so that no more is found in the cache than in a model. There are
copies for twice the device's last cache, `MOST_COPIES` at most: what is smaller than that, a model finds there as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hidet.runtime.memory import require_memory
from hidet.target import DeviceMemory, DeviceWork
from hidet.tuning.loaded import LoadedProgram
from hidet.tuning.results import Array
from hidet.tuning.runner import TURN, unwritten
from hidet.tuning.trial import TaskMemory

MOST_COPIES = 32
MOST_CALLS = 256
"""Calls that are recorded for a turn."""

_DEFAULT_STREAM = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """Memory of a task on the device, and the table of a call on it."""

    outputs: list[Any]
    table: bytes
    held: tuple[Any, ...]


class DeviceCalls:
    """`hidet.tuning.runner.Calls` in memory of a device, whose errors tell of too little of it, or a lost device."""

    def __init__(self, memory: DeviceMemory, program: LoadedProgram, task: TaskMemory, inputs: Sequence[Array]) -> None:
        require_memory(sum(program.text.scratch))
        self._memory = memory
        self._program = program
        self._task = task
        self._inputs = inputs
        self._copies = [self._place()]
        self._work: DeviceWork | None = None
        self._count = 0

    def run(self) -> None:
        """Call it once on the first copy, and wait."""
        self._program.call(self._copies[0].table, _DEFAULT_STREAM)
        self._memory.finish(_DEFAULT_STREAM)

    def results(self) -> list[Array]:
        """Outputs of the first copy."""
        return [np.asarray(self._memory.download(array)) for array in self._copies[0].outputs]

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
        once = self._memory.time(partial(self._program.call, self._copies[0].table))
        turn = min(max(math.ceil(TURN / max(once, 1e-7)), 1), MOST_CALLS)
        nbytes = sum(buffer.nbytes for buffer in (*self._task.inputs, *self._task.outputs))
        nbytes += sum(self._program.text.scratch)
        copies = min(math.ceil(2 * self._memory.cache_bytes / max(nbytes, 1)), MOST_COPIES)
        # A turn uses every copy, unless calls take so long that what the cache keeps makes little difference.
        self._count = min(max(turn, copies), max(turn, math.ceil(10 * TURN / max(once, 1e-7))))
        while len(self._copies) < min(copies, self._count):
            self._copies.append(self._place())
        self._memory.synchronize()

        def put(stream: int) -> None:
            for number in range(self._count):
                self._program.call(self._copies[number % len(self._copies)].table, stream)

        return self._memory.capture(put)

    def _place(self) -> _Copy:
        place = self._memory.place
        arrays = [place(array) for array in self._inputs]
        shared = dict(self._task.in_place)
        outputs = [
            arrays[shared[number]] if number in shared else place(unwritten(buffer))
            for number, buffer in enumerate(self._task.outputs)
        ]
        scratch = [place(np.full(nbytes, 0xFF, np.uint8)) for nbytes in self._program.text.scratch]
        held = (*arrays, *outputs, *scratch)
        pointer = self._memory.adapter().pointer
        return _Copy(outputs, self._program.table([pointer(array) for array in held]), held)
