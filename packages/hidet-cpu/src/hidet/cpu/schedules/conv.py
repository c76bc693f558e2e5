"""Convolutions and their transposes as matrix products, without gathering.

A row of the product is a result position, given by the addresses of the pixels under its taps.
Pixels whose channels lie next to each other are read where they are; padding reads a row of zeros. Images in another
order or type, or with so few channels that a tap is hardly a run, are copied once into padded channels-last memory,
where the taps of one kernel row form a single run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.context import CompileContext
from hidet.cpu.schedules.conv_window import (
    Windows,
    fill_windows,
    launch_zeros,
    merge_last_taps,
    result_positions,
    spatial_axes,
    with_padding_of,
    without_padding,
)
from hidet.cpu.schedules.gemm import BUFFER_ROWS, TABLE_ENTRIES, inside_pointer, launch_gemm
from hidet.cpu.schedules.gemm_blocking import choose_blocking
from hidet.cpu.schedules.gemm_columns import Columns, PackedColumns, StridedColumns, is_packed_on_the_way
from hidet.cpu.schedules.gemm_epilogue import TilePlace
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TILE_ROWS, TileShape, tile_shape
from hidet.cpu.schedules.matmul import fill_matrix_rows
from hidet.cpu.schedules.pack import launch_pack_panels
from hidet.cpu.schedules.pad_images import launch_pad_images, padded_elements
from hidet.cpu.target import cpu_target
from hidet.dims import Dim
from hidet.errors import ScheduleError
from hidet.graph.attrs import Attrs
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.operators.rules import arithmetic_dtype
from hidet.operators.windows import per_axis, side_pairs
from hidet.schedule.lowering import KernelScope
from hidet.schedule.rule import FixedRule, Match, Program
from hidet.schedule.task import Task, TaskTensor

# A run of fewer channels than this is worth a copy that makes longer runs.
_SHORT_RUN = 12


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution as its parts. channels, filters: extents of one group."""

    image: TaskTensor
    weight: TaskTensor
    windows: Windows
    groups: int
    channels: Dim
    filters: Dim
    is_packed: bool


class ConvRule(FixedRule[Convolution]):
    """Schedules convolutions over any number of spatial axes, with any stride, padding, dilation and groups."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Convolution] | None:
        """Everything but windows with more taps than a table has room for."""
        image, weight = task.anchor_inputs[:2]
        if image is None or weight is None or any(prologue is not None for prologue in task.prologues):
            return None
        convolution = describe_conv(task, image, weight)
        return None if convolution.windows.taps * TILE_ROWS > TABLE_ENTRIES else Match(task, convolution)

    def build(self, match: Match[Convolution], params: None, ctx: CompileContext) -> Program:
        """Copies where needed, then one kernel."""
        conv, target = match.data, cpu_target(ctx)
        shape = tile_shape(target, arithmetic_dtype(conv.image.type.dtype))
        builder = ProgramBuilder(match.task)
        source, windows, run = _image(builder, conv, shape)
        inside = inside_pointer(source)
        sources = {source: inside}
        zeros = None
        if windows.may_leave:
            outside = builder.scratch("zeros", shape.dtype, run)
            launch_zeros(builder, outside, run)
            zeros = sources[outside] = inside_pointer(outside)
        table_rows = min(BUFFER_ROWS, TABLE_ENTRIES // windows.taps)

        def fill(k: IRBuilder, scope: KernelScope, table: RowTable, group: Expr) -> None:
            start = inside if conv.groups == 1 else inside + group * parameter(scope, conv.channels, "channels")
            if not windows.is_pointwise:
                fill_windows(k, scope, table, start, zeros, windows)
                return
            axes = (windows.batch, *((axis.result, axis.image_stride) for axis in windows.axes))
            fill_matrix_rows(k, scope, table, start, axes)

        right = _filters(builder, conv, shape, windows, run)
        blocking = choose_blocking(
            shape,
            target.cpu.l1_bytes,
            conv.groups,
            windows.rows,
            conv.filters,
            windows.taps,
            run,
            table_rows,
            order=right.order,
        )

        def place(scope: KernelScope, group: Expr) -> TilePlace:
            base = build.index(0) if conv.groups == 1 else group * parameter(scope, conv.filters, "filters")
            return TilePlace(result_positions(len(windows.axes) + 2), 1, base, {})

        gemm = Gemm(
            problems=conv.groups,
            rows=windows.rows,
            columns=conv.filters,
            taps=windows.taps,
            run=run,
            element=source.dtype,
            step=1,
            right=right,
            fill=fill,
            sources=sources,
            place=place,
        )
        launch_gemm(builder, match.task, gemm, shape, blocking)
        return builder.program()


def describe_conv(task: Task, image: TaskTensor, weight: TaskTensor) -> Convolution:
    """The convolution that a task's anchor is. ScheduleError when the number of filters or taps is not fixed."""
    assert task.anchor is not None
    attrs, result = task.anchor.attrs, task.anchor.outputs[0].tensor
    is_packed = task.op_name.endswith("_packed")
    is_transposed = "transpose" in task.op_name
    if is_packed:
        groups, _, *kernel, channels, _ = weight.type.shape
    else:
        groups, (_, channels, *kernel) = attrs["groups"], weight.type.shape
    group_count = fixed(groups, "the number of groups")
    if is_transposed and not is_packed:
        channels = weight.type.shape[0] // group_count
    filters = fixed(result.shape[1], "the number of filters") // group_count
    windows = conv_windows(image.type, result, [fixed(taps, "the kernel") for taps in kernel], attrs)
    windows = replace(windows, is_transposed=is_transposed)
    return Convolution(image, weight, windows, group_count, channels, filters, is_packed)


