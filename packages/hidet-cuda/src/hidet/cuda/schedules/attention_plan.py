"""How attention on tensor cores is cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.errors import ShapeError
from hidet.gpu.schedules.attention_heads import COPY_BYTES, alignment, head_extents, row_count, row_step
from hidet.gpu.schedules.attention_tiles import likely_extent
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.templates.attention import AttentionTiles
from hidet.schedule.attention_problem import AttentionProblem
from hidet.target import GpuTarget

_LEAST_COPY = 4
_DEPTH_STEP = 16
"""Elements along k of an instruction of the matrix units."""


BY_CALL = 0
"""Stands for as many keys of a split as make blocks for all multiprocessors, which only a call tells."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Tiles, and how many blocks of them a multiprocessor needs before smaller ones do better. time: of a block, beside
    those of other tiles that are as good; the fastest waves of blocks are taken."""

    tiles: AttentionTiles
    blocks: float
    time: int = 1


# By the longest row of keys or values: tiles by falling number of rows. A warp with 32 rows reads keys and values from
# shared memory half as often as two with 16; the keys of a step are as many as leave its results in registers.
_CHOICES = {
    64: (
        _Choice(AttentionTiles(128, 64, 2, 4), 1.5),
        _Choice(AttentionTiles(64, 64, 2, 4), 3),
        _Choice(AttentionTiles(32, 64, 2, 2), 0),
    ),
    128: (
        _Choice(AttentionTiles(128, 48, 2, 4), 1.5),
        _Choice(AttentionTiles(64, 64, 2, 4), 3),
        _Choice(AttentionTiles(32, 64, 2, 2), 0),
    ),
    256: (_Choice(AttentionTiles(64, 64, 2, 4), 1), _Choice(AttentionTiles(32, 32, 2, 2), 0)),
}
_FEWEST = 0.45
_WARP_SPECIALIZED = {
    64: (_Choice(AttentionTiles(192, 128, 3, 12), _FEWEST, 5), _Choice(AttentionTiles(128, 128, 3, 8), _FEWEST, 4)),
    128: (_Choice(AttentionTiles(128, 128, 2, 8), _FEWEST),),
    192: (_Choice(AttentionTiles(128, 112, 2, 8), _FEWEST),),
    256: (_Choice(AttentionTiles(128, 80, 2, 8), _FEWEST),),
}
"""For warp-specialized blocks, by what rows of keys or values have room for. Three groups keep the matrix units busier
than two, but have no registers for longer rows."""
_TWO_GROUPS = 8
"""Warps."""
_BARRIER_BYTES = 1024
"""Room for barriers, and for tiles that start at multiples of 1024 bytes."""
_SHORTEST = 40
"""Elements of rows of keys and values from which on they are multiplied by warp groups."""
_LEAST_KEYS = 256
"""From which on it pays that a block has a multiprocessor for itself."""
_FEW_ROWS = AttentionTiles(16, 32, 3, 1)
_MOST_STACKED = 64
"""Rows of the heads of a group that are one tile, so that their keys are read once: a few queries of each head."""
MOST_SUMS = 176
"""Registers of the 255 of a thread that scores and results may take."""
_PACKED_SUMS, _WINDOW_SUMS = 160, 144
_LEAST_STEP = 32
"""Keys of a step below which a tile of fewer rows does better."""
_MASKED_KEYS = 48
_MASKED_RESULTS = 1 << 14
_BLOCKS_PER_MULTIPROCESSOR = 2
"""Blocks of one warp that share a multiprocessor when keys are split."""
_WORST_WAVE = (4, 3)
"""Blocks a multiprocessor, as a ratio, from which on one wave of two keeps it busy: of fewer blocks than these most
multiprocessors have one while others have two, and halves of their keys are spread more evenly."""
_LEAST_SPLIT = 128
"""Keys below which a split costs more to merge than it saves."""
_LEAST_SPECIALIZED_SPLIT = 512
"""The same of warp-specialized blocks, each of which has a multiprocessor for itself; splits make blocks for half of
them at least."""
_LEAST_SPLITS = 3
"""Two splits of tiles with several warps take longer than blocks that see all keys, and no kernel that merges them."""
_WAVE = 2
"""Blocks of a multiprocessor that run together."""
_MANY_WAVES = 8
"""From which on it hardly counts how evenly the last one ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How attention on tensor cores is cut into blocks.

    chunk: keys of a split where they are split over blocks; None where a block sees all keys, `BY_CALL` where each call
    tells how many. stacked: heads of a group
    are rows of one matrix. by_head: blocks are numbered through the heads first, the longest rows before shorter ones,
    so that a causal problem of few waves ends evenly; else through the rows of a head, which share its keys in cache.
    is_warp_specialized: whether a warp group copies and others multiply (`hidet.cuda.tile.warp_specialized`).
    others: what the program has besides: a call takes the first plan whose `conditions` its sizes fulfil.
    """

    tiles: AttentionTiles
    chunk: int | None
    stacked: bool
    by_head: bool
    is_warp_specialized: bool = False
    others: tuple[Plan, ...] = ()


def suits_tensor_cores(problem: AttentionProblem) -> bool:
    """Whether the types are those of matrix units, and rows can be copied in the background."""
    places = ((problem.q, problem.depth), (problem.k, problem.depth), (problem.v, problem.width))
    return (
        problem.q.dtype in dtypes.FLOATS_OF_16_BITS
        and (problem.out.inner == 1 or problem.width == 1)
        and all((place.inner == 1 or n == 1) and alignment(place) >= _LEAST_COPY for place, n in places)
    )


def may_be_warp_specialized(problem: AttentionProblem, target: GpuTarget) -> bool:
    """Whether tensor maps can say where keys and values lie, and threads have no mask of their own to read."""
    places = ((problem.k, problem.depth), (problem.v, problem.width))
    are_mapped = all(row_room(extent) is not None and alignment(place) == COPY_BYTES for place, extent in places)
    return target.has("wgmma") and are_mapped and (problem.mask is None or problem.mask.row == 0)


def is_skewed(plan: Plan) -> bool:
    """Whether values are multiplied a step later than their keys, for which two warp groups have registers."""
    return plan.is_warp_specialized and plan.tiles.warps <= _TWO_GROUPS


def are_mapped(problem: AttentionProblem) -> bool:
    """Whether tensor maps say where a head's keys and values lie. Rows have to be known not to overlap, as those of
    windows do; and where sequences are packed, no map knows where one ends, and the next one's values must not be read:
    what is not finite stays so when it is weighed by 0."""
    places = ((problem.k, problem.depth), (problem.v, problem.width))
    return problem.packed is None and all(dims.prove_le(extent, place.row) is True for place, extent in places)


def row_room(extent: int) -> int | None:
    """The elements that a row of keys or values has room for in shared memory of warp-specialized blocks, as the matrix
    units read it; None for rows that are not multiplied so."""
    return next((room for room in _WARP_SPECIALIZED if _SHORTEST <= extent <= room), None)


def more_room(extent: int) -> int:
    """`row_room`, or 0 where a row of so many elements fills it."""
    room = row_room(extent) or 0
    return room if room > extent else 0


def _specialized_choices(problem: AttentionProblem) -> tuple[_Choice, ...]:
    """Those of warp-specialized blocks, for a problem that they suit."""
    longest = row_room(max(problem.depth, problem.width))
    assert longest is not None
    return _WARP_SPECIALIZED[longest]


def is_stacked_well(problem: AttentionProblem) -> bool:
    """Whether the heads of a group make a tile together: they share keys, and are few rows."""
    return problem.sees_all and likely_extent(problem.group) > 1 and likely_extent(problem.rows) <= _MOST_STACKED


def can_be_stacked(problem: AttentionProblem, chunk: int | None) -> bool:
    """Whether results of a stacked group can be written: parts of keys have results of their own; others are written
    where the heads' rows have to lie regularly."""
    results = [place for place in (problem.out, problem.logsumexp) if place is not None]
    return chunk is not None or all(row_step(problem, place, stacked=True) is not None for place in results)


