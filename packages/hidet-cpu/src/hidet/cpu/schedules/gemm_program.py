"""Putting a program of several kernels together, and parameters of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch
from hidet.schedule.entry import EntryBuilder
from hidet.schedule.lowering import KernelScope


def parameter(scope: KernelScope, dim: Dim, name: str) -> Var:
    """A parameter of a kernel even for 0 and 1, which `KernelScope.size` makes constants: for sizes that are chosen,
    or whose being 0 or 1 would not make better code."""
    variable = build.size_var(name)
    scope.sizes.append(variable)
    scope.arguments.append(dim)
    return variable


class ProgramBuilder(EntryBuilder):
    """Launches kernels over grids, each with its cost."""

    def run_either(self, condition: Expr, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Do what `first` adds to the entry function where a condition holds, else what `second` adds."""
        before = self._stmts
        self._stmts = []
        first()
        then, self._stmts = build.seq(self._stmts), []
        second()
        self._stmts = [*before, If(condition, then, build.seq(self._stmts))]

    def launch(
        self, function: Function, pointers: Sequence[Expr], scope: KernelScope, grid: Sequence[Dim], cost: Dim
    ) -> None:
        """Run a kernel of (`pointers`, sizes of `scope`); `cost` in nanoseconds of one grid index."""
        self.add((function,))
        sizes = [self.size(dim) for dim in scope.arguments]
        extents = tuple(self.size(extent) for extent in grid)
        self.run(Launch(function.name, extents, (*pointers, *sizes), cost=self.size(cost)))
