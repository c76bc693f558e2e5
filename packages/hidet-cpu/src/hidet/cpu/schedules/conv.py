"""Convolutions and their transposes as matrix products, without gathering.

A row of the product is a result position, given by the addresses of the pixels under its taps.
Pixels whose channels lie next to each other are read where they are; padding reads a row of zeros. Images in another
order or type, or with so few channels that a tap is hardly a run, are copied once into padded channels-last memory,
where the taps of one kernel row form a single run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from hidet.cpu.schedules.cost_gemm import Operands, gemm_seconds
from hidet.cpu.schedules.gemm import BUFFER_ROWS, TABLE_ENTRIES, inside_pointer
from hidet.cpu.schedules.gemm_blocking import Extents
from hidet.cpu.schedules.gemm_choice import GemmParams, gemm_space, launch_product
from hidet.cpu.schedules.gemm_columns import (
    Columns,
    PackedColumns,
    StridedColumns,
    can_be_packed_on_the_way,
    is_packed_on_the_way,
    order_of,
)
from hidet.cpu.schedules.gemm_default import CLEARLY, choose_params
from hidet.cpu.schedules.gemm_epilogue import TilePlace
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import Gemm, RowTable
from hidet.cpu.schedules.gemm_tile import TILE_ROWS, TileShape, tile_shape
from hidet.cpu.schedules.matmul import fill_matrix_rows
from hidet.cpu.schedules.pack import Axis, Order, launch_pack_panels
from hidet.cpu.schedules.pad_images import launch_pad_images, padded_elements
from hidet.cpu.target import cpu_target
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.graph.attrs import Attrs
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.operators.rules import arithmetic_dtype
from hidet.operators.windows import per_axis, side_pairs
from hidet.schedule.cost import element_count
from hidet.schedule.device_constants import known_constants
from hidet.schedule.lowering import KernelScope
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Space
from hidet.schedule.task import Task, TaskTensor
from hidet.target.constants import DeviceConstants

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


class ConvRule(ScheduleRule[Convolution, GemmParams]):
    """Schedules convolutions over any number of spatial axes, with any stride, padding, dilation and groups."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Convolution] | None:
        """Everything but windows with more taps than a table has room for, those of a row of the kernel counting as one
        where they may be a run."""
        image, weight = task.anchor_inputs[:2]
        if image is None or weight is None or any(prologue is not None for prologue in task.prologues):
            return None
        convolution = describe_conv(task, image, weight)
        has_room = any(_has_room(convolution, is_copied=is_copied) for is_copied in (False, True))
        return Match(task, convolution) if has_room else None

    def space(self, match: Match[Convolution], ctx: CompileContext) -> Space[GemmParams]:
        """Register tiles, work items, chunks of the sum, and where filters are packed."""
        conv, dtype = match.data, arithmetic_dtype(match.data.image.type.dtype)
        # A copy of what is read in place is worth it for longer runs, or for what lies around the image.
        may_be_copied = (False,) if conv.windows.is_pointwise else (False, True)
        copying = (True,) if _must_be_copied(conv, dtype) else may_be_copied
        packing = (False, True) if any(_may_pack_on_the_way(conv, each) for each in copying) else (False,)
        return gemm_space(
            cpu_target(ctx),
            dtype,
            partial(_extents, conv),
            self.default(match, ctx),
            packing=packing,
            copying=copying,
            more=(
                Constraint(
                    "work items pack filters whose taps are no run of the image",
                    lambda params: not params.is_packed_on_the_way or _may_pack_on_the_way(conv, params.copies_image),
                ),
            ),
        )

    def default(self, match: Match[Convolution], ctx: CompileContext) -> GemmParams:
        """By sizes, symbolic ones as their hints say; short runs of channels are copied to make longer ones, as are
        others that are no whole vectors where the cost model expects that to be clearly faster."""
        conv, dtype = match.data, arithmetic_dtype(match.data.image.type.dtype)
        usual = _default(conv, ctx, is_copied=_is_copied(conv, dtype))
        lanes = tile_shape(cpu_target(ctx), dtype, usual.tile).lanes
        if usual.copies_image or not _can_merge(conv) or dims.divisibility(conv.channels) % lanes == 0:
            return usual
        copied, constants = _default(conv, ctx, is_copied=True), cpu_target(ctx).published_constants()
        is_faster = _seconds(conv, copied, constants, 1, ctx) < _seconds(conv, usual, constants, 1, ctx) / CLEARLY
        return copied if is_faster else usual

    def predict(self, match: Match[Convolution], params: GemmParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_gemm`."""
        constants = known_constants(ctx)
        assert constants is not None
        return _seconds(match.data, params, constants, ctx.options.threads or constants.cores, ctx)

    def build(self, match: Match[Convolution], params: GemmParams, ctx: CompileContext) -> Program:
        """Copies where needed, then one kernel."""
        conv, target = match.data, cpu_target(ctx)
        shape = tile_shape(target, arithmetic_dtype(conv.image.type.dtype), params.tile)
        builder = ProgramBuilder(match.task)
        source, windows, run = _image(builder, conv, shape, is_copied=params.copies_image)
        inside = inside_pointer(source)
        sources = {source: inside}
        zeros = None
        if windows.may_leave:
            outside = builder.scratch("zeros", shape.dtype, run)
            launch_zeros(builder, outside, run)
            zeros = sources[outside] = inside_pointer(outside)

        def fill(k: IRBuilder, scope: KernelScope, table: RowTable, group: Expr) -> None:
            start = inside if conv.groups == 1 else inside + group * parameter(scope, conv.channels, "channels")
            if not windows.is_pointwise:
                fill_windows(k, scope, table, start, zeros, windows)
                return
            axes = (windows.batch, *((axis.result, axis.image_stride) for axis in windows.axes))
            fill_matrix_rows(k, scope, table, start, axes)

        right = _filters(builder, conv, shape, windows, run, is_on_the_way=params.is_packed_on_the_way)
        extents = _extents(conv, params)

        def place(scope: KernelScope, group: Expr) -> TilePlace:
            base = build.index(0) if conv.groups == 1 else group * parameter(scope, conv.filters, "filters")
            return TilePlace(result_positions(len(windows.axes) + 2), 1, base, {})

        gemm = Gemm(
            problems=extents.problems,
            rows=extents.rows,
            columns=extents.columns,
            taps=extents.taps,
            run=extents.run,
            element=source.dtype,
            step=1,
            right=right,
            fill=fill,
            sources=sources,
            place=place,
        )
        launch_product(builder, match.task, gemm, shape, extents, params)
        return builder.program()


def _default(conv: Convolution, ctx: CompileContext, *, is_copied: bool) -> GemmParams:
    """What is good where the image is copied, or not."""
    dtype = arithmetic_dtype(conv.image.type.dtype)
    is_on_the_way = _may_pack_on_the_way(conv, is_copied) and is_packed_on_the_way(conv.windows.rows)
    extents = _product_extents(conv, is_copied=is_copied, is_on_the_way=is_on_the_way)
    operands = _operands(conv, is_copied=is_copied)
    params = choose_params(cpu_target(ctx), dtype, extents, operands, is_packed_on_the_way=is_on_the_way)
    return replace(params, copies_image=is_copied)


def _seconds(
    conv: Convolution, params: GemmParams, constants: DeviceConstants, threads: int, ctx: CompileContext
) -> float:
    shape = tile_shape(cpu_target(ctx), arithmetic_dtype(conv.image.type.dtype), params.tile)
    operands = _operands(conv, is_copied=params.copies_image)
    return gemm_seconds(_extents(conv, params), operands, shape, params, constants, threads)


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


def _can_merge(conv: Convolution) -> bool:
    """Whether the taps of a row of the kernel are one run of a dense image."""
    last = conv.windows.axes[-1]
    return conv.groups == 1 and last.dilation == 1 and last.taps > 1 and not conv.windows.is_transposed


def _has_room(conv: Convolution, *, is_copied: bool) -> bool:
    """Whether a table has room for the taps of one tile. is_copied: whether the image is."""
    return _product_taps(conv, is_copied=is_copied) * TILE_ROWS <= TABLE_ENTRIES


def _must_be_copied(conv: Convolution, dtype: DType) -> bool:
    """Whether pixels cannot be multiplied in `dtype` where they are."""
    has_runs = conv.image.type.element_strides[1] == 1 or conv.image.type.shape[1] == 1
    return conv.image.operand.dtype is not dtype or not has_runs or not _has_room(conv, is_copied=False)


def _is_copied(conv: Convolution, dtype: DType) -> bool:
    """Whether the image is better copied before it is multiplied in `dtype`."""
    is_short = _can_merge(conv) and isinstance(conv.channels, int) and conv.channels < _SHORT_RUN
    return _must_be_copied(conv, dtype) or is_short


def _extents(conv: Convolution, params: GemmParams) -> Extents:
    return _product_extents(conv, is_copied=params.copies_image, is_on_the_way=params.is_packed_on_the_way)


def _product_extents(conv: Convolution, *, is_copied: bool, is_on_the_way: bool) -> Extents:
    """is_copied: whether the image is. is_on_the_way: whether each work item packs its filters."""
    taps = _product_taps(conv, is_copied=is_copied)
    run = conv.channels * (conv.windows.taps // taps)
    most_rows, order = min(BUFFER_ROWS, TABLE_ENTRIES // taps), None
    if is_on_the_way:
        order = _filter_strides(conv).order
    return Extents(conv.groups, conv.windows.rows, conv.filters, taps, run, most_rows, order)


def _product_taps(conv: Convolution, *, is_copied: bool) -> int:
    """Taps as the product has them: rows of the kernel where these are runs."""
    merged = conv.windows.axes[-1].taps if is_copied and _can_merge(conv) else 1
    return conv.windows.taps // merged


def _operands(conv: Convolution, *, is_copied: bool) -> Operands:
    """is_copied: whether the image is."""
    order = None if conv.is_packed else _filter_strides(conv).order
    copied = element_count(conv.image.type.shape) if is_copied else 0
    return Operands(conv.weight.operand.dtype, order, copied)


def _may_pack_on_the_way(conv: Convolution, is_copied: bool) -> bool:
    """Whether filters are not packed, and lie so that a work item can pack them. is_copied: whether the image is."""
    is_merged = is_copied and _can_merge(conv)
    return not conv.is_packed and not is_merged and can_be_packed_on_the_way(conv.windows.taps)


def _image(
    builder: ProgramBuilder, conv: Convolution, shape: TileShape, *, is_copied: bool
) -> tuple[Var, Windows, Dim]:
    """Where pixels are read, how windows lie on them, and the length of a run."""
    pointer = builder.pointers[conv.image.operand]
    channel_stride = conv.image.type.element_strides[1]
    is_transposed = conv.windows.is_transposed
    if not is_copied:
        return pointer, conv.windows, conv.channels
    channels = conv.image.type.shape[1]
    # The padding of a transpose is cut off its result; the image itself has none.
    copied = without_padding(conv.windows) if is_transposed else conv.windows
    copy = builder.scratch("padded", shape.dtype, padded_elements(copied, channels))
    windows = launch_pad_images(builder, pointer, copy, copied, (channels, channel_stride), shape.lanes)
    if is_transposed:
        return copy, with_padding_of(windows, conv.windows), conv.channels
    if _can_merge(conv):
        return copy, *merge_last_taps(windows, conv.channels)
    return copy, windows, conv.channels


@dataclass(frozen=True, slots=True)
class _FilterStrides:
    """Of filters that are not packed. taps: (extent, stride) of each axis of taps."""

    column: Dim
    step: Dim
    group: Dim
    taps: tuple[Axis, ...]

    @property
    def order(self) -> Order:
        """What lies next to each other."""
        return order_of(self.column, self.taps, self.step)


def _filter_strides(conv: Convolution) -> _FilterStrides:
    strides = conv.weight.type.element_strides
    taps = tuple(zip([axis.taps for axis in conv.windows.axes], strides[2:], strict=True))
    if conv.windows.is_transposed:
        return _FilterStrides(strides[1], strides[0], strides[0] * conv.channels, taps)
    return _FilterStrides(strides[0], strides[1], strides[0] * conv.filters, taps)


def _filters(
    builder: ProgramBuilder, conv: Convolution, shape: TileShape, windows: Windows, run: Dim, *, is_on_the_way: bool
) -> Columns:
    pointer = builder.pointers[conv.weight.operand]
    panels = dims.ceildiv(conv.filters, shape.lanes) * shape.lanes

    def panel_offset(scope: KernelScope, group: Expr) -> Expr:
        if conv.groups == 1:
            return build.index(0)
        return group * parameter(scope, panels * windows.taps * run, "group_panels")

    if conv.is_packed:
        return PackedColumns(pointer, panel_offset)
    strides = _filter_strides(conv)
    if is_on_the_way:

        def offset(scope: KernelScope, group: Expr) -> Expr:
            return build.index(0) if conv.groups == 1 else group * scope.size(strides.group, "group_stride")

        return StridedColumns(pointer, offset, strides.column, strides.taps, strides.step)
    elements = panels * conv.groups * conv.channels * conv.windows.taps
    packed = builder.scratch("packed", shape.dtype, elements)
    groups, filters, depth = (
        (conv.groups, strides.group),
        (conv.filters, strides.column),
        (conv.channels, strides.step),
    )
    launch_pack_panels(builder, pointer, packed, [groups], filters, strides.taps, depth, shape.lanes)
    return PackedColumns(packed, panel_offset)
