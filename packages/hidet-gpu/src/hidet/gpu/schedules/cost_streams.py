"""How long pointwise results, rows, reductions and scans take by what is chosen about them: models by `cost.Teams`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hidet.compute.definition import Compute
from hidet.gpu.schedules.cost import Teams, teams_seconds
from hidet.gpu.schedules.depthwise_plan import Depthwise, taps_of
from hidet.gpu.schedules.exchange import WARP
from hidet.gpu.schedules.pointwise_layout import Pointwise
from hidet.gpu.schedules.row_layout import SIDE, RowLayout
from hidet.gpu.schedules.scan_kernel import Chunks
from hidet.ir.expr import Binary, Reduce, Unary
from hidet.ir.visit import accesses, walk
from hidet.schedule.affine import as_dim
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.scans import ScanProgram
from hidet.schedule.task import Task, TaskTensor
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_THREAD, _ACCESS, _FUNCTION = 24, 8, 12
"""Instructions of a thread, of an access, which finds its address, and of a function of a number."""
_BLOCK = 256
_SECTOR = 32
"""Bytes that memory moves at once."""


def task_bytes(task: Task) -> int:
    """Of a task's inputs and outputs, each moved once."""
    return _bytes((*task.inputs, *task.outputs))


def _bytes(tensors: Sequence[TaskTensor]) -> int:
    return sum(element_count(tensor.type.shape) * tensor.type.dtype.nbytes for tensor in tensors)


