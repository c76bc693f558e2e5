"""Arithmetic of scripts: what happens when values of different types meet.

Python numbers take the type of the other side; alone they are i64, f32 and bool
integers of different types become the wider one; integers meeting floats become that float type
/ of integers rounds toward zero, as in C; // and % round down, as in Python
floats of different types promote as torch's do
nothing becomes narrower, and no float becomes an integer, unless `cast` says so
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import DTypeError
from hidet.ir import build
from hidet.ir.constants import is_foldable
from hidet.ir.expr import Bitcast, Call, Const, Expr
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import BufferType, PointerType, ValueType, VectorType, element_dtype, lanes_of, with_lanes

PythonNumber = bool | int | float
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("land", "lor")
_INTEGER_ONLY = ("and", "or", "xor", "shl", "shr", "truncdiv")

PYTHON_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def plain_number(value: Any) -> Any:
    """A number of numpy's as the Python number that it is; every other value as it is."""
    # Whoever has such a number has imported numpy.
    numpy = sys.modules.get("numpy")
    return value if numpy is None or not isinstance(value, numpy.generic) else value.item()


def as_expr(value: object) -> Expr:
    """An IR expression, a number of Python or numpy, or a symbolic size as an expression. DTypeError for others, also
    for a call that gives no value."""
    value = plain_number(value)
    if isinstance(value, Call) and value.type is None:
        raise DTypeError(f"{value.callee} gives no value")
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Const(value, dtypes.boolean)
    if isinstance(value, int | DimExpr):
        if isinstance(value, int) and not dtypes.i64.min <= value <= dtypes.i64.max:
            raise DTypeError(f"{value} does not fit into an i64")
        return build.index(value)
    if isinstance(value, float):
        return Const(value, dtypes.f32)
    raise DTypeError(f"{described(value)} is no value of the program")


def described(value: object) -> str:
    """A value as messages show it."""
    if isinstance(value, Expr):
        return f"a value of type {value.type}"
    if callable(getattr(value, "start", None)):
        return str(value)
    return f"{value!r} of type {type(value).__name__}"


def index(value: object) -> Expr:
    """An integer value as i64. DTypeError for floats and pointers."""
    expr = as_expr(value)
    if not isinstance(expr.type, DType) or not (expr.type.is_int or expr.type.is_bool):
        raise DTypeError(f"an index must be an integer, got a value of type {expr.type}")
    return build.cast(expr, dtypes.i64)


def decayed(value: object) -> object:
    """A tensor as the pointer to its first element; every other value as it is."""
    start = getattr(value, "start", None)
    value = start() if callable(start) else value
    if isinstance(value, Expr) and isinstance(value.type, BufferType):
        return build.address(value, *(0 for _ in value.type.shape))
    return value


def convert(value: object, target: ValueType, what: str) -> Expr:
    """`value` as `target`, as assignments, stores and arguments convert. `what` names the place in messages.

    DTypeError where a float would become an integer, an integer a bool, or lanes or pointers do not match.
    """
    if not isinstance(value, Expr) and not isinstance(target, PointerType):
        return _literal(value, target, what)
    expr = as_expr(value)
    source = expr.type
    if source == target:
        return expr
    if isinstance(source, BufferType) and isinstance(target, PointerType) and source.dtype == target.dtype:
        return build.address(expr, *(0 for _ in source.shape))
    if isinstance(target, PointerType):
        hint = f"convert the pointer: cast(..., ~{target.dtype.short})"
        raise DTypeError(f"{what} has type {source}, expected a pointer to {target.dtype.short}", hint=hint)
    if isinstance(source, PointerType | BufferType):
        raise DTypeError(f"{what} is a pointer of type {source}, expected {target}", hint="index it: x[i]")
    old, new = expr.dtype, target.dtype if isinstance(target, VectorType) else target
    if lanes_of(source) == 1 and lanes_of(target) > 1:
        return build.broadcast(convert(expr, new, what), lanes_of(target))
    loses = (
        (old.is_float and new.is_int) or (new.is_bool and not old.is_bool) or (old.is_complex and not new.is_complex)
    )
    if lanes_of(source) != lanes_of(target) or loses:
        raise DTypeError(f"{what} has type {source}, expected {target}", hint=f"convert it: cast(..., {target})")
    return build.cast(expr, new)


