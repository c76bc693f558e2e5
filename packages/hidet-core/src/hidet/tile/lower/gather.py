"""Matrices whose elements lie at computed places: what depends on a row alone is computed once, before all loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType
from hidet.ir.visit import substitute
from hidet.tile.tensors import Gathered


@dataclass(frozen=True, slots=True, eq=False)
class GatheredRows:
    """The rows of a matrix that a thread loads from, one a turn: an array of `turns` numbers for each row value."""

    source: Gathered
    turns: int
    arrays: tuple[Var, ...]

    def declared(self, row: Callable[[Expr], Expr]) -> list[s.Stmt]:
        """The arrays, filled: `row(turn)` is the row of a turn."""
        turn = build.size_var("turn")
        own = {self.source.row: row(turn)}
        values = [substitute(value, own) for _, value in self.source.row_values]
        stores = [s.Store(array, (turn,), value) for array, value in zip(self.arrays, values, strict=True)]
        fill = s.For(turn, build.index(0), build.index(self.turns), build.seq(stores), kind="unroll")
        return [*(s.Declare(array) for array in self.arrays), fill]

    def part(self, turn: Expr, column: Expr) -> tuple[list[s.Stmt], Expr, Expr]:
        """Statements, and after them the address and whether it is inside, of what a thread loads in a turn."""
        values: dict[Var, Expr] = {
            var: build.load(array, turn) for (var, _), array in zip(self.source.row_values, self.arrays, strict=True)
        }
        before: list[s.Stmt] = []
        for var, value in self.source.column_values:
            own = Var(var.name, var.type)
            before.append(s.Declare(own, substitute(value, {self.source.column: column})))
            values[var] = own
        place = build.binary("add", self.source.pointer, substitute(self.source.place, values))
        return before, place, substitute(self.source.inside, values)


def gathered_rows(source: Gathered, turns: int) -> GatheredRows:
    """Room for the rows of `turns` turns."""
    arrays = [
        Var(var.name, BufferType(var.dtype, (build.index(turns),), None, "register")) for var, _ in source.row_values
    ]
    return GatheredRows(source, turns, tuple(arrays))
