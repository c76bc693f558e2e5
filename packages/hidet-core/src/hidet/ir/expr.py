"""Expressions of the thread IR and of compute definitions.

    expr := Var(name, type)                      a parameter, loop index or local; identity is the object
          | Const(value, type)
          | Size(dim)                            a symbolic extent, i64
          | Unary(op, a) | Binary(op, a, b)      op from scalar_ops
          | Select(condition, a, b)              both sides may be evaluated
          | Cast(a, type) | Bitcast(a, type)
          | Load(buffer, indices)                memory read; lanes > 1 reads consecutive elements
          | AddressOf(buffer, indices)
          | Call(callee, arguments, intrinsic)   an intrinsic, or a function of the module by name
          | Broadcast(a, lanes) | Extract(a, lane) | Shuffle(a, b, picked)
    and only inside compute definitions:
          | Access(operand, indices)             element of an operand tensor
          | Reduce(combiner, axes, extents, values, result)

Raw classes are dumb; `hidet.ir.build` holds the constructors that type-check and fold.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hidet.ir.node import IRNode, node
from hidet.ir.types import Type, element_dtype, lanes_of

if TYPE_CHECKING:
    from hidet.dims import DimExpr
    from hidet.dtypes import DType
    from hidet.ir.combiner import Combiner
    from hidet.ir.intrinsic import Intrinsic
    from hidet.ir.operand import Operand

Number = bool | int | float | complex


class Expr(IRNode):
    """An expression; every subclass has `type`. Arithmetic operators build folded nodes; `==` stays identity."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def type(self) -> Type: ...

    @property
    def dtype(self) -> DType:
        """Element type of this expression's value."""
        return element_dtype(self.type)

    @property
    def lanes(self) -> int:
        """SIMD lanes of this expression's value; 1 for scalars."""
        return lanes_of(self.type)

    def __add__(self, other: ExprLike) -> Expr:
        return _binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return _binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return _binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return _binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _binary("floordiv", self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return _binary("mod", self, other)

    def __lt__(self, other: ExprLike) -> Expr:
        return _binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return _binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return _binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return _binary("ge", self, other)

    def __neg__(self) -> Expr:
        return _negate(self)

    def __bool__(self) -> bool:
        raise TypeError("an IR expression has no truth value at build time; use build.select or If")


ExprLike = Expr | bool | int | float


def _binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    result: Expr = _constructors().binary(op, a, b)
    return result


def _negate(a: Expr) -> Expr:
    result: Expr = _constructors().unary("neg", a)
    return result


@functools.cache
def _constructors() -> Any:
    # Imported at first use: hidet.ir.build builds the classes of this file.
    from hidet.ir import build

    return build


@node
class Var(Expr):
    """A named value or buffer. Two variables are the same only if they are the same object."""

    name: str
    type: Type


@node
class Const(Expr):
    """A literal of scalar type (or broadcast to a vector type)."""

    value: Number
    type: Type


@node
class Size(Expr):
    """A symbolic extent as an i64 value; schedules turn it into a kernel parameter."""

    dim: DimExpr
    type: Type


@node
class Unary(Expr):
    op: str
    a: Expr
    type: Type


@node
class Binary(Expr):
    op: str
    a: Expr
    b: Expr
    type: Type


@node
class Select(Expr):
    """`a` where `condition` else `b`. Loads in the branch not taken are not performed."""

    condition: Expr
    a: Expr
    b: Expr
    type: Type


@node
class Cast(Expr):
    """Value conversion; float to int truncates toward zero, int to bool tests for non-zero."""

    a: Expr
    type: Type


@node
class Bitcast(Expr):
    """Reinterpretation of the same number of bits. A word of as many bits as a bool vector has lanes becomes that
    vector, lane i from bit i."""

    a: Expr
    type: Type


@node
class Load(Expr):
    """Read `type` at `indices` of `buffer` (a pointer or buffer variable); a vector type reads consecutive elements.

    `mask`, if given, is a bool vector: lanes where it is false are not read and give zero.
    """

    buffer: Expr
    indices: tuple[Expr, ...]
    type: Type
    mask: Expr | None = None


@node
class AddressOf(Expr):
    """Pointer to the element at `indices` of `buffer`."""

    buffer: Expr
    indices: tuple[Expr, ...]
    type: Type


@node
class Call(Expr):
    """Call of an intrinsic or of a function of the same module.

    intrinsic: what it calls, `callee` being its name; None for functions. The type of a call that gives no value is
    None; such a call stands in `Evaluate` only.
    """

    callee: str
    arguments: tuple[Expr, ...]
    type: Type
    intrinsic: Intrinsic | None = None


@node
class Broadcast(Expr):
    """A vector whose lanes all equal the scalar `a`."""

    a: Expr
    type: Type


@node
class Extract(Expr):
    """Lane `lane` of the vector `a`."""

    a: Expr
    lane: int
    type: Type


@node
class Shuffle(Expr):
    """The vector of the numbered lanes of the vectors `a` and `b`; those of `b` are counted on from those of `a`."""

    a: Expr
    b: Expr
    picked: tuple[int, ...]
    type: Type


@node
class Access(Expr):
    """Element `indices` of an operand tensor; only in compute definitions."""

    operand: Operand
    indices: tuple[Expr, ...]
    type: Type


@node
class Reduce(Expr):
    """Result number `result` of reducing `values` over `axes` with `combiner`; only in compute definitions.

    `axes` are fresh i64 variables bound here, `extents` their sizes; an empty range gives the combiner's identity.
    """

    combiner: Combiner
    axes: tuple[Var, ...]
    extents: tuple[Expr, ...]
    values: tuple[Expr, ...]
    result: int
    type: Type


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # What plug-ins add.
        return import_module("hidet.plugins.attributes").find("hidet.ir.expr", name)
