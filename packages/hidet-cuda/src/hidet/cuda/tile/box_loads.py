"""What one thread has TMA copy: boxes of matrices, to the stages of a ring, as these become empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.maps import PlaceInTile, SourceMap
from hidet.cuda.tile.stages import Stages, barrier
from hidet.dtypes import i32
from hidet.gpu.tile.statements import Load, Ring
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var


def prefetched(maps: Sequence[SourceMap]) -> list[s.Stmt]:
    """Bring the maps into their cache, where the first copies would wait for them."""
    return [s.Evaluate(intrinsic_call("cuda.prefetch_tensor_map", described.var)) for described in maps]


def copy_stages(ring: Ring, maps: Sequence[SourceMap], shared: Mapping[STile, Var], stages: Stages) -> s.Stmt:
    """The producer: one stage after the other as they become empty. shared: arrays of the stages of each tile."""
    nbytes = sum(load.target.layout.size * load.target.dtype.nbytes for load in ring.loads)
    steps = [
        # A fresh barrier counts as having completed the phase before its first one.
        barrier("wait", stages.empty(stages.slot), build.binary("xor", stages.phase, 1)),
        barrier("arrive_expect", stages.full(), Const(nbytes, i32)),
    ]
    for load, described in zip(ring.loads, maps, strict=True):
        steps += described.copies(load, _place_in_stage(load, shared[load.target], stages), stages.full())
    placed = [stmt for load, described in zip(ring.loads, maps, strict=True) for stmt in described.placed(load)]
    loop = s.For(ring.index, build.index(0), ring.extent, build.seq([*steps, stages.advanced()]))
    return build.seq([*placed, loop])


def _place_in_stage(load: Load, buffer: Var, stages: Stages) -> PlaceInTile:
    """Where a load's tile lies in the stage that is filled."""
    layout = load.target.layout

    def place(panel: Expr | int, row: Expr | int) -> Expr:
        return build.address(
            buffer, stages.slot * layout.size + (panel * (layout.rows * layout.pitch) + row * layout.pitch)
        )

    return place
