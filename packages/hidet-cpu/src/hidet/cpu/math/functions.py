"""Which operations need a function, how each is computed for each dtype, and the function itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.cpu.math import (
    error_function,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometry,
    logarithm,
    power,
    remainder,
    trigonometry,
)
from hidet.cpu.math.coefficients import INVERSE_TWO_PI
from hidet.cpu.math.format import DOUBLE, SHORT, SINGLE, Format
from hidet.cpu.math.steps import Steps, square_root
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Return
from hidet.ir.types import with_lanes

PURE = ("pure", True)
INLINE = ("inline", True)
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class MathOp:
    """How one operation is computed.

    build: makes the value from (steps, operands..., format). f32: the arithmetic that serves f32; f64 is served by
    DOUBLE. inline: whether every use gets a copy of the code, which loops need to be vectorised; LLVM decides for large
    functions. loops: whether the code for f64 has loops, so that it serves scalars only and is never vectorised.
    """

    build: Callable[..., Expr]
    f32: Format = SHORT
    inline: bool = True
    loops: bool = False


def _rsqrt(s: Steps, x: Expr, form: Format) -> Expr:
    """1 / sqrt(x). Error 1.5 ulp."""
    return 1.0 / square_root(x)


UNARY = {
    "exp": MathOp(exponential.exp, SINGLE),
    "exp2": MathOp(exponential.exp2, SINGLE),
    "expm1": MathOp(exponential.expm1, SINGLE),
    "log": MathOp(logarithm.log, SINGLE),
    "log2": MathOp(logarithm.log2),
    "log10": MathOp(logarithm.log10),
    "log1p": MathOp(logarithm.log1p, SINGLE),
    "rsqrt": MathOp(_rsqrt, SINGLE),
    "sin": MathOp(trigonometry.sin),
    "cos": MathOp(trigonometry.cos),
    "tan": MathOp(trigonometry.tan),
    "asin": MathOp(inverse_trigonometry.asin),
    "acos": MathOp(inverse_trigonometry.acos),
    "atan": MathOp(inverse_trigonometry.atan),
    "sinh": MathOp(hyperbolic.sinh),
    "cosh": MathOp(hyperbolic.cosh),
    "tanh": MathOp(hyperbolic.tanh, SINGLE),
    "asinh": MathOp(hyperbolic.asinh),
    "acosh": MathOp(hyperbolic.acosh),
    "atanh": MathOp(hyperbolic.atanh),
    "erf": MathOp(error_function.erf, SINGLE),
    "erfc": MathOp(error_function.erfc),
    "erfinv": MathOp(error_function.erfinv),
    "lgamma": MathOp(gamma.lgamma, inline=False),
    "digamma": MathOp(gamma.digamma, inline=False),
}
BINARY = {
    "pow": MathOp(power.pow_float),
    "atan2": MathOp(inverse_trigonometry.atan2),
    "hypot": MathOp(inverse_trigonometry.hypot),
    "rem": MathOp(remainder.rem, loops=True),
    "mod": MathOp(remainder.mod, loops=True),
    "floordiv": MathOp(remainder.floordiv, loops=True),
    "truncdiv": MathOp(remainder.truncdiv, SINGLE),
}
_OF_BITS = {"nextafter": MathOp(remainder.nextafter)}
_OF_INTEGERS = {"pow": MathOp(power.pow_integer, loops=True)}
BINARY_NAMES = frozenset({*BINARY, *_OF_BITS, *_OF_INTEGERS})
"""Binary operations that a function computes for some element types."""


def needs_function(op: str, arity: int, dtype: DType) -> bool:
    """Whether code generation cannot emit operation `op` on `dtype` itself."""
    return _find(op, arity, dtype) is not None


def has_vector_form(op: str, arity: int, dtype: DType) -> bool:
    """Whether operation `op` on `dtype` can be had for all lanes of vectors at once."""
    row = _find(op, arity, dtype)
    return row is None or not _loops(row, dtype)


def _loops(row: MathOp, dtype: DType) -> bool:
    return row.loops and dtype.name != "float32" and dtype.name not in _HALF


def _find(op: str, arity: int, dtype: DType) -> MathOp | None:
    if arity == 1:
        return UNARY.get(op) if dtype.is_float else None
    if dtype.is_int:
        return _OF_INTEGERS.get(op)
    return (BINARY.get(op) or _OF_BITS.get(op)) if dtype.is_float else None


def _row(op: str, arity: int, dtype: DType) -> MathOp:
    row = _find(op, arity, dtype)
    if row is None:
        raise CodegenError(f"scalar operation {op} of {dtype} is not computed by a function")
    return row


def function_name(op: str, dtype: DType, lanes: int) -> str:
    """Name of the function that computes `op`."""
    return f"hidet_{op}_{dtype.short}{f'x{lanes}' if lanes > 1 else ''}"


@functools.cache
def math_functions(op: str, arity: int, dtype: DType, lanes: int) -> tuple[Function, ...]:
    """The device function of `op` on operands of `dtype` with `lanes` lanes, and those that it calls.

    f16 and bf16 are computed in f32, nextafter excepted.
    """
    type_ = with_lanes(dtype, lanes)
    row = _row(op, arity, dtype)
    loops = _loops(row, dtype)
    if loops and lanes > 1:
        raise CodegenError(
            f"scalar operation {op} of {dtype} has no vector form on CPUs", hint="apply it to the lanes one by one"
        )
    params = tuple(Var(name, type_) for name in ("x", "y")[:arity])
    s = Steps()
    if dtype.is_int:
        value = power.pow_integer(s, params[0], params[1])
    elif op == "nextafter":
        value = remainder.nextafter(s, params[0], params[1])
    else:
        value = _value(s, row, params, dtype)
    s.statements.append(Return(value))
    attributes = (PURE, INLINE) if row.inline and not loops else (PURE,)
    function = Function(
        function_name(op, dtype, lanes), params, build.seq(s.statements), "device", (), type_, attributes
    )
    needs_table = dtype.name == "float64" and op in ("sin", "cos", "tan")
    return (function, digits_table(lanes)) if needs_table else (function,)


def _value(s: Steps, row: MathOp, params: tuple[Var, ...], dtype: DType) -> Expr:
    form = DOUBLE if dtype.name == "float64" else row.f32
    operands = [s.let(p.name, build.cast(p, dtypes.f32 if dtype.name in _HALF else dtype)) for p in params]
    operands = [s.let(o.name, build.cast(o, form.dtype)) for o in operands if isinstance(o, Var)]
    return build.cast(build.cast(row.build(s, *operands, form), dtypes.f32 if dtype.bits < 64 else dtype), dtype)


@functools.cache
def digits_table(lanes: int) -> Function:
    """The function `trigonometry.DIGITS_TABLE`, for `lanes` indices at once."""
    digits = INVERSE_TWO_PI["double"]
    index = Var("index", with_lanes(dtypes.i64, lanes))
    value: Expr = build.broadcast(build.const(digits[-1], dtypes.f64), lanes)
    for position in reversed(range(len(digits) - 1)):
        value = build.select(build.equal(index, position), build.const(digits[position], dtypes.f64), value)
    name = trigonometry.digits_table_name(lanes)
    return Function(
        name, (index,), Return(value), "device", (), with_lanes(dtypes.f64, lanes), (PURE, INLINE, ("table", digits))
    )
