"""The entry function of a program under construction: its parameters, scratch buffers and statements."""

from __future__ import annotations

from collections.abc import Iterable

from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Stmt
from hidet.ir.types import PointerType
from hidet.schedule.rule import HigherIR, Program
from hidet.schedule.task import Task


class EntryBuilder:
    """Collects functions and the statements of the entry function that runs kernels in order.

    How a kernel is launched is a target's own affair: its builder derives from this one.
    """

    def __init__(self, task: Task) -> None:
        tensors = (*task.inputs, *task.outputs)
        self.pointers = {t.operand: Var(t.operand.name, PointerType(t.operand.dtype)) for t in tensors}
        self._scratch: list[Var] = []
        self._scratch_bytes: list[Dim] = []
        self._sizes: list[Var] = []
        self._arguments: list[Dim] = []
        self._functions: list[Function] = []
        self._stmts: list[Stmt] = []
        self._lowered_from: list[HigherIR] = []

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

    def run(self, stmt: Stmt) -> None:
        """Do something in the entry function itself, before what is launched next."""
        self._stmts.append(stmt)

    def add(self, functions: Iterable[Function]) -> None:
        """Functions of the program: kernels, and what they call; those that several of them share once."""
        for function in functions:
            if not any(function is added for added in self._functions):
                self._functions.append(function)

    def record(self, kernel: HigherIR) -> None:
        """Keep what a kernel is lowered from, for dumps and the verifier."""
        self._lowered_from.append(kernel)

    def program(self) -> Program:
        """The finished program."""
        parameters = (*self.pointers.values(), *self._scratch, *self._sizes)
        entry = Function("entry", parameters, build.seq(self._stmts), kind="host")
        module = Module((*self._functions, entry), "entry")
        return Program(module, tuple(self._arguments), tuple(self._scratch_bytes), tuple(self._lowered_from))
