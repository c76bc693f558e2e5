"""What a depthwise convolution asks for, and which part of it a thread computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.finish import finished_value
from hidet.gpu.schedules.lanes import BYTES
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.operands import window_axes
from hidet.gpu.schedules.product import WindowAxis
from hidet.graph.types import TensorType
from hidet.ir.expr import Expr, Var
from hidet.operators.rules import arithmetic_dtype
from hidet.schedule.cost import element_count
from hidet.schedule.task import Task, TaskTensor
from hidet.target import GpuTarget

_BUSY = 256
"""Threads of a multiprocessor below which smaller tiles keep more of the device busy."""
_SUM_BYTES = 8
"""Bytes of a pixel's sums: two channels of 32 bits. More of them leave registers for fewer threads."""
_PIXELS, _ROWS = 4, 4
"""The largest tile, across and down."""
_FILTER_WORDS = 64
"""Registers that the filter may take, of 255; a larger one is walked through row by row."""
_SECTOR = 32
"""Bytes that memory moves at once."""
_LINE = WindowAxis(1, 0, 1, 1, 1, 1, 0, 0)
"""The missing axis of images that are lines."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread computes of each channel."""

    pixels: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Depthwise:
    """A convolution with a filter a channel.

    value: an element of the result from `total`, the sum, over the result's axes: image, channel, and those of space.
    lanes: channels of a thread, which are neighbours in image and filter where there are several. pixels, rows: a
    thread's tile, across and down. run: results along the last axis that are written at once; 1 where channels are
    neighbours in the result. is_channel_fastest: whether threads that follow each other have neighbouring channels,
    else tiles that are neighbours across. patch: how many tiles, and groups of channels, are together in any case,
    channels counting fastest: where channels lie differently in image and result, both are moved in whole sectors so.
    tiles: those among which a call takes the largest that keeps the device busy, by falling size; one where sizes are
    known.
    """

    image: TaskTensor
    weight: TaskTensor
    output: TensorType
    window: tuple[WindowAxis, WindowAxis]
    total: Var
    value: Expr
    lanes: int
    pixels: int
    rows: int
    run: int
    is_channel_fastest: bool
    patch: tuple[int, int] | None
    tiles: tuple[Tile, ...]

    def with_tile(self, tile: Tile) -> Depthwise:
        """With another tile for a thread."""
        pixels, is_last = tile.pixels, self.output.element_strides[1] == 1
        if self.is_channel_fastest and not is_last:
            # Neighbouring threads write neighbours then, also where a thread's own results cannot be written at once.
            pixels = run_of(self.output, pixels)
        patch = None if self.is_channel_fastest == is_last else _patch(self.image.type, self.output, self.lanes, pixels)
        return replace(self, pixels=pixels, rows=tile.rows, run=run_of(self.output, pixels), patch=patch)

    @property
    def is_kept(self) -> bool:
        """Whether the filter is kept in registers, so that several rows of results can use it."""
        return _is_kept(self.window, self.lanes, self.total.dtype)


def _is_kept(window: tuple[WindowAxis, WindowAxis], lanes: int, total: DType) -> bool:
    return taps_of(window[0]) * taps_of(window[1]) * lanes * total.nbytes <= 4 * _FILTER_WORDS


def taps_of(axis: WindowAxis) -> int:
    """Taps of an axis, which are a number: `DepthwiseRule` takes no others."""
    assert isinstance(axis.taps, int)
    return axis.taps