def pointwise_seconds(
    task: Task, outputs: Sequence[tuple[Pointwise, int]], threads: int, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of a kernel for each output, whose threads compute so many neighbours each, in blocks of `threads`."""
    total = 0.0
    for pointwise, lanes in outputs:
        count = element_count(pointwise.output.type.shape)
        read = list(dict.fromkeys(access.operand for access in accesses(pointwise.value)))
        nbytes = count * pointwise.output.type.dtype.nbytes
        nbytes += sum(min(count, element_count(operand.shape)) * operand.dtype.nbytes for operand in read)
        each = sum(_FUNCTION if isinstance(node, Unary) else isinstance(node, Binary) for node in walk(pointwise.value))
        taps = sum(
            element_count([as_dim(extent) or 1 for extent in node.extents])
            for node in walk(pointwise.value)
            if isinstance(node, Reduce)
        )
        work = _THREAD + _ACCESS * (len(read) + 1) * max(1, taps) + lanes * each * max(1, taps)
        teams = Teams(-(-count // lanes), 1, threads, 1.0, nbytes, instructions=work)
        total += teams_seconds(teams, target, constants)
    return total


def transposed_seconds(task: Task, warps: int, target: GpuTarget, constants: DeviceConstants) -> float:
    """Of results that are written through a tile of a block of so many warps; 0 reads against the order of memory, a
    sector for an element."""
    count = max(element_count(tensor.type.shape) for tensor in task.outputs)
    if warps == 0:
        apart = count * (_SECTOR - max(tensor.type.dtype.nbytes for tensor in task.inputs))
        teams = Teams(count, 1, _BLOCK, 1.0, task_bytes(task), again=apart, instructions=_THREAD)
        return teams_seconds(teams, target, constants)
    tiles = -(-count // (WARP * WARP))
    threads = WARP * warps
    # Each thread reads a column of the tile, and after a barrier writes one.
    teams = Teams(tiles * threads, 1, threads, 2.0, task_bytes(task), instructions=_THREAD + _ACCESS * 2 * WARP / warps)
    return teams_seconds(teams, target, constants)


def row_seconds(
    task: Task, layout: RowLayout, is_kept: bool, parts: int, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of rows that are dealt out as a layout says, in so many parts each."""
    items, reads = extent_estimate(layout.items), extent_estimate(layout.reads)
    statistics = len(layout.program.statistics)
    nbytes = task_bytes(task)
    own = layout.threads if layout.threads > WARP else _BLOCK
    block = layout.threads * SIDE if layout.is_side_by_side else own
    steps = -(-reads // layout.threads)
    work = _ACCESS * steps * layout.lanes * (statistics + 1)
    if parts == 1:
        # What stays in registers is read at once; else every step of every pass waits.
        waits = 1.0 if is_kept else float(steps * (statistics + 1))
        again = 0.0 if is_kept else nbytes * statistics
        teams = Teams(items, layout.threads, block, waits, nbytes, again, _THREAD + work)
        return teams_seconds(teams, target, constants)
    written = _bytes(task.outputs)
    read = nbytes - written
    has_elements = any(not output.per_row for output in layout.program.outputs)
    cut = Teams(items * parts, layout.threads, block, -(-steps // parts), read, 0.0, _THREAD + work / parts)
    last = Teams(items * parts, layout.threads, block, -(-steps // parts), written, read, _THREAD + work / parts)
    between = Teams(items, WARP, _BLOCK, -(-parts // WARP), items * parts * 8)
    kernels = [cut, between] * statistics + ([last] if has_elements else [])
    return sum(teams_seconds(kernel, target, constants) for kernel in kernels)


def reduce_seconds(
    task: Task, stages: Sequence[tuple[Compute, int]], threads: int, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of a kernel for each stage, whose elements are shared by so many threads each."""
    total = 0.0
    for stage, lanes in stages:
        reductions = [node for node in walk(stage.value) if isinstance(node, Reduce)]
        longest = max((element_count([as_dim(n) or 1 for n in node.extents]) for node in reductions), default=1)
        results = element_count(stage.result.shape)
        read = dict.fromkeys(access.operand for access in accesses(stage.value))
        nbytes = sum(element_count(operand.shape) * operand.dtype.nbytes for operand in read)
        steps = -(-longest // lanes)
        block = lanes if lanes > WARP else threads if lanes == WARP else _BLOCK
        # The compiler reads some steps of a loop ahead.
        teams = Teams(results, lanes, block, steps / 4, nbytes, instructions=_THREAD + _ACCESS * steps * len(read))
        total += teams_seconds(teams, target, constants)
    return total


def scan_seconds(
    task: Task, program: ScanProgram, chunks: Chunks, parts: int, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of a scan by such chunks, in so many parts a row."""
    rows, length = element_count(program.outer_extents), extent_estimate(program.length)
    block = chunks.threads if chunks.threads > WARP else 4 * WARP
    nbytes = task_bytes(task)
    steps = -(-length // (parts * chunks.elements))
    work = _THREAD + _ACCESS * steps * chunks.each
    whole = Teams(rows * parts, chunks.threads, block, float(steps), nbytes, instructions=work)
    if parts == 1:
        return teams_seconds(whole, target, constants)
    totals = Teams(rows * parts, chunks.threads, block, float(steps), _bytes(task.inputs), instructions=work)
    between = Teams(rows, WARP, 4 * WARP, -(-parts // (4 * WARP)), rows * parts * 8)
    return sum(teams_seconds(kernel, target, constants) for kernel in (totals, between, whole))


def depthwise_seconds(
    task: Task, conv: Depthwise, pixels: int, rows: int, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Of a convolution with a filter a channel, of which a thread computes so many pixels of so many rows."""
    down, across = conv.window
    taps = taps_of(down) * taps_of(across)
    count = element_count(task.outputs[0].type.shape)
    threads = -(-count // (pixels * rows * conv.lanes))
    # Neighbouring windows share what they read, and a filter that stays in registers is read once.
    read = ((pixels - 1) * across.step + taps_of(across)) * ((rows - 1) * down.step + taps_of(down))
    filters = taps if conv.is_kept else taps * rows
    work = _THREAD + _ACCESS * (read + filters + pixels * rows) + pixels * rows * taps * conv.lanes
    teams = Teams(threads, 1, _BLOCK, 1.0 + rows, task_bytes(task), instructions=work)
    return teams_seconds(teams, target, constants)
