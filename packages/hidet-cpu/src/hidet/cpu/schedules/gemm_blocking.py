"""How a matrix product is cut into work items and cache-sized chunks, by an analytic choice made from sizes alone or by
another one.

The numbers are run-time parameters of the kernel, so a poor choice costs time and never correctness, and products of
different sizes still share one kernel. Symbolic sizes count with their hints.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet import dims
from hidet.cpu.schedules.gemm_tile import TileShape
from hidet.cpu.schedules.pack import Order
from hidet.dims import Dim

# What a symbolic size without a hint is taken for.
_UNKNOWN_SIZE = 256
# Multiply-adds and bytes from beyond the second-level cache that a core of about 3 GHz does in a nanosecond.
_MULTIPLY_ADDS = {512: 90.0, 256: 45.0, 128: 22.0}
_BYTES = 12.0
# Part of the first-level cache that a piece of a panel may take; rows stream through the rest, and, where work items
# pack it, what it is packed from: then it takes more only for steps that are too few to hide how a chunk begins.
_L1_SHARE, _L1_SHARE_PACKED, _FEWEST_PACKED_STEPS = 2 / 3, 1 / 2, 80
# Bytes that one access to memory brings into the cache.
LINE_BYTES = 64
# Products that are summed in one accumulator before they are added to the rest, at most: the rounding error of a long
# sum then grows with the number of chunks.
_MOST_STEPS = 256
# A work item: long enough to hide its start, short enough to balance a few dozen of them over the threads.
_SHORTEST_NS, _LONGEST_NS = 20_000.0, 300_000.0
_ITEMS = 16
# Where work items pack columns: about how many there are to be, and tiles of rows that share a packed panel at least.
_STRIDED_ITEMS, _FEWEST_TILES = 6, 6
# Steps of a chunk that has all taps, for windows up to a size and for larger ones.
_TAP_STEPS, _SMALL_WINDOW, _FEW_TAP_STEPS = 16, 15, 4


@dataclass(frozen=True, slots=True)
class Blocking:
    """Sizes of work items and chunks.

    rows: rows of a work item, a multiple of the tile's. groups: column groups of a work item.
    taps, steps: the chunk of the sum that is added in registers before going on to the next tile. Its piece of the
        panel stays in the first-level cache meanwhile.
    buffer_step: elements between the buffers of neighbouring tiles; 0 when one chunk is the whole sum.
    ahead_tiles, ahead_step: how the next chunk of the panel is fetched meanwhile: so many tiles share one vector's part
        of it, and at each step go on by so many elements. Where it is to be packed, so many tiles share one cache line
        of all columns (of all steps where columns are neighbours), and each fetches that of so many of these.
    most_steps: no chunk has more taps * steps.
    nanoseconds: estimated time of one work item.
    """

    rows: int
    groups: int
    taps: Dim
    steps: Dim
    buffer_step: int
    ahead_tiles: int
    ahead_step: int
    most_steps: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Extents:
    """What blocking knows of `problems` products of `rows` x `columns` over `taps` * `run` steps.

    most_rows: rows that the tables of one work item have room for, at least one tile. order: how columns lie that each
    work item packs for itself; None where they are packed.
    """

    problems: Dim
    rows: Dim
    columns: Dim
    taps: Dim
    run: Dim
    most_rows: int
    order: Order | None = None

    def tiles(self, shape: TileShape) -> int:
        """Tiles of all rows; where a call tells how many there are, of no few: work items of more tiles than there are
        take what there is, but items of few would pack columns again and again in calls of many rows."""
        rows = self.rows if isinstance(self.rows, int) else max(_UNKNOWN_SIZE, _known(self.rows))
        return _ceil(max(1, rows), shape.rows)

    def groups(self, shape: TileShape) -> int:
        """Column groups."""
        return _ceil(_known(self.columns), shape.columns)

    def step_bytes(self, shape: TileShape) -> int:
        """Bytes of a group's columns at one step."""
        return min(_known(self.columns), shape.columns) * shape.dtype.nbytes


@dataclass(frozen=True, slots=True)
class Item:
    """What may be chosen about work items and chunks: tiles of rows and column groups of an item, and the steps that
    are summed in registers before the next tile's turn, at most."""

    tiles: int
    groups: int
    most_steps: int


