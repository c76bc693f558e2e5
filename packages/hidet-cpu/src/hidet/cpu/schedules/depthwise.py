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

from contextlib import ExitStack
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.cpu.schedules.conv import conv_windows, fixed
from hidet.cpu.schedules.conv_window import SpatialAxis, Windows, result_positions
from hidet.cpu.schedules.cost_depthwise import DepthwiseExtents, depthwise_seconds
from hidet.cpu.schedules.cost_gemm import known
from hidet.cpu.schedules.depthwise_tile import choose_tile, tile_functions
from hidet.cpu.schedules.gemm import inside_pointer
from hidet.cpu.schedules.gemm_epilogue import Epilogue, FinishedTile, TilePlace
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_tile import RegisterTile, TileShape, register_tile, tile_knob, tile_shape
from hidet.cpu.schedules.pack import launch_copy_rows
from hidet.cpu.schedules.pad_images import launch_pad_images, padded_elements
from hidet.cpu.target import cpu_target
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.stmt import Stmt
from hidet.ir.types import BufferType
from hidet.operators.rules import arithmetic_dtype
from hidet.schedule.cost import extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.lowering import KernelScope
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task, TaskTensor
from hidet.target.constants import DeviceConstants

# Multiply-adds of one work item: some 30 us.
_ITEM_MULTIPLY_ADDS = 1_000_000
# Blocks of rows that an image is cut into at least. Threads take neighbouring work items: each reads rows then that it
# wrote in the product before, which cuts pixels as well, instead of fetching them from another core's cache.
_ROW_BLOCKS = 8
_ITEM_ROWS = (1, 2, 4, 8, 16, 32)
_CLEARLY = 1.06
"""How much faster an unusual tile has to be: every further kernel is more code to compile."""


@dataclass(frozen=True, slots=True, eq=False)
class Depthwise:
    """A depthwise convolution over two spatial axes as its parts."""

    image: TaskTensor
    weight: TaskTensor
    windows: Windows
    channels: Dim
    is_packed: bool


@dataclass(frozen=True, slots=True)
class DepthwiseParams:
    """A tile of pixels x vectors of channels, and rows of results of a work item."""

    tile: RegisterTile
    rows: int


