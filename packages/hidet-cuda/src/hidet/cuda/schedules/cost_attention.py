"""How long attention takes on a GPU: a model in seconds of a device.

A block goes through its keys step by step. A step takes as long as the slowest of

    multiplying   both products, by matrix units at a part of their rate, or without them
    the softmax   exponentials of the scores
    copying       keys and values from the second-level cache
    waiting       for copies, which stages share, and for products that depend on each other

and blocks that share a multiprocessor share its units. Splits of the keys are merged by a second kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet import dims
from hidet.cuda.arch import fitting_blocks
from hidet.cuda.schedules.attention_plan import Plan, padded, shared_bytes, splits_of
from hidet.gpu.schedules.attention_heads import head_extents, row_count
from hidet.gpu.schedules.attention_simt import SimtTiles
from hidet.gpu.tile.kernel import WARP
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.cost import extent_estimate
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_SPECIALIZED, _PLAIN, _SIMT = 0.6, 0.4, 0.6
"""Parts of the units' rate that kernels reach."""
_EXPONENTIALS = 16
"""A cycle of a multiprocessor."""
_SCORE = 6
"""Other instructions of a score, of which a multiprocessor does as many a cycle as multiply-adds of f32."""
_HIDDEN = 3
"""One part of so many is not hidden."""
_STEP, _DELAY, _START = 500, 1300, 3000
"""Cycles of a step of a block alone, until a copy has arrived, and of a block besides its steps."""
_WARPS = 16
"""Of a multiprocessor, with registers for scores and results."""


def attention_seconds(
    problem: AttentionProblem, params: Plan | SimtTiles, target: GpuTarget, constants: DeviceConstants
) -> float:
    """Seconds of attention by a plan, or by tiles without matrix units."""
    stacked = isinstance(params, Plan) and params.stacked
    heads = extent_estimate(dims.product(head_extents(problem, stacked=stacked)))
    rows, keys = extent_estimate(row_count(problem, stacked=stacked)), extent_estimate(problem.keys)
    splits = splits_of(problem, params) if isinstance(params, Plan) else 1
    if isinstance(params, Plan):
        tile_rows, tile_keys, stages = params.tiles.rows, params.tiles.keys, params.tiles.stages
        threads, shared = WARP * params.tiles.warps, shared_bytes(problem, params.tiles)
        dtype = problem.q.dtype
        reached = _SPECIALIZED if params.is_warp_specialized else _PLAIN
        rate = reached * constants.matrix.get(dtype.name, constants.fma["float32"]) * constants.cycle
    else:
        tile_rows, tile_keys, stages, threads = params.rows, params.keys, 1, params.threads
        shared, dtype = params.nbytes(problem.depth, problem.width, problem.compute), problem.compute
        total = constants.fma.get(dtype.name, constants.fma["float32"])
        rate = _SIMT * total * constants.cycle
    blocks = heads * -(-rows // tile_rows) * splits
    seen = (keys + min(keys, tile_rows)) / 2 if problem.is_causal else keys / splits
    steps = max(1.0, seen / tile_keys)
    fitting = fitting_blocks(shared, target)
    own = max(1.0, blocks / constants.cores if problem.is_causal else float(-(-blocks // constants.cores)))
    resident = max(1.0, min(own, fitting, _WARPS * WARP // threads, target.multiprocessor_threads // threads))
    scores = tile_rows * tile_keys
    multiplied = scores * (padded(problem.depth) + padded(problem.width)) / rate
    exponentials = scores / _EXPONENTIALS + _SCORE * scores / (constants.fma["float32"] * constants.cycle)
    cache = constants.level("L2").device_bandwidth / constants.cores * constants.cycle
    copied = tile_keys * (padded(problem.depth) + padded(problem.width)) * dtype.nbytes / cache
    # Other blocks and warp groups compute exponentials while one multiplies, but for a part.
    is_alone = resident == 1 and not (isinstance(params, Plan) and params.is_warp_specialized)
    together = max(multiplied, exponentials) + min(multiplied, exponentials) / (1 if is_alone else _HIDDEN)
    step = max(together, copied, max(_STEP, _DELAY / stages) / resident)
    cycles = own * steps * step + -(-own // resident) * _START
    moved = heads * keys * (problem.depth + problem.width) * dtype.nbytes / constants.memory.device_bandwidth
    seconds = constants.launch + max(cycles * constants.cycle, moved)
    if splits > 1:
        partial = heads * rows * splits * (problem.width + 2) * 4
        seconds += constants.launch + 2 * partial / constants.level("L2").device_bandwidth
    return seconds
