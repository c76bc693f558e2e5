"""Matrices that epilogues read, which TMA brings through the ring: behind the last step of a tile, as further stages.

They come while the last products run, past the registers, so that no warp waits for memory between two tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.maps import MatrixMap, matrix_map
from hidet.cuda.tile.stages import Stages, barrier
from hidet.dtypes import i32
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.layout import CHUNK_BYTES, LINE_CHUNKS, SharedLayout
from hidet.gpu.tile.lower.elementwise import unroll
from hidet.gpu.tile.lower.finish import StoredMap
from hidet.gpu.tile.lower.fragment import ALL_LANES, PIECE_COLUMNS, PIECE_ROWS, Fragment, Threads
from hidet.gpu.tile.statements import Fetch, Ring, Store
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Const, Expr, Load, Var
from hidet.ir.types import PointerType, VectorType

_LINE_BYTES = CHUNK_BYTES * LINE_CHUNKS
_NARROW = 2
"""Bytes of elements of which two neighbours of a row are one word."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxOperand:
    """The matrix of a `fetch`, panels of which, as wide as a line of the banks, come to where stages have a tile of the
    ring.

    described: the map of a panel. buffer, stage_size: the stages of that tile, and elements of one. per_stage: panels
    that one stage takes.
    """

    fetch: Fetch
    described: MatrixMap
    buffer: Var
    stage_size: int
    per_stage: int

    @property
    def layout(self) -> SharedLayout:
        """How a panel lies."""
        return self.described.tile.layout

    @property
    def panels(self) -> int:
        """How many there are."""
        return self.fetch.target.columns // self.layout.columns

    def copied(self, stages: Stages) -> s.Stmt:
        """The producer's further stages."""
        steps: list[s.Stmt] = []
        for first in range(0, self.panels, self.per_stage):
            coming = range(first, min(first + self.per_stage, self.panels))
            nbytes = len(coming) * self.layout.size * self.layout.nbytes
            steps += [
                barrier("wait", stages.empty(stages.slot), build.binary("xor", stages.phase, 1)),
                barrier("arrive_expect", stages.full(), Const(nbytes, i32)),
            ]
            for panel in coming:
                column = self.fetch.column + panel * self.layout.columns
                place = self._place(stages, build.index(panel))
                steps.append(self.described.load(place, stages.full(), self.fetch.row, column))
            steps.append(stages.advanced())
        return build.seq(steps)

    def read(self, panel: Expr, to: Fragment, threads: Threads, stages: Stages, give_back: s.Stmt) -> list[s.Stmt]:
        """A warp takes its rows of a panel into registers, one panel after the other. give_back: says that the warp has
        read the stage."""
        inside, inner, half = panel % self.per_stage, build.size_var("inner"), build.size_var("half")
        place = Var("panel", PointerType(to.tile.dtype, "shared"))
        row = threads.warp_row * PIECE_ROWS + half * 8 + threads.lane // 4
        at = self.layout.offset(row, inner * PIECE_COLUMNS + threads.lane % 4 * 2)
        two = Load(place, (at,), VectorType(to.tile.dtype, 2))
        store = s.Store(to.buffer, (build.index(0), inner, half, build.index(0)), two)
        is_last = build.binary("lor", build.equal(inside, self.per_stage - 1), build.equal(panel, self.panels - 1))
        met = s.Evaluate(intrinsic_call("gpu.syncwarp", ALL_LANES))
        return [
            s.If(build.equal(inside, 0), barrier("wait", stages.full(), stages.phase)),
            s.Declare(place, Bitcast(self._place(stages, panel), place.type)),
            unroll(inner, to.extents[1], unroll(half, 2, store)),
            s.If(is_last, build.seq([met, give_back, stages.advanced()])),
        ]

    def _place(self, stages: Stages, panel: Expr) -> Expr:
        """Where a panel lies in the stage that is filled or read."""
        per_element = self.buffer.dtype.nbytes
        size = self.layout.size * self.layout.nbytes // per_element
        return build.address(self.buffer, stages.slot * self.stage_size + panel % self.per_stage * size)


def box_operand(
    node: Store, stored: StoredMap, ring: Ring, kernel: TileKernel, shared: Mapping[STile, Var]
) -> BoxOperand | None:
    """How the one matrix that comes to a stored map for its elements is brought; None for other maps, and where TMA
    cannot copy it or no tile of the ring has room. shared: arrays of the ring's tiles."""
    whole = [fetch for fetch in stored.fetches if fetch.is_matrix]
    if len(whole) != 1 or node.source.is_transposed:
        return None
    (fetch,) = whole
    tile, width = fetch.target, _LINE_BYTES // _NARROW
    is_narrow = tile.dtype.nbytes == node.target.dtype.nbytes == _NARROW
    if not is_narrow or (tile.rows, tile.columns) != (node.source.rows, node.source.columns) or tile.columns % width:
        return None
    described = matrix_map(fetch.source, STile("operand", tile.dtype, tile.rows, width), kernel)
    if described is None:
        return None
    target = max((load.target for load in ring.loads), key=lambda each: each.layout.size * each.layout.nbytes)
    per_stage = target.layout.size * target.layout.nbytes // (described.tile.layout.size * _NARROW)
    return BoxOperand(fetch, described, shared[target], target.layout.size, per_stage) if per_stage else None
