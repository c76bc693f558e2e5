"""What may be chosen about attention on a GPU: the kernel, its tiles and stages, and splits of the keys."""

from __future__ import annotations

from dataclasses import dataclass

from hidet.cuda.schedules.attention_plan import (
    MOST_SUMS,
    Plan,
    can_be_stacked,
    chunk_of,
    has_masked_registers,
    is_specialized_tile,
    is_stacked_well,
    may_be_warp_specialized,
    most_sums,
    shared_bytes,
    specialized_bytes,
    splits_of,
    thread_sums,
)
from hidet.gpu.schedules.attention_simt import SimtTiles
from hidet.gpu.schedules.attention_tiles import simt_space
from hidet.gpu.tile.templates.attention import AttentionTiles
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.space import Constraint, Knob, Space
from hidet.target import GpuTarget

_STAGES = (2, 3, 4)
_SPLITS = (1, 2, 4, 8, 16, 32)
_KEYS = (16, 32, 48, 64, 128)


@dataclass(frozen=True, slots=True)
class RowTile:
    """Rows of a block on tensor cores, and how many warps share them. is_by_size: of several plans, of which each call
    takes one."""

    rows: int
    warps: int
    is_warp_specialized: bool = False
    is_by_size: bool = False

    def __str__(self) -> str:
        if self.is_by_size:
            return "by size"
        return f"{self.rows} by {self.warps} warps{' and TMA' if self.is_warp_specialized else ''}"


_TILES = (RowTile(16, 1), RowTile(32, 2), RowTile(64, 4), RowTile(64, 2), RowTile(128, 4), RowTile(128, 8))
_SPECIALIZED = (RowTile(128, 8, True), RowTile(192, 12, True))


def attention_space(
    problem: AttentionProblem, default: Plan | SimtTiles, target: GpuTarget
) -> Space[Plan] | Space[SimtTiles]:
    """Of a problem that `AttentionRule` takes. default: which decides whether tensor cores are used."""
    return simt_space(problem, target) if isinstance(default, SimtTiles) else _plan_space(problem, default, target)


def _plan_space(problem: AttentionProblem, default: Plan, target: GpuTarget) -> Space[Plan]:
    tiles = (*_TILES, *(_SPECIALIZED if may_be_warp_specialized(problem, target) else ()))
    if default.others:
        tiles = (RowTile(default.tiles.rows, default.tiles.warps, default.is_warp_specialized, True), *tiles)
    stacked = (False, True) if is_stacked_well(problem) else (False,)
    splits = tuple(sorted({*_SPLITS, splits_of(problem, default)})) if problem.sees_all else (1,)
    limit = target.block_shared_memory

    def plan(tile: RowTile, keys: int, stages: int, splits: int, stacked: bool, by_head: bool) -> Plan:
        chosen = AttentionTiles(tile.rows, keys, stages, tile.warps)
        if tile.is_by_size:
            chunk = default.chunk if splits == splits_of(problem, default) else splits
            return Plan(chosen, chunk, stacked, by_head, tile.is_warp_specialized, default.others)
        return Plan(chosen, chunk_of(problem, keys, splits), stacked, by_head, tile.is_warp_specialized)

    return Space(
        (
            Knob("tile", tiles, "rows of a block, and what shares them"),
            Knob("keys", tuple(sorted({*_KEYS, default.tiles.keys})), "keys of a step"),
            Knob("stages", _STAGES, "steps of keys and values in shared memory"),
            Knob("splits", splits, "parts of the keys that blocks of their own take"),
            Knob("stacked", stacked, "whether the heads of a group are rows of one tile"),
            Knob(
                "by_head",
                (False, True) if problem.is_causal else (False,),
                "whether blocks are counted through the heads first",
            ),
        ),
        plan,
        (
            Constraint(
                f"shared memory holds queries and stages: {limit} bytes",
                lambda p: (specialized_bytes if p.is_warp_specialized else shared_bytes)(problem, p.tiles) <= limit,
            ),
            Constraint(
                "scores and results leave registers for the rest",
                lambda p: thread_sums(problem, p.tiles) <= (MOST_SUMS if p.is_warp_specialized else most_sums(problem)),
            ),
            Constraint(
                "there are registers for entries of a mask that differ from row to row",
                lambda p: has_masked_registers(problem, p.tiles),
            ),
            Constraint(
                "each split of the keys has two steps at least",
                lambda p: not p.chunk or p.chunk >= 2 * p.tiles.keys,
            ),
            Constraint("plans by size have tiles of their own", lambda p: not p.others or p == default),
            Constraint(
                "warp-specialized blocks have the rows and keys that registers suffice for, of heads one by one",
                lambda p: not p.is_warp_specialized or (not p.stacked and is_specialized_tile(problem, p.tiles)),
            ),
            Constraint(
                "the results of stacked heads lie regularly",
                lambda p: not p.stacked or can_be_stacked(problem, p.chunk),
            ),
        ),
    )
