"""Putting a program of several kernels together."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.schedule.entry import EntryBuilder
from hidet.tile.lower.pipeline import MatrixMap


class ProgramBuilder(EntryBuilder):
    """Launches kernels with blocks of threads."""

    def launch(
        self,
        function: Function,
        pointers: Sequence[Expr],
        sizes: Sequence[Dim],
        grid: Sequence[Expr],
        threads: int,
        maps: Sequence[MatrixMap] = (),
    ) -> Launch:
        """A launch of a kernel of (`pointers`, `sizes`, `maps`); the caller puts it into a statement for `run`."""
        self._functions.append(function)
        arguments = [*pointers, *[self.size(dim) for dim in sizes]]
        given = dict(zip(function.params, arguments, strict=False))
        arguments += [described.request(given).call() for described in maps]
        return Launch(function.name, tuple(grid), tuple(arguments), block=(build.index(threads),))

    def name(self) -> str:
        """A name for the next kernel."""
        return f"kernel{len(self._functions)}"
