"""A kernel in tiles: what one block does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hidet.gpu.tile.statements import TileStmt
from hidet.ir.expr import Expr, Var

WARP = 32
"""Threads of a warp, over which matrix instructions spread their operands."""


@dataclass(frozen=True, slots=True, eq=False)
class TileKernel:
    """What block (grid_vars) of a grid does.

    warps: along the rows and columns of register tiles; each computes an equal part. index_values: what is computed
    once at the start, in order: (variable, value). grid: extents of `grid_vars` over `params`, of columns and rows of
    tiles first; () where the caller alone knows them, who then launches a block for each.
    """

    name: str
    params: tuple[Var, ...]
    grid_vars: tuple[Var, ...]
    warps: tuple[int, int]
    body: tuple[TileStmt, ...]
    index_values: tuple[tuple[Var, Expr], ...] = ()
    grid: tuple[Expr, ...] = ()

    ending: ClassVar[str] = ".tile"

    def text(self) -> str:
        """The kernel as `hidet.gpu.tile.printer` prints it. With `verify` and `name`, this makes it a
        `hidet.schedule.rule.HigherIR`."""
        from hidet.gpu.tile.printer import print_kernel

        return print_kernel(self)

    def verify(self) -> None:
        """Raise VerifyError for the first rule of tile programs that the kernel breaks."""
        from hidet.gpu.tile.verify import verify_kernel

        verify_kernel(self)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.warps[0] * self.warps[1]