def depthwise_of(task: Task, target: GpuTarget) -> Depthwise | None:
    """The depthwise convolution of a task; None for other groups and ranks, and for filters of symbolic sizes."""
    assert task.anchor is not None
    image, weight = task.anchor_inputs[:2]
    if image is None or weight is None or len(task.outputs) != 1 or task.anchor.attrs["groups"] == 1:
        return None
    output, epilogue, shape = task.outputs[0].type, task.epilogues[0], task.anchor.outputs[0].tensor.shape
    filters, width, *taps = weight.type.shape
    if width != 1 or dims.prove_equal(filters, image.type.shape[1]) is not True or not 1 <= len(taps) <= 2:
        return None
    total = Var("total", arithmetic_dtype(image.type.dtype))
    value = finished_value(task, epilogue, total)
    if value is None or len(epilogue.axes) != len(shape) or not all(isinstance(tap, int) for tap in taps):
        return None
    axes = window_axes(task.anchor.attrs, image.type, taps, shape)
    window = (_LINE, axes[0]) if len(axes) == 1 else (axes[0], axes[1])
    lasts = [type_.element_strides[1] == 1 for type_ in (image.type, output)]
    lanes = _lanes(image.type, weight.type, output, total.dtype) if lasts[0] else 1
    steps = _tiles(window, _ROWS if _is_kept(window, lanes, total.dtype) else 1)
    tile = _largest_busy(steps, element_count(shape) // lanes, least_threads(target))
    is_known = all(isinstance(extent, int) for extent in shape)
    # Tiles twice as large are about as fast where both keep the device busy.
    tiles = (tile,) if is_known else tuple(dict.fromkeys((*steps[:-1:2], steps[-1])))
    conv = Depthwise(image, weight, output, window, total, value, lanes, 1, 1, 1, lasts[0], None, tiles)
    return conv.with_tile(tile)


def least_threads(target: GpuTarget) -> int:
    """Threads below which smaller tiles keep more of a device busy."""
    return per_device(_BUSY, target)


def _lanes(image: TensorType, weight: TensorType, output: TensorType, total: DType) -> int:
    """Channels of a thread, which are neighbours in image and filter, and in the result or in none of its accesses."""
    if weight.element_strides[0] != 1:
        return 1
    moved = (image, weight, output) if output.element_strides[1] == 1 else (image, weight)
    strides = [stride for type_ in moved for stride in type_.element_strides if stride != 1]
    lanes, taps = max(1, _SUM_BYTES // total.nbytes), weight.shape[-1]
    assert isinstance(taps, int)
    while lanes > 1 and (
        taps * lanes * total.nbytes > 4 * _FILTER_WORDS
        or any(dims.divisibility(dim) % lanes for dim in (weight.shape[0], *strides))
    ):
        lanes //= 2
    return lanes


def run_of(output: TensorType, pixels: int) -> int:
    """Results of a tile that are neighbours across and are written at once."""
    strides = output.element_strides
    if strides[1] == 1 or strides[-1] != 1:
        return 1
    run = min(pixels, BYTES // output.dtype.nbytes)
    while run > 1 and any(dims.divisibility(dim) % run for dim in (output.shape[-1], *strides[:-1])):
        run //= 2
    return run


def _patch(image: TensorType, output: TensorType, lanes: int, pixels: int) -> tuple[int, int]:
    """Tiles across and groups of channels that threads of a warp have, so that both tensors are moved in sectors."""
    deep = max(1, _SECTOR // (image.dtype.nbytes * lanes))
    wide = max(1, _SECTOR // (output.dtype.nbytes * pixels))
    return min(2 * wide, _ceil_power(dims.ceildiv(output.shape[-1], pixels))), deep


def _tiles(window: tuple[WindowAxis, WindowAxis], most_rows: int) -> tuple[Tile, ...]:
    """Tiles of a thread by falling size, each half of the one before."""
    down, across = window
    # Windows that are steps apart share less, and tiles of more than there is are computed for nothing.
    pixels = min(max(1, _PIXELS // across.step), _ceil_power(across.results))
    rows = min(max(1, most_rows // down.step), _ceil_power(down.results))
    found = [Tile(pixels, rows)]
    while pixels * rows > 1:
        if rows >= pixels:
            rows //= 2
        else:
            pixels //= 2
        found.append(Tile(pixels, rows))
    return tuple(found)


def _largest_busy(tiles: Sequence[Tile], count: int, busy: int) -> Tile:
    """The largest of which there are `busy`, where there are `count` results; the smallest where none is so many."""
    return next((tile for tile in tiles if count // (tile.pixels * tile.rows) >= busy), tiles[-1])


def _ceil_power(extent: Dim) -> int:
    """The smallest power of two that is no less than an extent, or what a call may make it."""
    most = dims.bounds(extent)[1]
    return _PIXELS * _ROWS if most is None else 1 << (max(1, most) - 1).bit_length()
