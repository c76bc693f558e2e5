"""What a device can do at most, and how much a task asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hidet import dims
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import HidetError
from hidet.schedule.cost import task_flops
from hidet.schedule.device_constants import known_constants
from hidet.schedule.task import Task, TaskTensor


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a device can do at most.

    flops: arithmetic operations a second, by a name of the units that do them ("f32", "f16 matrix units"). bandwidths:
    bytes a second, by the name of the memory ("L2", "memory"), from the nearest to the farthest. sizes: bytes that
    these memories keep, where that is known.
    """

    flops: Mapping[str, float]
    bandwidths: Mapping[str, float]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def least_seconds(self, flops: int, nbytes: int, dtype: str) -> float:
        """The time that no program for so much work can undercut: of arithmetic on elements of `dtype` by the fastest
        units for it, or of the bytes from the nearest memory that keeps them all."""
        rates = [self.flops[name] for name in (dtype, f"{dtype} matrix units") if name in self.flops]
        near = [width for name, width in self.bandwidths.items() if nbytes <= self.sizes.get(name, math.inf)]
        return max(flops / max(rates) if rates else 0.0, nbytes / near[0] if near else 0.0)


def roofline_of(ctx: CompileContext) -> Roofline | None:
    """What the device of a compilation can do, by as many cores as it may use, as its constants say; None for a target
    that has none."""
    constants = known_constants(ctx)
    if constants is None:
        return None
    cores = constants.cores
    if ctx.target.memory is None and ctx.options.threads is not None:
        cores = min(cores, ctx.options.threads)
    # A multiply-add is two operations.
    flops = {name: 2 * rate * cores for name, rate in constants.fma.items()}
    flops |= {f"{name} matrix units": 2 * rate * cores for name, rate in constants.matrix.items()}
    widths = {level.name: min(level.device_bandwidth, level.core_bandwidth * cores) for level in constants.levels}
    sizes = {level.name: level.nbytes * cores for level in constants.levels if level.nbytes}
    return Roofline(flops, widths, sizes)


@dataclass(frozen=True, slots=True)
class Work:
    """What a call of a task comes to.

    flops: arithmetic operations, a multiply-add as two. nbytes: of what it reads and writes, once each. Each is 0 where
    it is not known. dtype: short name of the type of its results, or of what it multiplies.
    """

    flops: int
    nbytes: int
    dtype: str


def work_of(task: Task, sizes: Mapping[str, int] | None = None) -> Work:
    """What a call of a task comes to. sizes: values of symbols; without them nothing is known of symbolic tensors."""
    tensors = (*task.inputs, *task.outputs)
    first = (task.inputs or task.outputs)[0] if task.anchor is not None else task.outputs[0]
    dtype = first.type.dtype.short
    written = [_elements(tensor, sizes or {}) for tensor in task.outputs]
    read = [_elements(tensor, sizes or {}) for tensor in task.inputs]
    flops = 0 if any(tensor.type.is_symbolic for tensor in tensors) else task_flops(task)
    if None in read or None in written:
        return Work(flops, 0, dtype)
    results = sum(count for count in written if count is not None)
    nbytes = 0
    for tensor, count in zip(tensors, (*read, *written), strict=True):
        assert count is not None
        # Without an anchor an element of a result reads one of each input: a gather reads no more of a table.
        nbytes += (min(count, results) if task.anchor is None else count) * tensor.type.dtype.numpy().itemsize
    return Work(flops, nbytes, dtype)


def _elements(tensor: TaskTensor, sizes: Mapping[str, int]) -> int | None:
    """Elements of a tensor; None where a size is not known."""

    def value(extent: Dim) -> int:
        return dims.evaluate(extent, sizes)

    try:
        return math.prod(map(value, tensor.type.shape))
    except HidetError:
        return None
