"""Statements of the thread IR.

stmt := Seq(stmts)
      | Declare(var, init)            a local scalar, vector or array; init None leaves it undefined
      | Assign(var, value)
      | Store(buffer, indices, value) memory write; a vector value writes consecutive elements
      | For(var, start, extent, body, kind)
      | While(condition, body) | If(condition, then, otherwise) | Break() | Continue()
      | Return(value) | Evaluate(expr) | Assert(condition, message, values)
      | Print(text, values)           formatted text to standard output
      | Assembly(text, results, updates, arguments)   instructions in the target's own language
      | Launch(kernel, grid, arguments)   run a kernel of this module (or a linked one) once per grid index
      | Invoke(function, arguments)       call a host function of this module (or a linked one)

`loc` of a statement is its place in the user's script. It is no part of what the statement means: it is neither printed
nor part of structural identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hidet.ir.expr import Expr, Var
from hidet.ir.node import IRNode, node
from hidet.loc import Loc

LoopKind = Literal["serial", "unroll", "vectorize"]

ASSERTED_VALUES = 2
"""How many values an assertion tells at most."""


def fill_in(message: str, values: Iterable[object]) -> str:
    """A message with a value for each `{}` in it, in order."""
    for value in values:
        message = message.replace("{}", str(value), 1)
    return message


class Stmt(IRNode):
    """A statement."""

    __slots__ = ()


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class Declare(Stmt):
    """Introduce `var` for the rest of the enclosing `Seq`. Buffer types get memory of their constant shape."""

    var: Var
    init: Expr | None = None
    loc: Loc | None = None


@node
class Assign(Stmt):
    var: Var
    value: Expr
    loc: Loc | None = None


@node
class Store(Stmt):
    """Write `value` at `indices` of `buffer`; where the bool vector `mask` is false nothing is written."""

    buffer: Expr
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    loc: Loc | None = None


@node
class For(Stmt):
    """Run `body` with `var` = start, start + step, … while var < start + extent.

    `kind`: "serial", "unroll" (fully, the extent is constant) or "vectorize" (iterations are independent but for
    reductions into locals; the code generator asks the target to use SIMD).
    """

    var: Var
    start: Expr
    extent: Expr
    body: Stmt
    step: int = 1
    kind: LoopKind = "serial"
    loc: Loc | None = None


@node
class While(Stmt):
    condition: Expr
    body: Stmt
    loc: Loc | None = None


@node
class If(Stmt):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None
    loc: Loc | None = None


@node
class Break(Stmt):
    pass


@node
class Continue(Stmt):
    pass


@node
class Return(Stmt):
    value: Expr | None = None
    loc: Loc | None = None


@node
class Evaluate(Stmt):
    """Evaluate a call for its effect."""

    expr: Expr
    loc: Loc | None = None


@node
class Assert(Stmt):
    """The call ends here where `condition` is false, with an error that says `message`. Each `{}` in it stands for the
    i64 of `values` in its place, as it is then; at most `ASSERTED_VALUES`. One without values is reported as it is
    written."""

    condition: Expr
    message: str
    loc: Loc | None = None
    values: tuple[Expr, ...] = ()

    def fill_message(self, values: Iterable[object]) -> str:
        """`message` with these values in the places of its braces."""
        return fill_in(self.message, values)


@node
class Print(Stmt):
    """Write `text` to standard output, its directives replaced by `values` as C's printf does (ISO C11, 7.21.6.1).

    Directives carry no length modifier: `hidet.ir.print_format` adds what each value's type needs.
    """

    text: str
    values: tuple[Expr, ...]
    loc: Loc | None = None


@node
class Assembly(Stmt):
    """Instructions in the assembly language of the target, which alone knows what they do.

    text: its operands %0, %1, … are the elements of `results`, which it writes, those of `updates`, which it reads and
    writes, and the values of `arguments`. results, updates: arrays of one element in registers. has_effect: it is never
    left out or moved, even if nothing uses its results. touches_memory: it reads or writes memory besides.
    """

    text: str
    results: tuple[Var, ...]
    updates: tuple[Var, ...]
    arguments: tuple[Expr, ...]
    has_effect: bool = True
    touches_memory: bool = False
    loc: Loc | None = None


@node
class Launch(Stmt):
    """Run kernel `kernel` once for every index below `grid`; indices are independent and may run in any order.

    On a CPU target `cost` (estimated nanoseconds of one index, None = unknown) decides whether the thread pool is used.
    With a `block` of threads, which only a GPU has, the kernel runs once for every thread below `block` of every grid
    index; the threads of one index share memory and may wait for each other. `cluster`: how many neighbouring grid
    indices, by axis, run at the same time and see each other's shared memory; () is one. `shared_bytes`: shared memory
    of an index beyond what the kernel declares, None for none. is_cooperative: all grid indices run at the same time
    and may wait for each other; a device refuses more of them than it can hold.
    """

    kernel: str
    grid: tuple[Expr, ...]
    arguments: tuple[Expr, ...]
    cost: Expr | None = None
    block: tuple[Expr, ...] = ()
    cluster: tuple[Expr, ...] = ()
    shared_bytes: Expr | None = None
    is_cooperative: bool = False
    loc: Loc | None = None


@node
class Invoke(Stmt):
    """Call host function `function`, of this module or linked from another, which returns nothing.

    is_independent: whether nothing that the call launches first writes what the calls before it, back to the last one
    that is not independent, read or write, or reads what they write: it may run beside what they launched.
    """

    function: str
    arguments: tuple[Expr, ...]
    is_independent: bool = False
    loc: Loc | None = None