def choose_item(shape: TileShape, l1_bytes: int, extents: Extents, *, streams_panels: bool = False) -> Item:
    """Long enough items to hide their start, short ones enough to balance them over the threads.

    streams_panels: whether tiles multiply packed columns as fast out of the second-level cache as out of the first.
    """
    row_tiles, groups = extents.tiles(shape), extents.groups(shape)
    tile_ns, panel_ns = _times(shape, extents)
    total_ns = _known(extents.problems) * groups * max(row_tiles * tile_ns, panel_ns)
    item_ns = min(_LONGEST_NS, max(_SHORTEST_NS, total_ns / _ITEMS))

    most_tiles = max(1, extents.most_rows // shape.rows)
    wanted = round(item_ns / tile_ns)
    if extents.order is not None:
        # Each work item packs its columns, in the time of less than a tile, so that few should share a group.
        wanted = max(wanted, _FEWEST_TILES, row_tiles * _known(extents.problems) * groups // _STRIDED_ITEMS)
    tiles = max(1, min(most_tiles, wanted, row_tiles))
    blocks = _ceil(row_tiles, tiles)
    tiles = _ceil(row_tiles, blocks)
    column_ns = max(tiles * tile_ns, panel_ns if blocks == 1 else 0.0)
    item_groups = 1 if blocks > 1 and tiles < most_tiles else max(1, min(groups, int(item_ns / column_ns)))
    most_steps = l1_bytes / extents.step_bytes(shape)
    steps = int(most_steps * _L1_SHARE)
    if extents.order is not None:
        steps = max(int(most_steps * _L1_SHARE_PACKED), min(steps, _FEWEST_PACKED_STEPS))
    elif streams_panels:
        steps = _MOST_STEPS
    return Item(tiles, item_groups, min(_MOST_STEPS, steps))


def blocking_of(shape: TileShape, extents: Extents, item: Item) -> Blocking:
    """Work items and chunks as chosen."""
    taps, run, tiles, most_steps = extents.taps, extents.run, item.tiles, item.most_steps
    if extents.order == "taps":
        # Steps of all taps are neighbours, of which whole squares are packed.
        tap_steps = _TAP_STEPS if _known(taps) <= _SMALL_WINDOW else _FEW_TAP_STEPS
        chunk_taps, chunk_steps = taps, dims.minimum(run, tap_steps)
        most_steps = _known(taps) * tap_steps
    else:
        chunk_taps, chunk_steps = _chunk(taps, run, most_steps)
        if extents.order is not None and chunk_taps == 1 and _known(run) > most_steps >= shape.lanes:
            # Of whole squares, about equally many in each: fewer steps than a square has are packed one by one.
            chunk_steps = most_steps // shape.lanes * shape.lanes
            if isinstance(run, int):
                chunk_steps = shape.lanes * _ceil(_ceil(run, _ceil(run, chunk_steps)), shape.lanes)
    tile_ns, panel_ns = _times(shape, extents)
    column_ns = max(tiles * tile_ns, panel_ns if tiles >= extents.tiles(shape) else 0.0)
    ahead_tiles, ahead_step = _shares_ahead(shape, extents, tiles, _known(chunk_taps) * _known(chunk_steps))
    is_whole = chunk_taps == taps and chunk_steps == run
    return Blocking(
        rows=tiles * shape.rows,
        groups=item.groups,
        taps=chunk_taps,
        steps=chunk_steps,
        buffer_step=0 if is_whole else shape.rows * shape.columns,
        ahead_tiles=ahead_tiles,
        # With a single tile, fetching the next panel would only hold up this one.
        ahead_step=ahead_step if tiles > 1 else 0,
        most_steps=2 * _ceil(most_steps, 2),
        nanoseconds=max(1, int(item.groups * column_ns)),
    )


def _shares_ahead(shape: TileShape, extents: Extents, tiles: int, steps: int) -> tuple[int, int]:
    """`ahead_tiles` and `ahead_step` of a work item with so many tiles of rows. steps: of a chunk, with its taps."""
    if extents.order is None:
        shared = _ceil(tiles, shape.vectors)
        return shared, _ceil(shape.lanes, shared)
    line = LINE_BYTES // shape.dtype.nbytes
    is_across = extents.order == "columns"
    lines = _ceil(shape.columns, line) if is_across else steps // line + 1
    shared = max(1, tiles // lines)
    return shared, _ceil(steps if is_across else shape.columns, shared)


def _times(shape: TileShape, extents: Extents) -> tuple[float, float]:
    """Nanoseconds of a tile, and of fetching a panel."""
    steps = max(1, _known(extents.taps) * _known(extents.run))
    step_bytes = extents.step_bytes(shape)
    rate = _MULTIPLY_ADDS[shape.lanes * shape.dtype.bits] * 32 / shape.dtype.bits
    tile_ns = max(1.0, steps * shape.rows * (step_bytes // shape.dtype.nbytes) / rate)
    return tile_ns, steps * step_bytes / _BYTES


def _chunk(taps: Dim, run: Dim, most_steps: int) -> tuple[Dim, Dim]:
    """Taps and steps of one piece of a sum: everything, or about equal parts of whole taps, or of one tap's steps."""
    if not isinstance(run, int) or not isinstance(taps, int):
        return 1, 2 * (most_steps // 2)
    if taps * run <= most_steps:
        return taps, run
    if run <= most_steps and taps > 1:
        chunks = _ceil(taps, most_steps // run)
        return _ceil(taps, chunks), run
    chunks = _ceil(run, most_steps)
    # an even number, so that two steps can be done at once
    return 1, 2 * _ceil(run, 2 * chunks)


def _known(dim: Dim) -> int:
    value = dim if isinstance(dim, int) else dims.hint_value(dim)
    return max(1, _UNKNOWN_SIZE if value is None else value)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