def chunk_of(problem: AttentionProblem, keys: int, splits: int) -> int | None:
    """Keys of a split, a multiple of a step's `keys`; None for one split."""
    return None if splits == 1 else -(-likely_extent(problem.keys) // (splits * keys)) * keys


def splits_of(problem: AttentionProblem, plan: Plan) -> int:
    """Into how many splits a plan cuts the keys."""
    return 1 if not plan.chunk else -(-likely_extent(problem.keys) // plan.chunk)


def choose_plan(problem: AttentionProblem, target: GpuTarget) -> Plan:
    """The largest tile that gives every multiprocessor a block; splits of the keys where no tile does."""
    specialized = _warp_specialized_plan(problem, target)
    if specialized is not None:
        return specialized
    if is_stacked_well(problem):
        plan = _plan(problem, target, stacked=True)
        if can_be_stacked(problem, plan.chunk):
            return plan
    return _plan(problem, target, stacked=False)


def _plan(problem: AttentionProblem, target: GpuTarget, *, stacked: bool) -> Plan:
    rows = likely_extent(row_count(problem, stacked=stacked))
    heads = likely_extent(dims.product(head_extents(problem, stacked=stacked)))
    chosen = _stacked_tiles(rows, problem) if stacked else _tiles_for(rows, heads, problem, target.multiprocessors)
    tiles = _fitting(chosen, problem, target.block_shared_memory)
    blocks = max(heads * -(-rows // tiles.rows), 1)
    keys = likely_extent(problem.keys)
    splits = min(likely_extent(_even_splits(blocks, target)), keys // _LEAST_SPLIT)
    by_head = problem.is_causal and blocks < _MANY_WAVES * _WAVE * target.multiprocessors
    plan = Plan(tiles, None, stacked, by_head)
    is_split = problem.sees_all and splits >= least_splits(plan)
    return replace(plan, chunk=chunk_of(problem, tiles.keys, splits)) if is_split else plan


def _warp_specialized_plan(problem: AttentionProblem, target: GpuTarget) -> Plan | None:
    """A plan where rows of keys are long and enough for blocks that have a multiprocessor for themselves."""
    keys = likely_extent(problem.keys)
    if not may_be_warp_specialized(problem, target) or keys < _LEAST_KEYS:
        return None
    heads, rows = likely_extent(dims.product(head_extents(problem, stacked=False))), likely_extent(problem.queries)
    choices = _specialized_choices(problem)
    counts = [heads * -(-rows // choice.tiles.rows) for choice in choices]
    times = [-(-count // target.multiprocessors) * choice.time for count, choice in zip(counts, choices, strict=True)]
    for number, (choice, blocks) in enumerate(zip(choices, counts, strict=True)):
        is_enough = rows > choice.tiles.rows // 2 and blocks >= choice.blocks * target.multiprocessors
        if is_enough and times[number] == min(times[number:]):
            return Plan(choice.tiles, None, stacked=False, by_head=problem.is_causal, is_warp_specialized=True)
    tiles, blocks = choices[-1].tiles, counts[-1]
    splits = min(target.multiprocessors // max(blocks, 1), keys // _LEAST_SPECIALIZED_SPLIT)
    if not problem.sees_all or splits < 2 or rows <= tiles.rows // 2 or 2 * blocks * splits < target.multiprocessors:
        return None
    chunk = chunk_of(problem, tiles.keys, splits)
    return Plan(tiles, chunk, stacked=False, by_head=False, is_warp_specialized=True)


def _tiles_for(rows: int, heads: int, problem: AttentionProblem, multiprocessors: int) -> AttentionTiles:
    if rows <= _FEW_ROWS.rows:
        return _FEW_ROWS
    choices = _choices(problem)
    for choice in choices:
        tiles = choice.tiles
        if heads * -(-rows // tiles.rows) >= choice.blocks * multiprocessors and rows > tiles.rows // 2:
            return tiles
    return choices[-1].tiles


def _stacked_tiles(rows: int, problem: AttentionProblem) -> AttentionTiles:
    """The smallest ones that have all rows of a group, or the largest."""
    tiles = (_FEW_ROWS, *(choice.tiles for choice in reversed(_choices(problem))))
    return next((each for each in tiles if each.rows >= rows), tiles[-1])


def _choices(problem: AttentionProblem) -> tuple[_Choice, ...]:
    """Tiles for many rows, by falling number of rows."""
    longest = max(problem.depth, problem.width)
    found = next(choices for depth, choices in _CHOICES.items() if longest <= depth)
    fitting = ((choice, _with_registers(problem, choice.tiles)) for choice in found)
    choices = tuple(replace(choice, tiles=tiles) for choice, tiles in fitting if tiles.keys >= _LEAST_STEP)
    most = most_masked_keys(problem)
    if most is None:
        return choices
    # Entries of a mask that differ from row to row are on their way in registers, each with its address.
    fewer = [replace(choice, tiles=replace(choice.tiles, keys=min(choice.tiles.keys, most))) for choice in choices]
    return tuple(choice for choice in fewer if has_masked_registers(problem, choice.tiles))


Condition = tuple[Dim, int]
"""A size, and what it is at least."""


def plans_by_size(problem: AttentionProblem, target: GpuTarget) -> Plan | None:
    """The plans that `choose_plan` has for the sizes of any call, one with the others; None where there is only one, or
    where sizes are no expressions of bounded length."""
    try:
        found = list(_possible_plans(problem, target))
    except ShapeError:
        return None
    return replace(found[0], others=tuple(found[1:])) if len(found) > 1 else None


def conditions(problem: AttentionProblem, plan: Plan, target: GpuTarget) -> list[Condition]:
    """When a call takes a plan, unless it takes one before: the rules of `choose_plan`."""
    tiles, rows = plan.tiles, row_count(problem, stacked=plan.stacked)
    blocks = blocks_of(problem, plan)
    if plan.chunk is not None and plan.is_warp_specialized:
        splits = splits_of_call(problem, plan, target)
        few = 2 * blocks * splits - target.multiprocessors
        return [(splits, least_splits(plan)), (rows, tiles.rows // 2 + 1), (few, 0)]
    if plan.chunk is not None:
        several = (splits_of_call(problem, plan, target), least_splits(plan))
        return [several, *([(tiles.rows - rows, 0)] if _has_all_rows(problem, plan) else [])]
    if plan.is_warp_specialized:
        own, *others = _later_choices(problem, tiles)
        enough = [(problem.keys, _LEAST_KEYS), (rows, tiles.rows // 2 + 1)]
        time = own.time * dims.ceildiv(blocks, target.multiprocessors)
        others_blocks = ((other, blocks_of(problem, replace(plan, tiles=other.tiles))) for other in others)
        gains = [other.time * dims.ceildiv(count, target.multiprocessors) - time for other, count in others_blocks]
        return [*enough, (blocks, math.ceil(own.blocks * target.multiprocessors)), *((gain, 0) for gain in gains)]
    fitting = {choice.tiles.rows: choice.blocks for choice in _choices(problem)}
    if tiles.rows == min(fitting):
        return []
    if _has_all_rows(problem, plan):
        return [(tiles.rows - rows, 0)]
    return [(blocks, math.ceil(fitting[tiles.rows] * target.multiprocessors)), (rows, tiles.rows // 2 + 1)]


def _later_choices(problem: AttentionProblem, tiles: AttentionTiles) -> list[_Choice]:
    """The choice of some tiles, and those behind it."""
    choices = list(_specialized_choices(problem))
    return choices[next(at for at, choice in enumerate(choices) if choice.tiles == tiles) :]


def blocks_of(problem: AttentionProblem, plan: Plan) -> Dim:
    """Blocks of a plan whose keys are not split."""
    heads = dims.product(head_extents(problem, stacked=plan.stacked))
    return heads * dims.ceildiv(row_count(problem, stacked=plan.stacked), plan.tiles.rows)


def splits_of_call(problem: AttentionProblem, plan: Plan, target: GpuTarget) -> Dim:
    """Splits of the keys that make blocks for all multiprocessors; 0 of few keys."""
    blocks = dims.maximum(blocks_of(problem, plan), 1)
    if plan.is_warp_specialized:
        room, least = dims.floordiv(target.multiprocessors, blocks), _LEAST_SPECIALIZED_SPLIT
    else:
        room, least = _even_splits(blocks, target), _LEAST_SPLIT
    return dims.minimum(room, dims.floordiv(problem.keys, least))


def _even_splits(blocks: Dim, target: GpuTarget) -> Dim:
    """Splits that give all multiprocessors as many blocks of one warp."""
    count, (most, unit) = target.multiprocessors, _WORST_WAVE
    fill = dims.floordiv(count * _BLOCKS_PER_MULTIPROCESSOR, blocks)
    return dims.maximum(fill, dims.minimum(dims.floordiv(count * most, blocks * unit) + 1, 2))


def least_splits(plan: Plan) -> int:
    """How many splits are worth a kernel that merges them. Blocks of one warp leave room for others;
    warp-specialized ones have many keys."""
    return 2 if plan.is_warp_specialized or plan.tiles.rows == _FEW_ROWS.rows else _LEAST_SPLITS


def _has_all_rows(problem: AttentionProblem, plan: Plan) -> bool:
    """Whether a plan's tiles are for calls all of whose rows they have: few ones, or those of a group."""
    whole = _stacked_tiles(likely_extent(problem.rows), problem) if plan.stacked else _FEW_ROWS
    return plan.tiles.rows in (_FEW_ROWS.rows, whole.rows)


def _possible_plans(problem: AttentionProblem, target: GpuTarget) -> Iterator[Plan]:
    """Plans that some call takes, in the order in which it asks for them."""
    for plan in _all_plans(problem, target):
        known = [dims.prove_le(least, size) for size, least in conditions(problem, plan, target)]
        if False not in known:
            yield plan
            if None not in known:
                return


def _all_plans(problem: AttentionProblem, target: GpuTarget) -> Iterator[Plan]:
    if may_be_warp_specialized(problem, target):
        for choice in _specialized_choices(problem):
            yield Plan(choice.tiles, None, False, problem.is_causal, is_warp_specialized=True)
        if problem.sees_all:
            yield Plan(_specialized_choices(problem)[-1].tiles, BY_CALL, False, False, is_warp_specialized=True)
    stacked = is_stacked_well(problem) and can_be_stacked(problem, None)
    every = (_FEW_ROWS, *(choice.tiles for choice in _choices(problem)))
    for tiles in every:
        found = Plan(_fitting(tiles, problem, target.block_shared_memory), None, stacked, problem.is_causal)
        if (tiles is every[-1] or _has_all_rows(problem, found)) and problem.sees_all:
            yield replace(found, chunk=BY_CALL)
        yield found


def _with_registers(problem: AttentionProblem, tiles: AttentionTiles) -> AttentionTiles:
    """The tile, with fewer keys a step while threads lack registers for their scores."""
    while thread_sums(problem, tiles) > most_sums(problem) and tiles.keys > _DEPTH_STEP:
        tiles = replace(tiles, keys=tiles.keys - _DEPTH_STEP)
    return tiles


def _fitting(tiles: AttentionTiles, problem: AttentionProblem, limit: int) -> AttentionTiles:
    """The tile, with fewer keys a step while it does not fit into shared memory."""
    while shared_bytes(problem, tiles) > limit and tiles.keys > _DEPTH_STEP:
        tiles = replace(tiles, keys=tiles.keys // 2)
    return tiles


def shared_bytes(problem: AttentionProblem, tiles: AttentionTiles) -> int:
    """What a block needs of shared memory: queries, and stages of keys and values."""
    depth, width = padded(problem.depth), padded(problem.width)
    nbytes = problem.q.dtype.nbytes
    # Rows whose length is no power of two are padded by 16 bytes.
    query, key = nbytes * (depth + 8), nbytes * (depth + width + 16)
    return tiles.rows * query + tiles.stages * tiles.keys * key


def specialized_bytes(problem: AttentionProblem, tiles: AttentionTiles) -> int:
    """What a warp-specialized block needs of shared memory, where results are staged in the place of queries."""
    depth, width = (row_room(extent) or padded(extent) for extent in (problem.depth, problem.width))
    nbytes = problem.q.dtype.nbytes
    return nbytes * (tiles.rows * depth + tiles.stages * tiles.keys * (depth + width)) + _BARRIER_BYTES


def is_specialized_tile(problem: AttentionProblem, tiles: AttentionTiles) -> bool:
    """Whether a table has tiles of warp-specialized blocks, whatever their number of stages."""
    return any(replace(choice.tiles, stages=tiles.stages) == tiles for choice in _specialized_choices(problem))


def thread_sums(problem: AttentionProblem, tiles: AttentionTiles) -> int:
    """Registers of a thread for scores and results."""
    return tiles.rows * (padded(problem.width) + tiles.keys) // (WARP * tiles.warps)


def most_sums(problem: AttentionProblem) -> int:
    """`MOST_SUMS`, or those of blocks of one kind of warps where sequences are packed: where these lie takes some, and
    so does the start of a window."""
    if problem.packed is None:
        return MOST_SUMS
    return _PACKED_SUMS if problem.window[0] is None else _WINDOW_SUMS


def most_masked_keys(problem: AttentionProblem) -> int | None:
    """Keys of a step for whose entries of a mask there are registers; None where none differ from row to row."""
    return _MASKED_KEYS if problem.mask is not None and problem.mask.row != 0 else None


def has_masked_registers(problem: AttentionProblem, tiles: AttentionTiles) -> bool:
    """Whether entries of a mask that differ from row to row, on their way in registers, find enough of them."""
    most, longest = most_masked_keys(problem), max(problem.depth, problem.width)
    return most is None or (tiles.keys <= most and tiles.rows * longest < _MASKED_RESULTS)


def padded(extent: int) -> int:
    """The extent of a tile for rows of a matrix."""
    return -(-extent // _DEPTH_STEP) * _DEPTH_STEP
