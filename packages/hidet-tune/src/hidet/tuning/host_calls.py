"""Calls of programs on this machine's CPU, all on the same memory: what fits into the caches stays there."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from hidet.runtime.memory import require_memory
from hidet.tuning.loaded import LoadedProgram
from hidet.tuning.results import Array
from hidet.tuning.runner import TURN, unwritten
from hidet.tuning.trial import TaskMemory

_ALIGNMENT = 64


class HostInputs:
    """`hidet.tuning.runner.TaskInputs` of this process; each program gets copies of its own."""

    def __init__(self, task: TaskMemory, inputs: Sequence[Array]) -> None:
        self._task = task
        self._inputs = inputs

    def calls(self, program: LoadedProgram) -> HostCalls:
        """Calls of a program on them."""
        return HostCalls(program, self._task, self._inputs)


class HostCalls:
    """`hidet.tuning.runner.Calls` in memory of this process. OutOfMemory for more of it than the machine has."""

    def __init__(self, program: LoadedProgram, task: TaskMemory, inputs: Sequence[Array]) -> None:
        require_memory(sum(program.text.scratch))
        arrays = [_aligned(array) for array in inputs]
        shared = dict(task.in_place)
        self._outputs = [
            arrays[shared[number]] if number in shared else _aligned(unwritten(buffer))
            for number, buffer in enumerate(task.outputs)
        ]
        scratch = [_aligned(np.full(nbytes, 0xFF, np.uint8)) for nbytes in program.text.scratch]
        self._held = (program, *arrays, *self._outputs, *scratch)
        self._table = program.table([array.ctypes.data for array in (*arrays, *self._outputs, *scratch)])
        self._call = program.call
        self._count = 0

    def run(self) -> None:
        """Call it once."""
        self._call(self._table)

    def results(self) -> list[Array]:
        """Copies of the outputs."""
        return [array.copy() for array in self._outputs]

    def seconds(self) -> float:
        """How long a call takes, by one turn of calls."""
        if not self._count:
            self._count = max(1, math.ceil(TURN / max(self._measure(1), 1e-7)))
        return self._measure(self._count)

    def _measure(self, count: int) -> float:
        call, table = self._call, self._table
        start = time.perf_counter()
        for _ in range(count):
            call(table)
        return (time.perf_counter() - start) / count


def _aligned(array: Array) -> Array:
    """A copy at a multiple of what programs may rely on."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy
