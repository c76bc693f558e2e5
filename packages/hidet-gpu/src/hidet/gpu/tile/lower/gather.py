"""Matrices whose elements lie at computed places: what depends on a row alone is computed once, before all loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hidet.gpu.tile.tensors import Gathered
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType
from hidet.ir.visit import substitute


@dataclass(frozen=True, slots=True, eq=False)
class GatheredRows:
    """The rows of a matrix that a thread loads from, one a turn: an array of `turns` numbers for each row value."""

    source: Gathered
    turns: int
    arrays: tuple[Var, ...]

    def declared(self, row: Callable[[Expr], Expr]) -> list[s.Stmt]:
        """The arrays, filled: `row(turn)` is the row of a turn."""
        turn = build.size_var("turn")
        stmts, values = _computed(self.source.row_values, {self.source.row: row(turn)})
        kept = zip(self.source.row_values, self.arrays, strict=True)
        stores = [s.Store(array, (turn,), values[var]) for (var, _), array in kept]
        body = build.seq([*stmts, *stores])
        fill = s.For(turn, build.index(0), build.index(self.turns), body, kind="unroll")
        return [*(s.Declare(array) for array in self.arrays), fill]

    def columns(self, column: Expr) -> tuple[list[s.Stmt], dict[Var, Expr]]:
        """Statements that compute the column values of a column, and these values."""
        return _computed(self.source.column_values, {self.source.column: column})

    def part(self, turn: Expr, columns: Mapping[Var, Expr]) -> tuple[Expr, Expr]:
        """Address of what a thread loads in a turn, and whether it is inside."""
        rows = zip(self.source.row_values, self.arrays, strict=True)
        values = {**columns, **{var: build.load(array, turn) for (var, _), array in rows}}
        place = build.binary("add", self.source.pointer, substitute(self.source.place, values))
        return place, substitute(self.source.inside, values)


def gathered_rows(source: Gathered, turns: int) -> GatheredRows:
    """Room for the rows of `turns` turns."""
    arrays = [
        Var(var.name, BufferType(var.dtype, (build.index(turns),), None, "register")) for var, _ in source.row_values
    ]
    return GatheredRows(source, turns, tuple(arrays))


def _computed(formulas: Sequence[tuple[Var, Expr]], values: dict[Var, Expr]) -> tuple[list[s.Stmt], dict[Var, Expr]]:
    """Statements that compute variables from `values` and from those before them; all values by variable."""
    stmts: list[s.Stmt] = []
    for var, formula in formulas:
        own = Var(var.name, var.type)
        stmts.append(s.Declare(own, substitute(formula, values)))
        values = {**values, var: own}
    return stmts, values