def fixed(dim: Dim, what: str) -> int:
    """`dim` as a number; ScheduleError naming `what` when it is symbolic."""
    if not isinstance(dim, int):
        raise ScheduleError(f"{what} is {dim}, expected a fixed number")
    return dim


def conv_windows(image: TensorType, result: TensorType, kernel: Sequence[int], attrs: Attrs) -> Windows:
    """The windows of a convolution with attributes stride, padding and dilation."""
    rank = len(kernel)
    strides = image.element_strides
    axes = spatial_axes(
        image.shape[2:],
        strides[2:],
        result.shape[2:],
        kernel,
        per_axis("conv", "stride", attrs["stride"], rank, 1),
        per_axis("conv", "dilation", attrs["dilation"], rank, 1),
        side_pairs("conv", attrs["padding"], rank),
    )
    return Windows((image.shape[0], strides[0]), axes)


def _image(builder: ProgramBuilder, conv: Convolution, shape: TileShape) -> tuple[Var, Windows, Dim]:
    """Where pixels are read, how windows lie on them, and the length of a run."""
    pointer = builder.pointers[conv.image.operand]
    channel_stride = conv.image.type.element_strides[1]
    last = conv.windows.axes[-1]
    is_transposed = conv.windows.is_transposed
    can_merge = conv.groups == 1 and last.dilation == 1 and last.taps > 1 and not is_transposed
    is_short = can_merge and isinstance(conv.channels, int) and conv.channels < _SHORT_RUN
    has_runs = channel_stride == 1 or conv.image.type.shape[1] == 1
    if pointer.dtype is shape.dtype and has_runs and not is_short:
        return pointer, conv.windows, conv.channels
    channels = conv.image.type.shape[1]
    # The padding of a transpose is cut off its result; the image itself has none.
    copied = without_padding(conv.windows) if is_transposed else conv.windows
    copy = builder.scratch("padded", shape.dtype, padded_elements(copied, channels))
    windows = launch_pad_images(builder, pointer, copy, copied, (channels, channel_stride), shape.lanes)
    if is_transposed:
        return copy, with_padding_of(windows, conv.windows), conv.channels
    if can_merge:
        return copy, *merge_last_taps(windows, conv.channels)
    return copy, windows, conv.channels


def _filters(builder: ProgramBuilder, conv: Convolution, shape: TileShape, windows: Windows, run: Dim) -> Columns:
    pointer = builder.pointers[conv.weight.operand]
    panels = dims.ceildiv(conv.filters, shape.lanes) * shape.lanes

    def panel_offset(scope: KernelScope, group: Expr) -> Expr:
        if conv.groups == 1:
            return build.index(0)
        return group * parameter(scope, panels * windows.taps * run, "group_panels")

    if conv.is_packed:
        return PackedColumns(pointer, panel_offset)
    strides = conv.weight.type.element_strides
    filters, depth = (conv.filters, strides[0]), (conv.channels, strides[1])
    groups = (conv.groups, strides[0] * conv.filters)
    if conv.windows.is_transposed:
        filters, depth = (conv.filters, strides[1]), (conv.channels, strides[0])
        groups = (conv.groups, strides[0] * conv.channels)
    taps = list(zip([axis.taps for axis in conv.windows.axes], strides[2:], strict=True))
    is_merged = windows.taps != conv.windows.taps
    if is_packed_on_the_way(windows.rows, windows.taps) and not is_merged:

        def offset(scope: KernelScope, group: Expr) -> Expr:
            return build.index(0) if conv.groups == 1 else group * scope.size(groups[1], "group_stride")

        return StridedColumns(pointer, offset, filters[1], tuple(taps), depth[1])
    elements = panels * conv.groups * conv.channels * conv.windows.taps
    packed = builder.scratch("packed", shape.dtype, elements)
    launch_pack_panels(builder, pointer, packed, [groups], filters, taps, depth, shape.lanes)
    return PackedColumns(packed, panel_offset)
