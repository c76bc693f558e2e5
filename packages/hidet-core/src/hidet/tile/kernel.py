"""A kernel in tiles: what one block does."""

from __future__ import annotations

from dataclasses import dataclass

from hidet.ir.expr import Expr, Var
from hidet.tile.statements import TileStmt


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

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]
