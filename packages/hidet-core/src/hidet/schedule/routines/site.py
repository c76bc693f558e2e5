"""What a routine's kernel is written against: the task's tensors, sizes and scratch memory, wherever they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet.compute.definition import Operand, Routine
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Stmt


@dataclass(frozen=True, slots=True, eq=False)
class RoutineSite:
    """One use of a routine.

    read: an element of an operand. write: the statement that sets an element of a result. size: an extent inside the
    kernel. scratch: memory of so many elements that all work items share, as a pointer inside the kernel.
    """

    stage: Routine
    read: Callable[[Operand, Sequence[Expr]], Expr]
    write: Callable[[Operand, Sequence[Expr], Expr], Stmt]
    size: Callable[[Dim], Expr]
    scratch: Callable[[str, DType, Dim], Var]


@dataclass(frozen=True, slots=True, eq=False)
class RoutineKernel:
    """The body of a kernel that runs once for every value of `item` below `grid`, in any order."""

    item: Var
    grid: Dim
    body: Stmt


def unflatten(position: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """Indices of the element number `position` in row-major order."""
    indices: list[Expr] = []
    for extent in reversed(extents):
        indices.append(position % extent)
        position = position // extent
    return indices[::-1]


RoutineProgram = Callable[[RoutineSite], RoutineKernel]
