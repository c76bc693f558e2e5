"""Constructors that type-check, convert Python numbers and fold constants at build time.

Index arithmetic (i64) is folded hardest, because shapes and offsets dominate what passes build.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hidet import dims, dtypes
from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir.constants import Real, converted, held, is_foldable, wrapped
from hidet.ir.expr import (
    AddressOf,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Extract,
    Load,
    Number,
    Select,
    Shuffle,
    Size,
    Unary,
    Var,
)
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.stmt import Seq, Stmt
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, lanes_of, with_lanes

if TYPE_CHECKING:
    from collections.abc import Callable

INDEX = dtypes.i64


def const(value: Number, dtype: DType) -> Const:
    """A literal of `dtype`; the value is converted to Python bool, int or float accordingly."""
    if dtype.kind == "bool":
        return Const(bool(value), dtype)
    if dtype.is_int and not isinstance(value, complex):
        return Const(int(value), dtype)
    return Const(value if isinstance(value, complex) else float(value), dtype)


def index(value: Expr | Dim) -> Expr:
    """An i64 expression of an int, a symbolic dimension, or an i64 expression itself."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, DimExpr):
        return Size(value, INDEX)
    return index_number(int(value))


@functools.lru_cache(maxsize=4096)
def index_number(value: int) -> Const:
    """The i64 literal of a number, one object each: programs repeat few of them very often, and what is shared is
    hashed and emitted once."""
    return Const(value, INDEX)


def as_expr(value: ExprLike, like: Type) -> Expr:
    """`value` as an expression; numbers and sizes take the element type of `like`, scalars its lanes.

    What is added to a pointer, or meets a bool, is an index.
    """
    if isinstance(value, DimExpr):
        value = Size(value, INDEX)
        if not isinstance(like, PointerType) and not element_dtype(like).is_bool:
            value = cast(value, element_dtype(like))
    if not isinstance(value, Expr):
        dtype = element_dtype(like)
        value = index_number(value) if dtype is INDEX and type(value) is int else const(value, dtype)
    if lanes_of(like) > 1 and value.lanes == 1:
        return broadcast(value, lanes_of(like))
    return value


def broadcast(a: Expr, lanes: int) -> Expr:
    """A vector of `lanes` copies of scalar `a`."""
    return a if lanes == 1 else Broadcast(a, VectorType(a.dtype, lanes))


def extract(a: Expr, lane: int) -> Expr:
    """Lane number `lane` of vector `a`."""
    return Extract(a, lane, a.dtype)


def shuffle(a: Expr, b: Expr, picked: Sequence[int]) -> Expr:
    """The vector of the numbered lanes of `a` followed by those of `b`."""
    return Shuffle(a, b, tuple(picked), with_lanes(a.dtype, len(picked)))


def unary(op: str, a: Expr) -> Expr:
    """Apply a row of UNARY_OPS."""
    row = UNARY_OPS[op]
    type_ = a.type if row.result == "same" else with_lanes(dtypes.boolean, a.lanes)
    value = _known(a)
    if value is not None:
        if op == "neg" and not a.dtype.is_bool:
            return const(held(-value, a.dtype), a.dtype)
        if op == "lnot":
            return Const(not value, type_)
    return Unary(op, a, type_)


