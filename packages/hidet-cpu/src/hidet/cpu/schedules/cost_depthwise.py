"""How long a depthwise convolution takes as chosen: a model in seconds, from sizes alone.

A tile of r pixels and v vectors of channels does a tap in as long as the slower of these takes:

    multiplying   r * v vectors at the rate of multiply-adds
    reading       r * v vectors of pixels and v of filters, each twice as long where channels are no whole vectors, so
                  that vectors lie across cache lines

and takes some cycles a call, for each row of taps, and for each sum that is finished and stored. Pixels whose windows
lie across an end of their row are tiles of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hidet.cpu.schedules.cost_items import shared_seconds
from hidet.cpu.schedules.gemm_tile import EDGE_ROWS, TileShape
from hidet.target.constants import DeviceConstants

# Cycles of a call of a tile's function, of a row of taps in it, and of each sum that it finishes.
_CALL, _TAP_ROW, _FINISHED = 23.0, 7.0, 6.0
# Cycles of a tap for each pixel of several vectors beyond those that general registers keep the addresses of.
_POINTERS, _SPILLED = 8, 1.0
# Cycles of a row of results of a channel group, besides its tiles, and of a work item besides its rows.
_ROW, _ITEM = 10.0, 100.0


@dataclass(frozen=True, slots=True)
class DepthwiseExtents:
    """Sizes of a depthwise convolution: images, rows and pixels of the result, of which `inside` pixels of a row have
    windows on the image, taps down and across, channels, and bytes of image and result."""

    images: int
    rows: int
    pixels: int
    inside: int
    taps: tuple[int, int]
    channels: int
    nbytes: int


def depthwise_seconds(
    extents: DepthwiseExtents, shape: TileShape, item_rows: int, constants: DeviceConstants, threads: int
) -> float:
    """Seconds of a convolution whose work items have `item_rows` rows of results of a group of channels."""
    whole, rest = divmod(extents.channels, shape.lanes)
    groups = [shape.vectors] * (whole // shape.vectors)
    groups += [vectors for vectors in (whole % shape.vectors, 1 if rest else 0) if vectors]
    cycles = sum(_ROW + _row_cycles(extents, shape, vectors, constants, is_split=rest > 0) for vectors in groups)
    items = extents.images * -(-extents.rows // item_rows) * len(groups)
    busy = (extents.images * extents.rows * cycles + items * _ITEM) * constants.cycle
    return shared_seconds(busy, extents.nbytes, items, constants, threads)


def _row_cycles(
    extents: DepthwiseExtents, shape: TileShape, vectors: int, constants: DeviceConstants, *, is_split: bool
) -> float:
    """Of a row of results of so many vectors of channels. is_split: whether vectors lie across cache lines."""
    down, across = extents.taps
    multiplied = shape.lanes / constants.fma["float32"] / constants.cycle
    read, total = 1.0 if is_split else 0.5, 0.0
    for pixels, count in _tiles(extents, shape):
        tap = max(pixels * vectors * multiplied, (pixels + 1) * vectors * read)
        tap += max(0, pixels - _POINTERS) * _SPILLED if vectors > 1 else 0.0
        total += count * (down * (across * tap + _TAP_ROW) + _CALL + pixels * vectors * _FINISHED)
    return total


def _tiles(extents: DepthwiseExtents, shape: TileShape) -> Iterator[tuple[int, int]]:
    """Pixels of tiles of a row, and how many of each."""
    left = extents.inside
    for pixels in (shape.rows, *EDGE_ROWS):
        yield pixels, left // pixels
        left %= pixels
    yield 1, extents.pixels - extents.inside
