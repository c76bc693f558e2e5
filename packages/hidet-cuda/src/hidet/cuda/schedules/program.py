"""Putting a program of several kernels together: the entry function's parameters, scratch buffers and launches."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch, Stmt
from hidet.ir.types import PointerType
from hidet.schedule.rule import Program
from hidet.schedule.task import Task


class ProgramBuilder:
    """Collects kernels and the statements of the entry function that launches them in order."""

    def __init__(self, task: Task) -> None:
        tensors = (*task.inputs, *task.outputs)
        self.pointers: dict[Operand, Var] = {
            t.operand: Var(t.operand.name, PointerType(t.operand.dtype)) for t in tensors
        }
        self._scratch: list[Var] = []
        self._scratch_bytes: list[Dim] = []
        self._sizes: list[Var] = []
        self._arguments: list[Dim] = []
        self._functions: list[Function] = []
        self._stmts: list[Stmt] = []

    def scratch(self, name: str, dtype: DType, elements: Dim) -> Var:
        """A buffer that lives while the program runs, as a pointer of the entry function."""
        pointer = Var(name, PointerType(dtype))
        self._scratch.append(pointer)
        self._scratch_bytes.append(elements * dtype.nbytes)
        return pointer

    def size(self, dim: Dim) -> Expr:
        """`dim` as a parameter of the entry function, whatever its value, so that sizes do not make other programs."""
        self._sizes.append(build.size_var(f"a{len(self._sizes)}"))
        self._arguments.append(dim)
        return self._sizes[-1]

    def launch(
        self, function: Function, pointers: Sequence[Expr], sizes: Sequence[Dim], grid: Sequence[Expr], threads: int
    ) -> Launch:
        """A launch of a kernel of (`pointers`, `sizes`); the caller puts it into a statement for `run`."""
        self._functions.append(function)
        arguments = (*pointers, *[self.size(dim) for dim in sizes])
        return Launch(function.name, tuple(grid), arguments, block=(build.index(threads),))

    def run(self, stmt: Stmt) -> None:
        """Add a statement to the entry function."""
        self._stmts.append(stmt)

    def name(self) -> str:
        """A name for the next kernel."""
        return f"kernel{len(self._functions)}"

    def program(self) -> Program:
        """All of it."""
        parameters = (*self.pointers.values(), *self._scratch, *self._sizes)
        entry = Function("entry", parameters, build.seq(self._stmts), kind="host")
        return Program(Module((*self._functions, entry), "entry"), tuple(self._arguments), tuple(self._scratch_bytes))
