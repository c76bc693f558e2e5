"""Where tasks lie under the roof: how much arithmetic they do, on how many bytes, and what the device can do."""

from __future__ import annotations

import math

from hidet.context import CompileContext
from hidet.schedule.cost import task_flops
from hidet.schedule.device_constants import known_constants
from hidet.schedule.task import Task
from hidet.tuning.report import Roofline


def roofline_of(ctx: CompileContext) -> Roofline | None:
    """What the device of a compilation can do, as its constants say; None for a target that has none."""
    constants = known_constants(ctx)
    if constants is None:
        return None
    # A multiply-add is two operations.
    flops = {name: 2 * rate * constants.cores for name, rate in constants.fma.items()}
    flops |= {f"{name} matrix units": 2 * rate * constants.cores for name, rate in constants.matrix.items()}
    return Roofline(flops, {level.name: level.device_bandwidth for level in constants.levels})


def work_of(task: Task) -> tuple[int, int]:
    """Arithmetic operations of a call of a task, and the bytes of what it reads and writes, once each; 0 bytes where
    sizes are known at run time alone."""
    nbytes = 0
    for tensor in (*task.inputs, *task.outputs):
        extents = [extent for extent in tensor.type.shape if isinstance(extent, int)]
        if len(extents) < tensor.type.rank:
            return task_flops(task), 0
        nbytes += math.prod(extents) * tensor.type.dtype.numpy().itemsize
    return task_flops(task), nbytes
