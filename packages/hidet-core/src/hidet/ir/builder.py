"""Writes the body of a function statement by statement, in the order in which it runs; blocks are `with` statements.

    k = IRBuilder()
    item = k.let("item", block * 128 + thread)
    with k.if_(item < count):
        total = k.let("total", zero)
        with k.for_range("step", steps) as step:
            k.assign(total, total + build.load(x, item * steps + step))
        k.store(y, item, total)
    function = Function("row_sums", params, k.body, "kernel", (block,))

Expressions are values of Python: nothing is computed before a statement uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Break, Declare, Evaluate, For, If, LoopKind, Return, Stmt, Store, While
from hidet.ir.types import BufferType, MemorySpace

Given = TypeVar("Given")


class IRBuilder:
    """The statements of one function, or of a part of it, under construction."""

    def __init__(self) -> None:
        self._blocks: list[list[Stmt]] = [[]]

    @property
    def body(self) -> Stmt:
        """All statements so far, as one. VerifyError inside of an open block."""
        if len(self._blocks) != 1:
            raise VerifyError("a block of the builder is still open", hint="ask for the body behind its `with`")
        return build.seq(self._blocks[0])

    def emit(self, *stmts: Stmt) -> None:
        """Add finished statements."""
        self._blocks[-1].extend(stmts)

    def let(self, name: str, value: Expr) -> Var:
        """A new variable with a first value, of whose type it is."""
        var = Var(name, value.type)
        self.declare(var, value)
        return var

    def let_each(self, name: str, values: Iterable[Expr]) -> list[Var]:
        """New variables `name`0, `name`1, … with these first values."""
        return [self.let(f"{name}{number}", value) for number, value in enumerate(values)]

    def array(self, name: str, dtype: DType, *shape: Expr | int, space: MemorySpace = "register") -> Var:
        """A new array with undefined elements. space: a thread's registers, or a block's shared memory."""
        var = Var(name, BufferType(dtype, tuple(map(build.index, shape)), space=space))
        self.declare(var)
        return var

    def declare(self, var: Var, value: Expr | None = None) -> None:
        """Introduce a variable that exists already, for the rest of the block."""
        self._blocks[-1].append(Declare(var, value))

    def assign(self, var: Var, value: Expr) -> None:
        """Give a variable another value."""
        self._blocks[-1].append(Assign(var, value))

    def assign_each(self, variables: Sequence[Var], values: Sequence[Expr]) -> None:
        """One value for each variable, one behind the other."""
        for var, value in zip(variables, values, strict=True):
            self.assign(var, value)

    def store(
        self, buffer: Expr, index: Expr | int | tuple[Expr | int, ...], value: Expr, mask: Expr | None = None
    ) -> None:
        """Write an element of a pointer or a buffer, at one index for each of its axes; a vector writes as many as it
        has lanes, or those whose lane of `mask` is set."""
        indices = index if isinstance(index, tuple) else (index,)
        self._blocks[-1].append(Store(buffer, tuple(map(build.index, indices)), value, mask))

    def store_each(self, buffers: Sequence[Expr], index: Expr | int, values: Sequence[Expr]) -> None:
        """Write one value to each buffer, at the same index."""
        for buffer, value in zip(buffers, values, strict=True):
            self.store(buffer, index, value)

    def run(self, call: Expr) -> None:
        """Make a call for its effect."""
        self.emit(Evaluate(call))

    def for_range(
        self, name: str, extent: Expr | int, start: Expr | int = 0, step: int = 1, kind: LoopKind = "serial"
    ) -> AbstractContextManager[Var]:
        """A loop over start, start + step, … below start + extent; gives its index, an i64."""
        var = build.size_var(name)
        return _Block(self._blocks, var, _loop_over(var, extent, start, step, kind))

    def loop(
        self, var: Var, extent: Expr | int, start: Expr | int = 0, step: int = 1, kind: LoopKind = "serial"
    ) -> AbstractContextManager[None]:
        """The same over a variable that expressions name already."""
        return _Block(self._blocks, None, _loop_over(var, extent, start, step, kind))

    def while_(self, condition: Expr) -> AbstractContextManager[None]:
        """A loop as long as a condition holds."""
        return _Block(self._blocks, None, lambda body: While(condition, body))

    def if_(self, condition: Expr) -> AbstractContextManager[None]:
        """Statements that run where a condition holds."""
        return _Block(self._blocks, None, lambda body: If(condition, body))

    def else_(self) -> AbstractContextManager[None]:
        """Statements that run where the condition of the `if_` right before does not hold. VerifyError elsewhere."""
        stmts = self._blocks[-1]
        before = stmts[-1] if stmts else None
        if not isinstance(before, If) or before.otherwise is not None:
            raise VerifyError("else_ stands right behind the block of an if_")
        stmts.pop()
        return _Block(self._blocks, None, lambda body: If(before.condition, before.then, body, before.loc))

    def break_(self) -> None:
        """Leave the innermost loop."""
        self.emit(Break())

    def return_(self, value: Expr | None = None) -> None:
        """Leave the function, with its result where it has one."""
        self.emit(Return(value))


def _loop_over(var: Var, extent: Expr | int, start: Expr | int, step: int, kind: LoopKind) -> Callable[[Stmt], Stmt]:
    first, count = build.index(start), build.index(extent)
    return lambda body: For(var, first, count, body, step, kind)


class _Block(Generic[Given]):
    """The `with` statement of a block: `made` of its statements is a statement of the block around. Kernels
    have many: with `contextlib.contextmanager` building them takes a tenth longer."""

    __slots__ = ("_blocks", "_given", "_made")

    def __init__(self, blocks: list[list[Stmt]], given: Given, made: Callable[[Stmt], Stmt]) -> None:
        self._blocks, self._given, self._made = blocks, given, made

    def __enter__(self) -> Given:
        self._blocks.append([])
        return self._given

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        stmts = self._blocks.pop()
        if error is None:
            self._blocks[-1].append(self._made(build.seq(stmts)))