def _literal(value: object, target: ValueType, what: str) -> Expr:
    value = plain_number(value)
    if isinstance(value, DimExpr):
        return convert(build.index(value), target, what)
    dtype = target if isinstance(target, DType) else target.dtype
    if not isinstance(value, bool | int | float):
        raise DTypeError(f"{what} is {described(value)}, expected a value of type {target}")
    if isinstance(value, float) and not dtype.is_float:
        raise DTypeError(f"{what} is {value!r}, expected {target}", hint=f"convert it: cast({value!r}, {target})")
    if dtype.is_bool and not isinstance(value, bool):
        raise DTypeError(f"{what} is {value!r}, expected True or False")
    if dtype.is_int and not dtype.min <= value <= dtype.max:
        raise DTypeError(f"{what} is {value}, which does not fit into {dtype}")
    return build.broadcast(build.const(value, dtype), lanes_of(target))


def common_type(a: DType, b: DType) -> DType:
    """The type in which values of two types meet. DTypeError for pairs that have none."""
    if a == b:
        return a
    if a.is_int and b.is_int:
        wide, narrow = (a, b) if a.bits >= b.bits else (b, a)
        if wide.kind == narrow.kind or (wide.kind == "int" and wide.bits > narrow.bits):
            return wide
        if wide.bits < 64:
            return dtypes.i64
        raise DTypeError(f"{a} and {b} have no common integer type", hint="cast one of them")
    return dtypes.promote(a, b)


def unify(a: object, b: object) -> tuple[Expr, Expr]:
    """Two values converted to one type; at least one is an expression."""
    a, b = plain_number(a), plain_number(b)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return unify(as_expr(a), b)
    if isinstance(a, Expr) and isinstance(b, Expr):
        _scalars_or_vectors(a, b)
        dtype = common_type(a.dtype, b.dtype)
        lanes = max(a.lanes, b.lanes)
        if {a.lanes, b.lanes} - {1, lanes}:
            raise DTypeError(f"values of types {a.type} and {b.type} have different lanes")
        first, second = (build.cast(x, dtype) for x in (a, b))
        return tuple(x if x.lanes == lanes else build.broadcast(x, lanes) for x in (first, second))  # type: ignore[return-value]  # two
    if isinstance(a, Expr):
        return _with_literal(a, b)
    second, first = _with_literal(b, a)  # type: ignore[arg-type]  # the other one is an expression
    return first, second


def _with_literal(a: Expr, b: object) -> tuple[Expr, Expr]:
    _scalars_or_vectors(a)
    dtype = a.dtype
    if isinstance(b, float) and not dtype.is_float:
        dtype = dtypes.f32
    elif dtype.is_bool and isinstance(b, int | DimExpr) and not isinstance(b, bool):
        dtype = dtypes.i64
    elif isinstance(b, DimExpr):
        return unify(a, build.index(b))
    target = with_lanes(dtype, a.lanes)
    return build.cast(a, dtype), convert(b, target, f"the number beside a value of type {a.type}")


def _scalars_or_vectors(*values: Expr) -> None:
    for value in map(as_expr, values):
        if isinstance(value.type, PointerType | BufferType):
            raise DTypeError(
                f"a {value.type} is memory, not a number", hint="index it: x[i] reads an element, ~x[i] is its address"
            )


