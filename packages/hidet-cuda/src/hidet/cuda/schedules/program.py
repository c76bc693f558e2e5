"""Putting a program of several kernels together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from hidet import dtypes
from hidet.compute.definition import Operand
from hidet.cuda.schedules.lanes import BYTES
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.ir.func import Function
from hidet.ir.stmt import If, Launch, Stmt
from hidet.schedule.entry import EntryBuilder
from hidet.schedule.task import Task
from hidet.tile.lower.pipeline import MatrixMap


class ProgramBuilder(EntryBuilder):
    """Launches kernels with blocks of threads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._is_aligned = {tensor.operand: tensor.is_aligned for tensor in (*task.inputs, *task.outputs)}

    def are_aligned(self, operands: Iterable[Operand]) -> Expr | None:
        """Whether tensors of the task start at multiples of 16 bytes, asked at every call, because views may start
        anywhere; None where all are known to."""
        unknown = [operand for operand in dict.fromkeys(operands) if not self._is_aligned[operand]]
        if not unknown:
            return None
        bits: list[Expr] = [Bitcast(self.pointers[operand], dtypes.i64) for operand in unknown]
        together = functools.reduce(functools.partial(build.binary, "or"), bits)
        return build.equal(build.binary("and", together, BYTES - 1), 0)

    def by_alignment(self, operands: Iterable[Operand], fast: Stmt, slow: Callable[[], Stmt]) -> Stmt:
        """`fast` where the tensors start at multiples of 16 bytes, else `slow`, which is made only if it may run."""
        aligned = self.are_aligned(operands)
        return fast if aligned is None else If(aligned, fast, slow())

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
