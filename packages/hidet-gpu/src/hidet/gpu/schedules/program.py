"""Putting a program of several kernels together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hidet import dtypes
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.gpu.schedules.lanes import BYTES
from hidet.ir import build
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, If, Launch, Stmt
from hidet.schedule.entry import EntryBuilder
from hidet.schedule.task import Task

Computed = Callable[[Mapping[Var, Expr]], Expr]
"""An argument of a kernel that host code makes of the others: a function of those by parameter."""

_MOST_ALONG_Y = 65535
"""Blocks that every GPU takes along the second axis of a grid; along the first one there are 2^31."""


class ProgramBuilder(EntryBuilder):
    """Launches kernels with blocks of threads.

    weights: operands that nothing writes in a call (`hidet.gpu.weights`).
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.weights = frozenset(tensor.operand for tensor in task.inputs if tensor.is_weight)
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

    def by_alignment(
        self, operands: Iterable[Operand], fast: Stmt, slow: Callable[[], Stmt], conditions: Sequence[Expr] = ()
    ) -> Stmt:
        """`fast` where tensors start at multiples of 16 bytes and `conditions` hold, else `slow`, which is made only if
        it may run."""
        aligned = self.are_aligned(operands)
        asked = [*conditions, *([] if aligned is None else [aligned])]
        return If(build.logical_and(*asked), fast, slow()) if asked else fast

    def launch(
        self,
        function: Function,
        pointers: Sequence[Expr],
        sizes: Sequence[Dim],
        grid: Sequence[Expr],
        threads: int,
        computed: Sequence[Computed] = (),
    ) -> Launch:
        """A launch of a kernel of (`pointers`, `sizes`, `computed`) over one or two indices; the caller puts it into a
        statement for `run`."""
        arguments = [*pointers, *[self.size(dim) for dim in sizes]]
        if len(grid) > 1 and not _fits_along_y(grid[1]):
            assert not computed, "arguments that are computed are the last ones"
            function, grid, arguments = _over_one_index(function), (grid[0] * grid[1],), [*arguments, grid[0]]
        self._functions.append(function)
        given = dict(zip(function.params, arguments, strict=False))
        arguments += [argument(given) for argument in computed]
        return Launch(function.name, tuple(grid), tuple(arguments), block=(build.index(threads),))

    def name(self) -> str:
        """A name for the next kernel."""
        return f"kernel{len(self._functions)}"


def _fits_along_y(extent: Expr) -> bool:
    return isinstance(extent, Const) and isinstance(extent.value, int) and extent.value <= _MOST_ALONG_Y


def _over_one_index(function: Function) -> Function:
    """A kernel over two indices as one over their product, with the first one's extent as its last parameter."""
    block, extent = build.size_var("block"), build.size_var("extent")
    # No grid has more than 2^31 blocks, and 32-bit division takes a third of the instructions.
    number, count = (build.cast(value, dtypes.u32) for value in (block, extent))
    places = (number % count, number // count)
    declared = [
        Declare(var, build.cast(place, dtypes.i64)) for var, place in zip(function.grid_vars, places, strict=True)
    ]
    body = build.seq([*declared, function.body])
    return replace(function, params=(*function.params, extent), grid_vars=(block,), body=body)