def binary(op: str, a: object, b: object) -> Any:
    """Apply a row of BINARY_OPS; two Python values are computed at once. DTypeError for types it does not take."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        if op in PYTHON_BINARY:
            return PYTHON_BINARY[op](a, b)
        a = as_expr(a)
    if op in _LOGICAL:
        return build.binary(op, condition(a), condition(b))
    if isinstance(a, Expr) and isinstance(a.type, PointerType | BufferType) and op in ("add", "sub"):
        pointer = a if isinstance(a.type, PointerType) else build.address(a, *(0 for _ in a.type.shape))
        return build.binary(op, pointer, index(b))
    if isinstance(b, Expr) and isinstance(b.type, PointerType | BufferType) and op == "add":
        return binary(op, b, a)
    b = plain_number(b)
    if op == "pow" and isinstance(b, int) and b in (1, 2, 3) and isinstance(a, Expr):
        return a if b == 1 else binary("mul", binary("pow", a, b - 1), a)
    if op in _COMPARISONS and any(isinstance(x, Expr) and isinstance(x.type, PointerType) for x in (a, b)):
        return build.binary(op, _word(a), _word(b))
    left, right = unify(a, b)
    if left.dtype.is_bool and op in ("add", "sub", "mul"):
        # Truth values are counted, as in Python and C.
        left, right = (build.cast(side, dtypes.i64) for side in (left, right))
    _check_operands(op, left.dtype)
    return build.binary("truncdiv" if op == "div" and left.dtype.is_int else op, left, right)


def _word(value: object) -> Expr:
    """A pointer, or a number that stands for one, as an i64."""
    expr = as_expr(value)
    return Bitcast(expr, dtypes.i64) if isinstance(expr.type, PointerType) else index(expr)


def _check_operands(op: str, dtype: DType) -> None:
    if op in _INTEGER_ONLY and not (dtype.is_int or (dtype.is_bool and op in ("and", "or", "xor"))):
        raise DTypeError(f"{_spelling(op)} takes integers, got values of type {dtype}")
    if op == "div" and dtype.is_bool:
        raise DTypeError(f"/ divides numbers, got values of type {dtype}", hint="cast one side to i32 or f32")


def _spelling(op: str) -> str:
    return BINARY_OPS[op].symbol or op


def unary(op: str, a: object) -> Any:
    """Apply a row of UNARY_OPS. DTypeError for types it does not take."""
    expr = as_expr(a)
    _scalars_or_vectors(expr)
    if op == "lnot":
        return build.unary("lnot", condition(expr))
    dtype = expr.dtype
    if op == "not" and not (dtype.is_int or dtype.is_bool):
        raise DTypeError(f"~ inverts the bits of integers, got a value of type {dtype}")
    if UNARY_OPS[op].result == "bool" and not dtype.is_float:
        raise DTypeError(f"{op} takes floats, got a value of type {dtype}")
    if op == "neg" and dtype.is_bool:
        expr = build.cast(expr, dtypes.i64)
    if op not in ("neg", "not", "abs", "floor", "ceil", "round", "trunc") and dtype.is_int:
        expr = build.cast(expr, dtypes.f32)
    return build.unary(op, expr)


def condition(value: object) -> Expr:
    """A value as a truth value: numbers and pointers are true unless zero."""
    expr = as_expr(value)
    if expr.dtype.is_bool and not isinstance(expr.type, PointerType | BufferType):
        return expr
    if isinstance(expr.type, PointerType):
        expr = Bitcast(expr, dtypes.i64)
    if isinstance(expr.type, BufferType):
        raise DTypeError("a tensor has no truth value", hint="index it")
    return build.binary("ne", expr, build.as_expr(0, expr.type))


def select(test: object, a: object, b: object) -> Expr:
    """`a` where `test` else `b`, in their common type."""
    return build.select(condition(test), *alike(a, b))


def alike(a: object, b: object) -> tuple[Expr, Expr]:
    """Two values, which may be pointers of one type, in their common type."""
    is_one_type = isinstance(a, Expr) and isinstance(b, Expr) and a.type == b.type
    return (as_expr(a), as_expr(b)) if is_one_type else unify(a, b)


def cast(value: object, target: ValueType) -> Expr:
    """An explicit conversion: numbers to any type of number, pointers to any type of pointer or a 64-bit integer.

    A float that Python knows is rounded once, to the type asked for.
    """
    value = plain_number(value)
    if isinstance(value, float) and isinstance(target, DType | VectorType):
        exact = Const(value, dtypes.f64)
        value = exact if is_foldable(element_dtype(target)) else build.cast(exact, dtypes.f32)
    expr = as_expr(value)
    if expr.type == target:
        return expr
    if isinstance(expr.type, BufferType):
        expr = build.address(expr, *(0 for _ in expr.type.shape))
    if isinstance(expr.type, PointerType) or isinstance(target, PointerType):
        is_word = [isinstance(t, DType) and t.is_int and t.bits == 64 for t in (expr.type, target)]
        is_pointer = [isinstance(t, PointerType) for t in (expr.type, target)]
        if not all(word or pointer for word, pointer in zip(is_word, is_pointer, strict=True)):
            raise DTypeError(f"cast of {expr.type} to {target}: pointers convert to pointers and 64-bit integers")
        return Bitcast(expr, target)
    if lanes_of(expr.type) == 1 and isinstance(target, VectorType):
        return build.broadcast(build.cast(expr, target.dtype), target.lanes)
    if lanes_of(expr.type) != lanes_of(target):
        raise DTypeError(f"cast of {expr.type} to {target}, which has other lanes")
    return build.cast(expr, target.dtype if isinstance(target, VectorType) else target)