class DepthwiseRule(ScheduleRule[Depthwise, DepthwiseParams]):
    """Schedules convolutions over one or two axes with as many groups as input and output channels."""

    def match(self, task: Task, ctx: CompileContext) -> Match[Depthwise] | None:
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

    def space(self, match: Match[Depthwise], ctx: CompileContext) -> Space[DepthwiseParams]:
        """Tiles of sums in registers, and rows of work items."""
        height, default = match.data.windows.axes[0].result, self.default(match, ctx)
        most = dims.hint_value(height) or default.rows
        rows = sorted({default.rows, *(count for count in _ITEM_ROWS if count <= most)})
        return Space(
            (tile_knob(cpu_target(ctx)), Knob("rows", tuple(rows), "rows of results of a work item")), DepthwiseParams
        )

    def default(self, match: Match[Depthwise], ctx: CompileContext) -> DepthwiseParams:
        """Some 30 us a work item, and the usual tile, or the one that the cost model expects to be clearly faster where
        channels do not fill the usual one, as those of most layers, which share kernels."""
        target, conv = cpu_target(ctx), match.data
        constants, usual = target.published_constants(), register_tile(target)
        height, shape = conv.windows.axes[0].result, _shape(conv, usual, ctx)
        chosen = DepthwiseParams(usual, item_rows(height, _row_work(conv, shape)))
        if dims.divisibility(conv.channels) % shape.columns == 0:
            return chosen
        least = _seconds(conv, chosen, constants, 1, ctx) / _CLEARLY
        for tile in tile_knob(target).values:
            params = DepthwiseParams(tile, item_rows(height, _row_work(conv, _shape(conv, tile, ctx))))
            expected = _seconds(conv, params, constants, 1, ctx)
            if expected < least:
                chosen, least = params, expected
        return chosen

    def predict(self, match: Match[Depthwise], params: DepthwiseParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_depthwise`."""
        constants = known_constants(ctx)
        assert constants is not None
        return _seconds(match.data, params, constants, ctx.options.threads or constants.cores, ctx)

    def build(self, match: Match[Depthwise], params: DepthwiseParams, ctx: CompileContext) -> Program:
        """Copies where needed, then one kernel."""
        conv = match.data
        shape = _shape(conv, params.tile, ctx)
        builder = ProgramBuilder(match.task)
        source, windows = _image(builder, conv, shape)
        weights = _weights(builder, conv, shape)
        _launch(builder, match.task, conv, shape, source, weights, windows, params.rows)
        return builder.program()


def _shape(conv: Depthwise, tile: RegisterTile, ctx: CompileContext) -> TileShape:
    return tile_shape(cpu_target(ctx), arithmetic_dtype(conv.image.type.dtype), tile)


def _seconds(
    conv: Depthwise, params: DepthwiseParams, constants: DeviceConstants, threads: int, ctx: CompileContext
) -> float:
    height, width = conv.windows.axes
    first, last = _interior(width)
    image, rows, pixels = (known(dim) for dim in (conv.windows.batch[0], height.result, width.result))
    channels = known(conv.channels)
    moved = channels * image * (known(height.image) * known(width.image) + rows * pixels)
    extents = DepthwiseExtents(
        images=image,
        rows=rows,
        pixels=pixels,
        inside=min(pixels, max(0, extent_estimate(last - first))),
        taps=(known(height.taps), known(width.taps)),
        channels=channels,
        nbytes=moved * conv.image.type.dtype.nbytes,
    )
    return depthwise_seconds(extents, _shape(conv, params.tile, ctx), params.rows, constants, threads)


def _image(builder: ProgramBuilder, conv: Depthwise, shape: TileShape) -> tuple[Var, Windows]:
    """Where pixels are read with their channels next to each other."""
    pointer = builder.pointers[conv.image.operand]
    channel_stride = conv.image.type.element_strides[1]
    if pointer.dtype is shape.dtype and (channel_stride == 1 or conv.channels == 1):
        return pointer, conv.windows
    copy = builder.scratch("padded", shape.dtype, padded_elements(conv.windows, conv.channels))
    channels = conv.channels, channel_stride
    return copy, launch_pad_images(builder, pointer, copy, conv.windows, channels, shape.lanes)


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
    rows: int,
) -> None:
    scope = KernelScope()
    pointers: dict[Operand, Var] = {}
    for operand in builder.pointers:
        pointers[operand] = scope.pointer(operand.name, operand.dtype)
    image, filters = inside_pointer(source), inside_pointer(weights)
    scope.pointers += [image, filters]
    height = windows.axes[0]
    groups = dims.ceildiv(dims.floordiv(conv.channels, shape.lanes), shape.vectors)
    if _is_ragged(conv, shape):
        groups = groups + 1
    blocks = dims.ceildiv(height.result, rows)
    grid_vars = (build.size_var("image"), build.size_var("row_block"), build.size_var("group"))
    item = _Item(task, conv, shape, windows, scope, pointers, (image, filters), rows)
    body = item.body(*grid_vars)
    function = Function("depthwise", scope.params, body, kind="kernel", grid_vars=grid_vars, attributes=(COMPACT,))
    builder.add(tuple(item.functions.values()))
    outer = (*builder.pointers.values(), source, weights)
    nanoseconds = max(1, rows * _row_work(conv, shape) // 30)
    builder.launch(function, outer, scope, (windows.batch[0], blocks, groups), nanoseconds)


def _row_work(conv: Depthwise, shape: TileShape) -> int:
    """Multiply-adds of a row of results."""
    width = conv.windows.axes[1].result
    return dims.hint_value(width * shape.columns * conv.windows.taps) or _ITEM_MULTIPLY_ADDS


def item_rows(height: Dim, row_work: int) -> int:
    """Rows of a work item, of images with `height` rows of the result that take `row_work` multiply-adds each."""
    by_work = max(1, _ITEM_MULTIPLY_ADDS // max(1, row_work))
    known = dims.hint_value(height)
    return by_work if known is None else max(1, min(by_work, known // _ROW_BLOCKS))


def _is_ragged(conv: Depthwise, shape: TileShape) -> bool:
    return dims.divisibility(conv.channels) % shape.lanes != 0


class _Taps:
    """The taps of one axis that lie on the image for one window: `count` from `first`. `origin` is where tap 0 lies."""

    def __init__(self, prefix: str, axis: SpatialAxis, scope: KernelScope) -> None:
        self.first, self.count = build.size_var(f"first_{prefix}tap"), build.size_var(f"{prefix}tap_count")
        self.origin = build.size_var(f"{prefix}origin")
        self.taps = parameter(scope, axis.taps, f"{prefix}taps")
        self.dilation = parameter(scope, axis.dilation, f"{prefix}dilation")
        self.step = parameter(scope, axis.stride, f"{prefix}step")
        self.pad = parameter(scope, axis.pads[0], f"{prefix}pad")
        self.extent = parameter(scope, axis.image, f"{prefix}extent")

    @property
    def variables(self) -> tuple[Var, Var, Var]:
        """The locals to declare."""
        return self.first, self.count, self.origin

    def at_window(self, k: IRBuilder, window: Expr) -> None:
        """Set the origin to that of a window."""
        k.assign(self.origin, window * self.step - self.pad)

    def all(self, k: IRBuilder) -> None:
        """For a window that lies on the image: every tap."""
        k.assign(self.first, build.index(0))
        k.assign(self.count, self.taps)

    def on_image(self, k: IRBuilder) -> None:
        """For any window: the taps that lie on the image."""
        spread = self.dilation - 1
        skipped = build.binary("truncdiv", build.maximum(-self.origin, 0) + spread, self.dilation)
        reach = build.binary("truncdiv", build.maximum(self.extent - self.origin, 0) + spread, self.dilation)
        k.assign(self.first, skipped)
        k.assign(self.count, build.minimum(self.taps, reach) - skipped)


class _Item:
    """One work item of the kernel: some rows of an image, for one group of channels.

    for row, its taps that lie on the image
      for tile of pixels of equal taps
        tile[pixel, channel] = sum over taps, by a tile function
        result = epilogue(tile)
    """

    def __init__(
        self,
        task: Task,
        conv: Depthwise,
        shape: TileShape,
        windows: Windows,
        scope: KernelScope,
        pointers: dict[Operand, Var],
        sources: tuple[Var, Var],
        rows: int,
    ) -> None:
        self.shape, self.windows, self.scope, self.rows = shape, windows, scope, rows
        self.image, self.filters = sources
        self.is_ragged = _is_ragged(conv, shape)
        self.functions = tile_functions(shape, conv.channels, self.is_ragged)
        self.place = TilePlace(result_positions(conv.image.type.rank), 1, build.index(0), {})
        self.epilogue_parts = (task, scope, pointers)
        height, width = windows.axes
        self.channels = parameter(scope, conv.channels, "channels")
        self.pixel_stride = parameter(scope, width.image_stride, "pixel_stride")
        self.row_stride = parameter(scope, height.image_stride, "row_stride")
        self.result_rows = parameter(scope, height.result, "rows")
        self.result_width = parameter(scope, width.result, "width")
        self.down = _Taps("row_", height, scope)
        self.across = _Taps("", width, scope)
        self.buffer = Var("tile", BufferType(shape.dtype, (build.index(shape.rows * shape.columns),), space="local"))
        self.row, self.pixel, self.count = (build.size_var(name) for name in ("row", "pixel", "count"))
        self.first_channel, self.vectors = build.size_var("first_channel"), build.size_var("vectors")
        self.line, self.left = Var("line", self.image.type), build.size_var("left")
        self.whole_vectors = build.binary("truncdiv", self.channels, build.index(shape.lanes))

    def body(self, number: Var, row_block: Var, group: Var) -> Stmt:
        """The code of the item at these grid indices."""
        k, shape, index = IRBuilder(), self.shape, build.index
        block = parameter(self.scope, self.rows, "block")
        whole_groups = build.binary("truncdiv", self.whole_vectors + (shape.vectors - 1), index(shape.vectors))
        first_vector = build.minimum(group * shape.vectors, self.whole_vectors)
        # After the groups of whole vectors there is one of what remains, which may be nothing.
        group_vectors = build.select(
            group < whole_groups, build.minimum(index(shape.vectors), self.whole_vectors - first_vector), index(0)
        )
        k.declare(self.buffer)
        for variable in (*self.across.variables, *self.down.variables, self.pixel, self.count, self.left):
            k.declare(variable, index(0))
        k.declare(self.first_channel, first_vector * shape.lanes)
        k.declare(self.vectors, group_vectors)
        rows_here = build.minimum(block, self.result_rows - row_block * block)
        with ExitStack() as around:
            if self.is_ragged:
                around.enter_context(k.if_(self.first_channel < self.channels))
            around.enter_context(k.loop(self.row, rows_here, row_block * block))
            self._one_row(k, number)
        return k.body

    def _one_row(self, k: IRBuilder, number: Var) -> None:
        down = self.down
        batch_offset = number * parameter(self.scope, self.windows.batch[1], "batch_stride")
        start = (down.origin + down.first * down.dilation) * self.row_stride
        down.at_window(k, self.row)
        down.on_image(k)
        k.declare(self.line, self.image + batch_offset + start)
        k.assign(self.pixel, build.index(0))
        with k.while_(self.pixel < self.result_width):
            self._one_tile(k, number)

    def _one_tile(self, k: IRBuilder, number: Var) -> None:
        """The longest run of pixels, from `pixel` on, that have the same taps."""
        across, index = self.across, build.index
        low, high = _interior(self.windows.axes[1])
        first_inside = parameter(self.scope, low, "first_inside")
        last_inside = parameter(self.scope, high, "last_inside")
        across.at_window(k, self.pixel)
        with k.if_(build.logical_and(self.pixel >= first_inside, self.pixel < last_inside)):
            across.all(k)
            k.assign(self.left, last_inside - self.pixel)
        with k.else_():
            across.on_image(k)
            k.assign(self.left, index(1))
        counts = sorted({many for _, many in self.functions})

        def multiply(pixels: int, many: int) -> None:
            self._multiply(k, pixels, many)

        choose_tile(k, self.shape, self.left, self.vectors, counts, multiply)
        finished = FinishedTile(
            first_row=(number * self.result_rows + self.row) * self.result_width + self.pixel,
            rows=self.count,
            first_column=self.first_channel,
            columns=build.select(
                build.equal(self.vectors, 0), self.channels - self.first_channel, self.vectors * self.shape.lanes
            ),
            is_ragged=self.is_ragged,
            buffer=self.buffer,
            buffer_start=index(0),
        )
        Epilogue(*self.epilogue_parts, self.place, self.shape).store(k, finished)
        k.assign(self.pixel, self.pixel + self.count)

    def _multiply(self, k: IRBuilder, pixels: int, many: int) -> None:
        """Sum a tile of so many pixels and vectors."""
        across, down, channels = self.across, self.down, self.channels
        start = across.origin + across.first * across.dilation
        arguments = (
            self.line + start * self.pixel_stride + self.first_channel,
            across.step * self.pixel_stride,
            down.count,
            down.dilation * self.row_stride,
            across.count,
            across.dilation * self.pixel_stride,
            self.filters + (down.first * across.taps + across.first) * channels + self.first_channel,
            across.taps * channels,
            channels,
            build.address(self.buffer, 0),
            channels - self.whole_vectors * self.shape.lanes,
        )
        k.run(build.call(self.functions[pixels, many].name, *arguments, type=build.INDEX))
        k.assign(self.count, build.index(pixels))


def _interior(axis: SpatialAxis) -> tuple[Dim, Dim]:
    """The range of result positions whose windows lie on the image, within the result."""
    before = dims.minimum(dims.ceildiv(axis.pads[0], axis.stride), axis.result)
    room = axis.image - (axis.taps - 1) * axis.dilation - 1 + axis.pads[0]
    after = dims.minimum(dims.maximum(dims.floordiv(room, axis.stride) + 1, before), axis.result)
    return before, after