def _known(a: Expr) -> Real | None:
    """The number that a scalar literal stands for; None for other expressions and for types that are not folded."""
    if isinstance(a, Const) and not isinstance(a.value, complex) and isinstance(a.type, DType) and is_foldable(a.type):
        return held(a.value, a.type)
    return None


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Apply a row of BINARY_OPS; one side may be a Python number, types must agree otherwise."""
    row = BINARY_OPS[op]
    if isinstance(a, Expr):
        # Most are of one type already, and thousands are made in a compilation.
        if not isinstance(b, Expr) or b.type is not a.type:
            b = as_expr(b, a.type)
            a = as_expr(a, b.type)
    elif isinstance(b, Expr):
        a = as_expr(a, b.type)
    else:
        raise VerifyError(f"{op} needs at least one IR expression, got {a!r} and {b!r}")
    if isinstance(a.type, PointerType):
        if op not in ("add", "sub") or not b.dtype.is_int:
            raise VerifyError(f"pointer arithmetic allows + and - of an integer, got {op} of {a.type} and {b.type}")
        return Binary(op, a, b, a.type)
    if a.type != b.type:
        raise VerifyError(f"operands of {op} have types {a.type} and {b.type}; cast one of them")
    if a.type is INDEX:
        folded = _fold_index(op, a, b)
        if folded is not None:
            return folded
    elif isinstance(a, Const) and isinstance(b, Const) and a.dtype.kind == "bool" and op in ("land", "lor"):
        return Const((a.value and b.value) if op == "land" else (a.value or b.value), a.type)
    elif op == "land" or op == "lor":
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Const):
                absorbing = bool(x.value) == (op == "lor")
                return x if absorbing else y
    type_ = a.type if row.result == "same" else with_lanes(dtypes.boolean, a.lanes)
    return Binary(op, a, b, type_)


_INDEX_FOLDS: dict[str, Callable[[int, int], int | bool]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "min": min,
    "max": max,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def _fold_index(op: str, a: Expr, b: Expr) -> Expr | None:
    """Fold i64 arithmetic: constants, neutral elements, constants moved right and merged."""
    x = int(a.value) if isinstance(a, Const) and not isinstance(a.value, complex) else None
    y = int(b.value) if isinstance(b, Const) and not isinstance(b.value, complex) else None
    fold = _INDEX_FOLDS.get(op)
    if x is not None and y is not None and fold is not None and not (y == 0 and op in ("floordiv", "mod")):
        result = fold(x, y)
        return const(result, dtypes.boolean) if isinstance(result, bool) else _wrapped_index(result)
    if op == "add":
        if x == 0:
            return b
        if y == 0:
            return a
        if x is not None:
            return binary("add", b, a)
        if y is not None and isinstance(a, Binary) and a.op == "add" and isinstance(a.b, Const):
            return binary("add", a.a, _wrapped_index(int(a.b.value) + y))  # type: ignore[arg-type]  # i64 constants
    elif op == "sub":
        if y == 0:
            return a
        if a is b:
            return index_number(0)
        if y is not None:
            return binary("add", a, _wrapped_index(-y))
    elif op == "mul":
        if x == 0 or y == 0:
            return index_number(0)
        if x == 1:
            return b
        if y == 1:
            return a
        if x is not None:
            return binary("mul", b, a)
    elif op == "floordiv" and (y == 1 or x == 0):
        return a
    elif op == "mod" and (y == 1 or x == 0):
        return index_number(0)
    if isinstance(a, Size) or isinstance(b, Size):
        return _fold_dims(op, a, b)
    return None


def _wrapped_index(value: int) -> Const:
    return index_number(wrapped(value, INDEX))


def _fold_dims(op: str, a: Expr, b: Expr) -> Expr | None:
    """Arithmetic of two extents stays an extent, in normal form."""
    left = a.dim if isinstance(a, Size) else int(a.value) if isinstance(a, Const) else None  # type: ignore[arg-type]  # i64
    right = b.dim if isinstance(b, Size) else int(b.value) if isinstance(b, Const) else None  # type: ignore[arg-type]  # i64
    if left is None or right is None:
        return None
    if op == "add":
        return index(left + right)
    if op == "sub":
        return index(left - right)
    if op == "mul":
        return index(left * right)
    if op in ("floordiv", "mod") and isinstance(right, int) and right > 0:
        return index(dims.floordiv(left, right) if op == "floordiv" else dims.mod(left, right))
    return None


def logical_and(*conditions: Expr) -> Expr:
    """All of `conditions`; true for none."""
    result: Expr = Const(True, dtypes.boolean)
    for condition in conditions:
        result = binary("land", result, condition)
    return result


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """a == b, element-wise."""
    return binary("eq", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """Smaller of two; NaN if one is NaN."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """Larger of two; NaN if one is NaN."""
    return binary("max", a, b)


def select(condition: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """`a` where `condition` else `b`."""
    if isinstance(a, Expr):
        b = as_expr(b, a.type)
        a = as_expr(a, b.type)
    elif isinstance(b, Expr):
        a = as_expr(a, b.type)
    else:
        raise VerifyError(f"select needs at least one IR expression, got {a!r} and {b!r}")
    if a.type != b.type:
        raise VerifyError(f"sides of select have types {a.type} and {b.type}; cast one of them")
    if isinstance(condition, Const):
        return a if condition.value else b
    if a is b or (isinstance(a, Const) and isinstance(b, Const) and _are_same_literals(a, b)):
        return a
    if a.lanes > 1 and condition.lanes == 1:
        condition = broadcast(condition, a.lanes)
    return Select(condition, a, b, a.type)


def select_part(place: Expr, ends: Sequence[Expr | Dim], read: Callable[[int], Expr]) -> Expr:
    """`read(n)` for the part n, the parts being laid end to end up to `ends[n]`, in which `place` lies.

    Found by halving: the formula is as deep as the logarithm of the number of parts.
    """

    def among(first: int, last: int) -> Expr:
        if first == last:
            return read(first)
        middle = (first + last) // 2
        return select(place < index(ends[middle]), among(first, middle), among(middle + 1, last))

    return among(0, len(ends) - 1)


def _are_same_literals(a: Const, b: Const) -> bool:
    """Whether two literals of one type have the same bits: 0.0 and -0.0, which are equal, have not."""
    return repr(a.value) == repr(b.value)


def cast(a: Expr, dtype: DType) -> Expr:
    """Convert to `dtype`, keeping the lanes; the same object when nothing changes."""
    if a.dtype is dtype:
        return a
    value = _known(a)
    if value is not None and is_foldable(dtype):
        return const(converted(value, a.dtype, dtype), dtype)
    return Cast(a, with_lanes(dtype, a.lanes))


def load(buffer: Expr, *indices: Expr | int, lanes: int = 1, mask: Expr | None = None) -> Expr:
    """Read one element (or `lanes` consecutive ones) of a pointer or buffer."""
    element = with_lanes(buffer.dtype, lanes_of(buffer.type) if isinstance(buffer.type, BufferType) else 1)
    return Load(buffer, tuple(map(index, indices)), with_lanes(buffer.dtype, lanes) if lanes > 1 else element, mask)


def address(buffer: Expr, *indices: Expr | int) -> Expr:
    """Pointer to an element of a pointer or buffer."""
    space = buffer.type.space if isinstance(buffer.type, PointerType | BufferType) else "global"
    return AddressOf(buffer, tuple(map(index, indices)), PointerType(buffer.dtype, space))


def call(callee: str, *arguments: Expr, type: Type) -> Expr:
    """Call an intrinsic or function by name; `type` is its result type."""
    return Call(callee, arguments, type)


def size_var(name: str) -> Var:
    """A fresh i64 variable."""
    return Var(name, INDEX)


def flatten(indices: Sequence[Expr], strides: Sequence[Expr | Dim]) -> Expr:
    """Element offset sum(index * stride)."""
    offset: Expr = index_number(0)
    for i, stride in zip(indices, strides, strict=True):
        offset = offset + i * index(stride)
    return offset


def seq(stmts: Iterable[Stmt]) -> Stmt:
    """One statement of many; nested sequences are flattened, a single one is itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
