"""Results that TMA brings to memory, box by box, while the warps that have computed them go on with the next tile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.maps import MatrixMap, matrix_map
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.lower.parts import Parts
from hidet.gpu.tile.statements import Store
from hidet.gpu.tile.tensors import STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr


@dataclass(frozen=True, slots=True, eq=False)
class BoxStores:
    """`hidet.gpu.tile.lower.store.StagedParts` whose boxes TMA writes by the map `described`. A lane asks
    for them and waits for them: what it asks for at once is a group."""

    node: Store
    described: MatrixMap
    parts: Parts
    slots: int

    def free(self) -> list[s.Stmt]:
        """The part of so many before has been read."""
        return [self._by_first_lane(intrinsic_call("cuda.bulk_wait_read", self.slots - 1)), self.parts.meet]

    def write(self, staging: Expr, place: Expr, part: tuple[Expr, Expr]) -> list[s.Stmt]:
        """Ask for a box to be written."""
        row, column = self.parts.origin(*part)
        asked = [
            self.described.store(build.address(staging, place), self.node.row + row, self.node.column + column),
            s.Evaluate(intrinsic_call("cuda.bulk_commit")),
        ]
        # TMA reads shared memory past the threads' own path to it.
        visible = s.Evaluate(intrinsic_call("cuda.fence_async_shared"))
        return [visible, self.parts.meet, s.If(build.equal(self.parts.lane, 0), build.seq(asked))]

    def finish(self) -> s.Stmt:
        """All has been read, before the block's shared memory becomes another one's."""
        return self._by_first_lane(intrinsic_call("cuda.bulk_wait_read", 0))

    def _by_first_lane(self, call: Expr) -> s.Stmt:
        return s.If(build.equal(self.parts.lane, 0), s.Evaluate(call))


def box_stores(node: Store, parts: Parts, kernel: TileKernel, fits: Callable[[int], bool]) -> BoxStores | None:
    """How TMA writes what is staged; None where it cannot.

    fits: whether a block has room for so many parts besides one; as many are staged as have room, at most a whole tile.
    """
    layout = parts.layout
    described = matrix_map(node.target, STile("results", node.target.dtype, layout.rows, layout.columns), kernel)
    if described is None:
        return None
    number = math.prod(parts.counts)
    slots = next((count for count in range(number, 1, -1) if number % count == 0 and fits(count - 1)), 1)
    return BoxStores(node, described, parts, slots)
