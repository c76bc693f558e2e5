"""What a device can do at most, and how much a task asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hidet import dims
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import HidetError
from hidet.graph.types import TensorType
from hidet.schedule.cost import task_flops
from hidet.schedule.device_constants import known_constants
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a device can do at most.

    flops: arithmetic operations a second, by a name of the units that do them ("float32", "float16 matrix units").
    bandwidths: bytes a second, by the name of the memory ("L2", "memory"), from the nearest to the farthest. sizes:
    bytes that these memories keep, where that is known.
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
    it is not known. dtype: name of the type of its results, or of what it multiplies.
    """

    flops: int
    nbytes: int
    dtype: str


def work_of(task: Task, sizes: Mapping[str, int] | None = None) -> Work:
    """What a call of a task comes to.

    sizes: values of symbols. Without them arithmetic on symbolic tensors is what the hints of their symbols say.
    """
    tensors = (*task.inputs, *task.outputs)
    first = (task.inputs or task.outputs)[0] if task.anchor is not None else task.outputs[0]
    dtype = first.type.dtype.name
    known = sizes or {}
    counts = [_elements(tensor.type.shape, known) for tensor in tensors]
    is_unknown = sizes is not None and any(tensor.type.is_symbolic for tensor in tensors)
    flops = 0 if is_unknown else task_flops(task)
    wanted = _elements_wanted(task, known)
    if wanted is None or None in counts:
        return Work(flops, 0, dtype)
    direct = {tensor for tensor in task.anchor_inputs if tensor is not None} | set(task.outputs)
    nbytes = 0
    for tensor, count in zip(tensors, counts, strict=True):
        assert count is not None
        # What is inlined reads an element of each input for one of its result: a gather reads no more of a table.
        nbytes += (count if tensor in direct else min(count, wanted)) * tensor.type.dtype.numpy().itemsize
    return Work(flops, nbytes, dtype)


def _elements_wanted(task: Task, sizes: Mapping[str, int]) -> int | None:
    """The most elements that an operator of a task asks of what is inlined before it; None where that is not known."""
    values = [tensor.value for tensor in task.outputs]
    values += [] if task.anchor is None else task.anchor.values
    counts = [_elements(value.tensor.shape, sizes) for value in values if isinstance(value.type, TensorType)]
    return None if None in counts else max((count for count in counts if count is not None), default=0)


def _elements(shape: Sequence[Dim], sizes: Mapping[str, int]) -> int | None:
    """Elements of a shape; None where a size is not known."""

    def value(extent: Dim) -> int:
        return dims.evaluate(extent, sizes)

    try:
        return math.prod(map(value, shape))
    except HidetError:
        return None
