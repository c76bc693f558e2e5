"""Depthwise convolutions: one filter a channel, vectors along channels.

    for every block of channels and of result rows           a work item
      for every group of vectors
        for every result row, for 6, 3 or 1 pixels of it     accumulators in registers
          for the taps that lie on the image: acc[i][j] += pixel[i][j] * weight[j]
          finish and store                                   `gemm_epilogue`

Taps beyond the image are left out of the loops instead of reading zeros. Pixels whose whole window lies on the image go
together, the few at either end of a row one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.conv import conv_windows, fixed
from hidet.cpu.schedules.conv_window import SpatialAxis, Windows, launch_pad_images, padded_elements, result_positions
from hidet.cpu.schedules.gemm import inside_pointer
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile, TilePlace
from hidet.cpu.schedules.gemm_lanes import leading_lanes
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_tile import EDGE_ROWS, TileShape, multiply_add, tile_shape
from hidet.cpu.schedules.pack import launch_copy_rows
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import SHARED, Function
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Return, Stmt, Store, While
from hidet.ir.types import BufferType, PointerType
from hidet.ops.rules import arithmetic_dtype
from hidet.schedule.lowering import KernelScope
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task, TaskTensor

if TYPE_CHECKING:
    from hidet.cpu.target import CpuTarget

# Multiply-adds of one work item: some 30 us.
_ITEM_MULTIPLY_ADDS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Depthwise:
    """A depthwise convolution over two spatial axes as its parts."""

    image: TaskTensor
    weight: TaskTensor
    windows: Windows
    channels: Dim
    is_packed: bool


class DepthwiseRule:
    """Schedules convolutions over one or two axes with as many groups as input and output channels."""

    def match(self, task: Task, target: CpuTarget) -> Match | None:
        """One filter a channel; other convolutions are for the matrix product."""
        image, weight = task.anchor_inputs[:2]
        if image is None or weight is None or any(prologue is not None for prologue in task.prologues):
            return None
        assert task.anchor is not None
        attrs, result = task.anchor.attrs, task.anchor.outputs[0].tensor
        is_packed = task.op_name == "cpu.depthwise_packed"
        channels = result.shape[1]
        if not is_packed and not (attrs["groups"] == channels == image.type.shape[1]):
            return None
        kernel = weight.type.shape[:-1] if is_packed else weight.type.shape[2:]
        if not 1 <= len(kernel) <= 2:
            return None
        windows = conv_windows(image.type, result, [fixed(taps, "the kernel") for taps in kernel], attrs)
        if len(kernel) == 1:
            windows = Windows(windows.batch, (SpatialAxis(1, 1, 1, 1, 1, (0, 0), 0), *windows.axes))
        return Match(task, Depthwise(image, weight, windows, channels, is_packed))

    def space(self, match: Match, target: CpuTarget) -> SearchSpace:
        """Nothing to tune yet."""
        return SearchSpace()

    def default(self, match: Match, target: CpuTarget) -> Params:
        """No parameters."""
        return {}

    def build(self, match: Match, params: Params, target: CpuTarget) -> Program:
        """Copies where needed, then one kernel."""
        conv: Depthwise = match.data
        shape = tile_shape(target, arithmetic_dtype(conv.image.type.dtype))
        builder = ProgramBuilder(match.task)
        source, windows = _image(builder, conv, shape)
        weights = _weights(builder, conv, shape)
        _launch(builder, match.task, conv, shape, source, weights, windows)
        return builder.program()


def _image(builder: ProgramBuilder, conv: Depthwise, shape: TileShape) -> tuple[Var, Windows]:
    """Where pixels are read with their channels next to each other."""
    pointer = builder.pointers[conv.image.operand]
    channel_stride = conv.image.type.element_strides[1]
    if pointer.dtype is shape.dtype and (channel_stride == 1 or conv.channels == 1):
        return pointer, conv.windows
    copy = builder.scratch("padded", shape.dtype, padded_elements(conv.windows, conv.channels))
    return copy, launch_pad_images(builder, pointer, copy, conv.windows, (conv.channels, channel_stride))


def _weights(builder: ProgramBuilder, conv: Depthwise, shape: TileShape) -> Var:
    """Weights as [*taps, channel]."""
    pointer = builder.pointers[conv.weight.operand]
    if conv.is_packed:
        return pointer
    copy = builder.scratch("weights", shape.dtype, conv.channels * conv.windows.taps)
    extents, strides = conv.weight.type.shape, conv.weight.type.element_strides
    taps = list(zip(extents[2:], strides[2:], strict=True))
    launch_copy_rows(builder, pointer, copy, taps, (conv.channels, strides[0]))
    return copy


def _launch(
    builder: ProgramBuilder,
    task: Task,
    conv: Depthwise,
    shape: TileShape,
    source: Var,
    weights: Var,
    windows: Windows,
) -> None:
    scope = KernelScope()
    pointers: dict[Operand, Var] = {}
    for operand in builder.pointers:
        pointers[operand] = scope.pointer(operand.name, operand.dtype)
    image, filters = inside_pointer(source), inside_pointer(weights)
    scope.pointers += [image, filters]
    height, width = windows.axes
    groups = dims.ceildiv(dims.floordiv(conv.channels, shape.lanes), shape.vectors)
    if _is_ragged(conv, shape):
        groups = groups + 1
    row_work = dims.hint_value(width.result * shape.columns * windows.taps) or _ITEM_MULTIPLY_ADDS
    rows = max(1, _ITEM_MULTIPLY_ADDS // max(1, row_work))
    blocks = dims.ceildiv(height.result, rows)
    grid_vars = (build.size_var("image"), build.size_var("row_block"), build.size_var("group"))
    body, functions = _item(task, conv, shape, windows, scope, pointers, image, filters, rows, grid_vars)
    function = Function("depthwise", scope.params, body, kind="kernel", grid_vars=grid_vars)
    builder.add(functions)
    outer = (*builder.pointers.values(), source, weights)
    nanoseconds = max(1, rows * row_work // 30)
    builder.launch(function, outer, scope, (windows.batch[0], blocks, groups), nanoseconds)


def _is_ragged(conv: Depthwise, shape: TileShape) -> bool:
    return dims.divisibility(conv.channels) % shape.lanes != 0


@dataclass(frozen=True, slots=True, eq=False)
class _Taps:
    """The taps of one axis that lie on the image for one window: `count` from `first`."""

    first: Var
    count: Var

    def found(self, origin: Expr, taps: Expr, dilation: Expr, extent: Expr) -> list[Stmt]:
        """Set both for a window whose tap 0 lies at `origin`."""
        spread = dilation - 1
        skipped = build.binary("truncdiv", build.maximum(-origin, 0) + spread, dilation)
        reach = build.binary("truncdiv", build.maximum(extent - origin, 0) + spread, dilation)
        return [Assign(self.first, skipped), Assign(self.count, build.minimum(taps, reach) - skipped)]


def _item(
    task: Task,
    conv: Depthwise,
    shape: TileShape,
    windows: Windows,
    scope: KernelScope,
    pointers: dict[Operand, Var],
    image: Var,
    filters: Var,
    rows: int,
    grid_vars: tuple[Var, Var, Var],
) -> tuple[Stmt, Sequence[Function]]:
    number, row_block, group = grid_vars
    index = build.index
    height, width = windows.axes
    channels = parameter(scope, conv.channels, "channels")
    pixel_stride = parameter(scope, width.image_stride, "pixel_stride")
    row_stride = parameter(scope, height.image_stride, "row_stride")
    result_rows, result_width = parameter(scope, height.result, "rows"), parameter(scope, width.result, "width")
    block = parameter(scope, rows, "block")
    low, high = _interior(width)
    first_inside, last_inside = parameter(scope, low, "first_inside"), parameter(scope, high, "last_inside")
    row_taps, row_spread = parameter(scope, height.taps, "row_taps"), parameter(scope, height.dilation, "row_dilation")
    taps, spread = parameter(scope, width.taps, "taps"), parameter(scope, width.dilation, "dilation")
    step = parameter(scope, width.stride, "step")
    image_rows, image_width = parameter(scope, height.image, "image_rows"), parameter(scope, width.image, "image_width")
    is_ragged = _is_ragged(conv, shape)
    functions = _tile_functions(shape, conv, is_ragged)

    buffer = Var("tile", BufferType(shape.dtype, (index(shape.rows * shape.columns),), space="local"))
    row, pixel, count = build.size_var("row"), build.size_var("pixel"), build.size_var("count")
    first_channel, vectors = build.size_var("first_channel"), build.size_var("vectors")
    across = _Taps(build.size_var("first_tap"), build.size_var("tap_count"))
    down = _Taps(build.size_var("first_row_tap"), build.size_var("row_tap_count"))
    line, origin = Var("line", image.type), build.size_var("origin")
    whole_vectors = build.binary("truncdiv", channels, index(shape.lanes))

    start = origin + across.first * spread
    arguments = (
        line + start * pixel_stride + first_channel,
        step * pixel_stride,
        down.count,
        row_spread * row_stride,
        across.count,
        spread * pixel_stride,
        filters + (down.first * taps + across.first) * channels + first_channel,
        taps * channels,
        channels,
        build.address(buffer, 0),
        channels - whole_vectors * shape.lanes,
    )

    def multiply(pixels: int, many: int) -> Stmt:
        name = functions[pixels, many].name
        return build.seq([Evaluate(build.call(name, *arguments, type=build.INDEX)), Assign(count, index(pixels))])

    finished = FinishedTile(
        first_row=(number * result_rows + row) * result_width + pixel,
        rows=count,
        first_column=first_channel,
        columns=build.select(build.equal(vectors, 0), channels - first_channel, vectors * shape.lanes),
        is_ragged=is_ragged,
        buffer=buffer,
        buffer_start=index(0),
    )
    rank = conv.image.type.rank
    epilogue = Epilogue(task, scope, pointers, TilePlace(result_positions(rank), 1, index(0), {}), shape)
    left = build.size_var("left")
    is_inside = build.logical_and(pixel >= first_inside, pixel < last_inside)
    find_taps = If(
        is_inside,
        build.seq([Assign(across.first, index(0)), Assign(across.count, taps), Assign(left, last_inside - pixel)]),
        build.seq([*across.found(origin, taps, spread, image_width), Assign(left, index(1))]),
    )
    tile = build.seq(
        [
            Assign(origin, pixel * step - parameter(scope, width.pads[0], "pad")),
            find_taps,
            _choose(shape, left, vectors, sorted({many for _, many in functions}), multiply),
            epilogue.store(finished),
            Assign(pixel, pixel + count),
        ]
    )
    row_origin = build.size_var("row_origin")
    batch_offset = number * parameter(scope, windows.batch[1], "batch_stride")
    one_row = [
        Declare(
            row_origin, row * parameter(scope, height.stride, "row_step") - parameter(scope, height.pads[0], "row_pad")
        ),
        *down.found(row_origin, row_taps, row_spread, image_rows),
        Declare(line, image + batch_offset + (row_origin + down.first * row_spread) * row_stride),
        Assign(pixel, index(0)),
        While(pixel < result_width, tile),
    ]
    locals_ = [across.first, across.count, down.first, down.count, origin, pixel, count, left]
    whole_groups = build.binary("truncdiv", whole_vectors + (shape.vectors - 1), index(shape.vectors))
    first_vector = build.minimum(group * shape.vectors, whole_vectors)
    # After the groups of whole vectors there is one of what remains, which may be nothing.
    group_vectors = build.select(
        group < whole_groups, build.minimum(index(shape.vectors), whole_vectors - first_vector), index(0)
    )
    rows_here = build.minimum(block, result_rows - row_block * block)
    body: Stmt = For(row, row_block * block, rows_here, build.seq(one_row))
    setup: list[Stmt] = [
        Declare(buffer),
        *(Declare(variable, index(0)) for variable in locals_),
        Declare(first_channel, first_vector * shape.lanes),
        Declare(vectors, group_vectors),
    ]
    if is_ragged:
        body = If(first_channel < channels, body)
    return build.seq([*setup, body]), tuple(functions.values())


def _interior(axis: SpatialAxis) -> tuple[Dim, Dim]:
    """The range of result positions whose windows lie on the image, within the result."""
    before = dims.minimum(dims.ceildiv(axis.pads[0], axis.stride), axis.result)
    room = axis.image - (axis.taps - 1) * axis.dilation - 1 + axis.pads[0]
    after = dims.minimum(dims.maximum(dims.floordiv(room, axis.stride) + 1, before), axis.result)
    return before, after


def _choose(shape: TileShape, left: Expr, vectors: Expr, counts: Sequence[int], body: object) -> Stmt:
    """The largest tile of at most `left` pixels, with exactly `vectors` vectors (0: the rest after whole ones)."""
    assert callable(body)

    def by_pixels(many: int) -> Stmt:
        stmt: Stmt = body(EDGE_ROWS[-1], many)
        for pixels in (*reversed(EDGE_ROWS[:-1]), shape.rows):
            stmt = If(left >= pixels, body(pixels, many), stmt)
        return stmt

    stmt = by_pixels(counts[-1])
    for many in counts[:-1]:
        stmt = If(build.equal(vectors, many), by_pixels(many), stmt)
    return stmt


def _tile_functions(shape: TileShape, conv: Depthwise, is_ragged: bool) -> dict[tuple[int, int], Function]:
    counts = (shape.vectors,) if dims.divisibility(conv.channels) % shape.columns == 0 else range(1, shape.vectors + 1)
    listed = (*counts, 0) if is_ragged else tuple(counts)
    return {
        (pixels, many): _tile_function(shape, pixels, many) for pixels in (shape.rows, *EDGE_ROWS) for many in listed
    }


def _tile_function(shape: TileShape, pixels: int, vectors: int) -> Function:
    """Accumulators of `pixels` x `vectors`; with 0 vectors, of one vector of which only the first lanes exist."""
    index, pointer = build.INDEX, PointerType(shape.dtype)
    image, weight = Var("image", pointer), Var("weight", pointer)
    buffer = Var("buffer", PointerType(shape.dtype, "local"))
    names = ("pixel_stride", "rows", "row_stride", "taps", "tap_stride", "weight_row_stride", "weight_stride", "rest")
    pixel_stride, rows, row_stride, taps, tap_stride, weight_row, weight_tap, rest = (Var(n, index) for n in names)
    stmts: list[Stmt] = []
    mask: Expr | None = None
    if vectors == 0:
        declared, mask = leading_lanes(rest, shape.lanes)
        stmts += declared
    count = max(1, vectors)
    accumulators = [[Var(f"acc{i}_{j}", shape.vector) for j in range(count)] for i in range(pixels)]
    zero = build.broadcast(build.const(0, shape.dtype), shape.lanes)
    stmts += [Declare(acc, zero) for line in accumulators for acc in line]
    row, tap = Var("row", index), Var("tap", index)
    place, weight_place = Var("place", pointer), Var("weight_place", pointer)
    inner: list[Stmt] = [
        Declare(place, image + (row * row_stride + tap * tap_stride)),
        Declare(weight_place, weight + (row * weight_row + tap * weight_tap)),
    ]
    factors = [Var(f"w{j}", shape.vector) for j in range(count)]
    for j, factor in enumerate(factors):
        inner.append(Declare(factor, build.load(weight_place, j * shape.lanes, lanes=shape.lanes, mask=mask)))
    for i, line in enumerate(accumulators):
        for j, acc in enumerate(line):
            offset = pixel_stride * i + j * shape.lanes
            element = build.load(place, offset, lanes=shape.lanes, mask=mask)
            inner.append(Assign(acc, multiply_add(element, factors[j], acc)))
    zero_index = build.index(0)
    stmts.append(For(row, zero_index, rows, For(tap, zero_index, taps, build.seq(inner))))
    for i, line in enumerate(accumulators):
        stmts += [Store(buffer, (build.index(i * shape.columns + j * shape.lanes),), acc) for j, acc in enumerate(line)]
    parameters = (
        image, pixel_stride, rows, row_stride, taps, tap_stride, weight, weight_row, weight_tap, buffer, rest,
    )  # fmt: skip
    body = build.seq([*stmts, Return(zero_index)])
    return Function(
        f"tile_{pixels}x{vectors}",
        parameters,
        body,
        "device",
        result=index,
        attributes=(("inline", False), (SHARED, vectors)),
    )
