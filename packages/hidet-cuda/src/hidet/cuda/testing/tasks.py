"""Programs of single tasks, scheduled without a GPU: run by the simulator, or compiled."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dims
from hidet.cuda.nvrtc import Cubin, compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import context_for, with_threads
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.schedule.select import ScheduledTask, select_schedules

Array = np.ndarray[Any, Any]


def scheduled_task(text: str, arch: str = "sm_80", *, is_aligned: bool = True) -> ScheduledTask:
    """The one task of a graph in text form, with its program for an architecture. is_aligned: as of `context_for`."""
    ctx = context_for(arch, is_aligned=is_aligned)
    graph = parse_graph(textwrap.dedent(text), ctx.registry.operators)
    (step,) = select_schedules(fuse(graph, ctx), ctx).steps
    assert isinstance(step, ScheduledTask)
    return step


def simulate(
    step: ScheduledTask, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None, offset: int = 0
) -> list[Array]:
    """The task's results in f64. All memory that a program has to write is full of NaN before.

    inputs: by the names of the graph's values. sizes: of symbols. offset: elements between where memory starts, which
    is aligned to 16 bytes, and where each input does.
    """
    bindings = dict(sizes or {})
    module = with_threads(step.program.module)
    verify_module(module)
    memories = [
        _placed(inputs[tensor.value.name], _numbers(tensor.type.element_strides, bindings), offset)[0]
        for tensor in step.task.inputs
    ]
    views = []
    for tensor in step.task.outputs:
        empty = np.full(_numbers(tensor.type.shape, bindings), np.nan, tensor.type.dtype.numpy())
        memory, view = _placed(empty, _numbers(tensor.type.element_strides, bindings), 0)
        memories.append(memory)
        views.append(view)
    for nbytes in _numbers(step.program.scratch, bindings):
        memories.append(np.full(nbytes // 4, np.nan, np.float32))
    run_module(module, [*memories, *_numbers(step.program.arguments, bindings)])
    return [view.astype(np.float64) for view in views]


def compiled_kernels(step: ScheduledTask, arch: str) -> list[Cubin]:
    """The machine code of each kernel of a task that was scheduled for `arch`."""
    return [compile_cubin(source, arch) for source in CudaTarget(arch).sources(with_threads(step.program.module))]


def _numbers(extents: Sequence[dims.Dim], bindings: Mapping[str, int]) -> list[int]:
    return [dims.evaluate(extent, bindings) for extent in extents]


def _placed(array: Array, strides: Sequence[int], offset: int) -> tuple[Array, Array]:
    """Memory with a copy of an array that begins `offset` elements after a multiple of 16 bytes; a view of the copy."""
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True))
    memory = np.empty(reach + offset + 16, array.dtype)
    first = -memory.ctypes.data % 16 // array.itemsize + offset
    memory = memory[first : first + reach]
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [stride * array.itemsize for stride in strides])
    view[...] = array
    return memory, view
