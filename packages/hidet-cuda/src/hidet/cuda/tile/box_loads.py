"""What one thread has TMA copy: boxes of matrices, to the stages of a ring, as these become empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.maps import MatrixMap, OwnMap, PlaceInTile, SourceMap
from hidet.cuda.tile.stages import Stages, barrier
from hidet.dtypes import i32
from hidet.gpu.tile.statements import Load, Ring
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var


def prefetched(maps: Sequence[OwnMap]) -> list[s.Stmt]:
    """Bring the maps into their cache, where the first copies would wait for them."""
    return [s.Evaluate(intrinsic_call("cuda.prefetch_tensor_map", described.var)) for described in maps]


def begin_stages(
    ring: Ring, maps: Sequence[SourceMap], shared: Mapping[STile, Var], stages: Stages, weights: Sequence[bool]
) -> s.Stmt:
    """Fill the stages, before the ring, with what it loads first of weights: `weights` says which loads are of those.
    The other loads of these stages are left to `copy_stages`."""
    first = Stages(stages.count, stages.barriers)
    steps = [
        barrier("arrive_expect", first.full(), _stage_bytes(ring.loads, maps)),
        *_copies(ring.loads, maps, shared, first, weights),
        first.advanced(),
    ]
    loop = s.For(ring.index, build.index(0), build.minimum(ring.extent, stages.count), build.seq(steps))
    return build.seq([*first.declared(), *_placed(ring.loads, maps, weights), loop])


def copy_tiles(
    loads: Sequence[Load], maps: Sequence[SourceMap], shared: Mapping[STile, Var], stages: Stages
) -> list[s.Stmt]:
    """The producer: fill the next stage, when it is empty, with a tile of each load."""
    return [
        # A fresh barrier counts as having completed the phase before its first one.
        barrier("wait", stages.empty(stages.slot), build.binary("xor", stages.phase, 1)),
        barrier("arrive_expect", stages.full(), _stage_bytes(loads, maps)),
        *_copies(loads, maps, shared, stages, [True] * len(maps)),
        stages.advanced(),
    ]


def copy_stages(
    ring: Ring,
    maps: Sequence[SourceMap],
    shared: Mapping[STile, Var],
    stages: Stages,
    weights: Sequence[bool] = (),
    is_begun: Expr | None = None,
    behind_first: Sequence[s.Stmt] = (),
) -> s.Stmt:
    """The producer: one stage after the other as they become empty. shared: arrays of the stages of each tile.
    is_begun: whether `begin_stages` has filled the first of them with `weights`; None where that was never asked.
    behind_first: what is done when the first of them is filled."""
    behind = [s.If(build.equal(ring.index, 0), build.seq(behind_first))] if behind_first else []
    filled = [*copy_tiles(ring.loads, maps, shared, stages), *behind]
    placed = _placed(ring.loads, maps, [True] * len(maps))
    if is_begun is None:
        return build.seq([*placed, s.For(ring.index, build.index(0), ring.extent, build.seq(filled))])
    others = _copies(ring.loads, maps, shared, stages, [not is_weight for is_weight in weights])
    # A number that all threads share: TMA takes its arguments from uniform registers.
    begun = build.size_var("begun")
    count = build.select(is_begun, build.minimum(ring.extent, stages.count), build.index(0))
    return build.seq(
        [
            *placed,
            s.Declare(begun, count),
            s.For(ring.index, build.index(0), begun, build.seq([*others, stages.advanced(), *behind])),
            s.For(ring.index, begun, ring.extent - begun, build.seq(filled)),
        ]
    )


def _stage_bytes(loads: Sequence[Load], maps: Sequence[SourceMap]) -> Expr:
    """What a stage's copies bring to a block, i32."""
    total: Expr = build.index(0)
    for load, described in zip(loads, maps, strict=True):
        layout = load.target.layout
        rows = described.rows if isinstance(described, MatrixMap) else build.index(layout.rows)
        total = total + rows * (layout.size // layout.rows * load.target.dtype.nbytes)
    return build.cast(total, i32)


def _copies(
    loads: Sequence[Load],
    maps: Sequence[SourceMap],
    shared: Mapping[STile, Var],
    stages: Stages,
    chosen: Sequence[bool],
) -> list[s.Stmt]:
    """The copies of the chosen loads to the stage that is filled."""
    found: list[s.Stmt] = []
    for load, described, is_chosen in zip(loads, maps, chosen, strict=True):
        if is_chosen:
            found += described.copies(load, _place_in_stage(load, shared[load.target], stages), stages.full())
    return found


def _placed(loads: Sequence[Load], maps: Sequence[SourceMap], chosen: Sequence[bool]) -> list[s.Stmt]:
    """What copies of a chosen load share."""
    found = zip(loads, maps, chosen, strict=True)
    return [stmt for load, described, is_chosen in found if is_chosen for stmt in described.placed(load)]


def _place_in_stage(load: Load, buffer: Var, stages: Stages) -> PlaceInTile:
    """Where a load's tile lies in the stage that is filled."""
    layout = load.target.layout

    def place(panel: Expr | int, row: Expr | int) -> Expr:
        return build.address(
            buffer, stages.slot * layout.size + (panel * (layout.rows * layout.pitch) + row * layout.pitch)
        )

    return place
