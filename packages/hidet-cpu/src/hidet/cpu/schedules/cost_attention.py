"""How long attention takes on a CPU: a model in seconds, from sizes alone.

A work item of `attention_flash` goes through its keys a block at a time; for each vector of queries it pays

    the two products    by register tiles, as in `cost_gemm`; columns lie in the first-level cache or beyond it
    the softmax         some cycles a score
    the block           sums of the blocks before are read, scaled and written once more

Attention of few rows (`attention_decode`) is as fast as keys and values are read.
"""

from __future__ import annotations

from hidet import dims
from hidet.cpu.constants import fma_rate
from hidet.cpu.schedules.attention_decode import is_decode, vectors_together
from hidet.cpu.schedules.attention_tile import TileShape
from hidet.cpu.schedules.cost_gemm import known
from hidet.schedule.attention_problem import AttentionProblem
from hidet.target.constants import DeviceConstants

# Cycles of a vector of scores, of a call of a tile, of an accumulator that a tile begins and ends with, of a vector of
# queries in a block of keys, and of an element that is transposed on its way in or out.
_SCORE, _CALL, _SUM, _BLOCK, _MOVED = 14.0, 20.0, 3.0, 60.0, 0.4
# Cycles of a work item, and of a key of a decode kernel beside its multiply-adds.
_ITEM, _KEY = 300.0, 8.0
# What columns from beyond the first-level cache cost: one part of so many, the rest hides behind products.
_SHOWN = 8
# Cycles of copying an element of keys or values, converted or not.
_COPIED = 0.4
# Of reading keys and values and of computing, what takes less time hides behind the other but for one part of so many.
_HIDDEN = 2


def attention_seconds(
    problem: AttentionProblem,
    shape: TileShape,
    key_block: int,
    copies: tuple[bool, bool],
    constants: DeviceConstants,
    threads: int,
) -> float:
    """Seconds of attention that scores `key_block` keys at a time. copies: whether k and v are copied first."""
    heads, rows = known(dims.product(problem.leading)), known(problem.rows)
    threads = min(threads, constants.cores)
    copied = 0.0
    if is_decode(problem):
        items, busy = heads, _decode_seconds(problem, shape.lanes, key_block, constants)
    else:
        items = heads * -(-rows // shape.pitch)
        busy = heads * _flash_seconds(problem, shape, key_block, constants) / items
        for place, extent, is_copied in ((problem.k, problem.depth, copies[0]), (problem.v, problem.width, copies[1])):
            once = known(problem.keys) * extent * _COPIED * constants.cycle
            if is_copied:
                copied += heads * once / threads + (constants.launch if threads > 1 else 0.0)
            elif place.dtype != problem.compute or (place.inner != 1 and place.row != 1):
                # Each item copies blocks of them for itself.
                busy += once
    level = constants.level_of(heads * _key_bytes(problem))
    bandwidth = min(threads * level.core_bandwidth, level.device_bandwidth) / threads
    streamed = heads * _key_bytes(problem) / items / bandwidth
    item = max(busy, streamed) + min(busy, streamed) / _HIDDEN + _ITEM * constants.cycle + constants.item
    share = max(1 / threads, -(-items // threads) / items)
    return copied + item * items * share + (constants.launch if threads > 1 else 0.0)


def _key_bytes(problem: AttentionProblem) -> int:
    """Of the keys and values of a head."""
    row = problem.depth * problem.k.dtype.nbytes + problem.width * problem.v.dtype.nbytes
    return known(problem.keys) * row


def _decode_seconds(problem: AttentionProblem, lanes: int, key_block: int, constants: DeviceConstants) -> float:
    """Of a head, all of whose rows are computed together."""
    scores = known(problem.rows) * known(problem.keys)
    multiplied = scores * (problem.depth + problem.width) / fma_rate(constants, problem.compute)
    return multiplied + scores * _KEY * constants.cycle + _fetched_again(problem, lanes, key_block, constants)


def _fetched_again(problem: AttentionProblem, lanes: int, key_block: int, constants: DeviceConstants) -> float:
    """Of a head: neighbours of what a pass over the rows of v reads are gone when a later pass wants them, unless a
    block of rows stays in half of the first-level cache."""
    if vectors_together(problem.width, lanes) > 1 or problem.width <= lanes:
        return 0.0
    row = problem.width * problem.v.dtype.nbytes
    block = min(key_block, known(problem.keys)) * row
    gone = max(0.0, 1 - constants.levels[0].nbytes / 2 / block)
    return gone * known(problem.keys) * row / constants.level("L2").core_bandwidth / 2


def _flash_seconds(problem: AttentionProblem, shape: TileShape, key_block: int, constants: DeviceConstants) -> float:
    """Of a head's work items: those of whole blocks of queries, and the last one."""
    rows, keys = known(problem.rows), known(problem.keys)
    whole, rest = divmod(rows, shape.pitch)
    seen = (keys + min(keys, shape.pitch)) / 2 if problem.is_causal else keys
    widest = -(-rest // shape.lanes)
    least = next((count for count in sorted(shape.rows) if widest <= count), shape.vectors)
    # All items of a head read its keys and values, which stay near.
    streamed = seen / keys * _key_bytes(problem) / constants.level_of(_key_bytes(problem)).core_bandwidth
    total = 0.0
    for items, vectors in ((whole, shape.vectors), (1 if rest else 0, least)):
        cycles = _item_cycles(problem, shape, vectors, min(key_block, keys), seen, constants)
        total += items * max(cycles * constants.cycle, streamed)
    return total


def _item_cycles(
    problem: AttentionProblem, shape: TileShape, vectors: int, key_block: int, keys: float, constants: DeviceConstants
) -> float:
    """Of a work item that sees so many keys."""
    height, width, cycle = shape.rows[vectors], problem.width, constants.cycle
    step = max(
        height * vectors * shape.lanes / fma_rate(constants, shape.dtype) / cycle,
        constants.fma_latency / cycle,
        (height + vectors) / 2,
    )
    # Queries, scores and sums that the first-level cache does not keep together come from beyond it.
    kept = (key_block + problem.depth + width) * shape.pitch * shape.dtype.nbytes
    far = constants.level_of(kept)
    if far is not constants.levels[0]:
        step += vectors * shape.lanes * shape.dtype.nbytes / (far.core_bandwidth * cycle) / _SHOWN
    blocks = -(-keys // key_block)
    of_scores = -(-key_block // height) * (problem.depth * step + _CALL + height * vectors)
    of_values = -(-width // height) * (key_block * step + _CALL + height * vectors * _SUM)
    each = of_scores + of_values + vectors * (key_block * _SCORE + _BLOCK)
    # The last block may have fewer keys.
    whole = keys / key_block
    fixed = -(-width // height) * (_CALL + height * vectors * _SUM) + vectors * _BLOCK
    return whole * (each - fixed) + blocks * fixed + vectors * shape.lanes * (problem.depth + width) * _MOVED
