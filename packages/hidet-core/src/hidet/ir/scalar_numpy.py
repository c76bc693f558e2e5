"""What the scalar operations of `hidet.ir.scalar_ops` mean on numpy arrays, in exactly the stated element type.

The functions that the tables call "scalar.<name>" live here; other names are numpy ufuncs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, UnsupportedOp, suggestion
from hidet.ir import special
from hidet.ir.expr import Const
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS, ScalarOp

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x); infinite at zero, NaN below."""
    return np.reciprocal(np.sqrt(x))


def floordiv(a: Array, b: Array) -> Array:
    """Quotient rounded toward minus infinity; an integer divided by zero gives zero."""
    return np.floor_divide(a, b)


def mod(a: Array, b: Array) -> Array:
    """Remainder with the sign of the divisor; of an integer by zero, zero."""
    return np.remainder(a, b)


def truncdiv(a: Array, b: Array) -> Array:
    """Quotient rounded toward zero; an integer divided by zero gives zero."""
    if a.dtype.kind not in "iu":
        return np.trunc(np.divide(a, b))
    quotient = np.floor_divide(a, b)
    rounded_up: Array = ((a < 0) != (b < 0)) & (np.remainder(a, b) != 0)
    result: Array = quotient + rounded_up.astype(a.dtype)
    return result


def power(a: Array, b: Array) -> Array:
    """a ** b; a negative power of an integer is 1 / a ** -b truncated toward zero, so 0 unless a is 1 or -1."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    negative = b < 0
    odd = np.bitwise_and(b, 1) != 0
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)) if a.dtype.kind == "i" else 0
    result: Array = np.where(negative, inverse, np.power(a, np.where(negative, 0, b))).astype(a.dtype)
    return result


def _in_double(function: Function) -> Function:
    """`function`, defined for f64, on other floats: evaluated in f64 and rounded once."""

    def evaluate(x: Array) -> Array:
        result: Array = function(np.asarray(x, np.float64)).astype(x.dtype)
        return result

    return evaluate


_SCALAR: dict[str, Function] = {
    "rsqrt": rsqrt,
    "floordiv": floordiv,
    "mod": mod,
    "truncdiv": truncdiv,
    "power": power,
    "erf": _in_double(special.erf),
    "erfc": _in_double(special.erfc),
    "erfinv": _in_double(special.erfinv),
    "lgamma": _in_double(special.lgamma),
    "digamma": _in_double(special.digamma),
}

# Operations on the bits of a value: going through a wider type would change them.
_EXACT_IN_NARROW = frozenset({"nextafter"})


@cache
def numpy_function(name: str) -> Function:
    """The function that a row's `numpy` names. UnsupportedOp if neither numpy nor this file has it."""
    if name.startswith("scalar."):
        found = _SCALAR.get(name.removeprefix("scalar."))
    else:
        found = getattr(np, name, None)
    if found is None:
        raise UnsupportedOp(f"scalar operation {name!r} has no numpy meaning", hint=suggestion(name, _SCALAR))
    return found


@lru_cache(maxsize=1 << 12)
def constant(node: Const) -> Array:
    """The value of a constant of a scalar type, or of each lane: of rank 0, not to be written to."""
    value = np.asarray(node.value).astype(node.dtype.numpy())
    value.setflags(write=False)
    return value


def apply_unary(op: str, a: Array, result: DType) -> Array:
    """A row of UNARY_OPS on arrays; the result has element type `result`."""
    return _apply(UNARY_OPS[op], (a,), result)


def apply_binary(op: str, a: Array, b: Array, result: DType) -> Array:
    """A row of BINARY_OPS on broadcastable arrays of one element type; the result has element type `result`."""
    return _apply(BINARY_OPS[op], (a, b), result)


def _apply(row: ScalarOp, operands: tuple[Array, ...], result: DType) -> Array:
    function = numpy_function(row.numpy)
    if operands[0].dtype.kind == "V" and row.name not in _EXACT_IN_NARROW:
        # ml_dtypes lacks some functions; f32 holds the types it adds and is wide enough to round twice harmlessly.
        operands = tuple(a.astype(np.float32) if a.dtype.kind == "V" else a for a in operands)
    return np.asarray(function(*operands)).astype(result.numpy(), copy=False)


def convert(a: Array, source: DType, target: DType) -> Array:
    """Value conversion of the IR's `Cast`.

    To bool tests for non-zero. Float to int truncates toward zero and saturates, NaN becomes 0; integers below 32 bits
    are the low bits of the i32 so made. Complex to real drops the imaginary part.
    """
    if source.is_host_only or target.is_host_only:
        raise DTypeError(f"{source} does not convert to {target}: strings are not numbers")
    if source.is_complex and not target.is_complex:
        a = a.real if not target.is_bool else a != 0
    if target.name == "tfloat32":
        return round_to_tf32(np.asarray(a).astype(np.float32))
    if not source.is_complex and (source.is_storage_only or target.is_storage_only):
        # ml_dtypes converts few pairs of its types directly. f32 holds all values of a small float, i32 of a small int.
        a = np.asarray(a).astype(_between(source, target), copy=False)
    if source.is_float and target.is_int:
        return _truncated(a, dtypes.i32 if target.bits < 32 else target).astype(target.numpy(), copy=False)
    return np.asarray(a).astype(target.numpy(), copy=False)


def _between(source: DType, target: DType) -> np.dtype[Any]:
    """The type that a conversion from or to a storage-only type goes through."""
    if source.is_float or target.is_float:
        return np.dtype(np.float32)
    return np.dtype(np.int32) if source.is_storage_only else source.numpy()


def _truncated(a: Array, target: DType) -> Array:
    """Floats as an integer type of 32 or 64 bits; out of its range numpy would leave the result to the processor."""
    a = a.astype(np.float32) if a.dtype.kind == "V" else np.asarray(a)
    # Both bounds are powers of two (or zero), so exact in every float type that holds them; f16 overflows to infinity.
    low, high = a.dtype.type(target.min), a.dtype.type(2.0 ** (target.bits - (1 if target.kind == "int" else 0)))
    inside = (a >= low) & (a < high)
    result = np.where(inside, a, a.dtype.type(0)).astype(target.numpy())
    if inside.all():
        return result
    result = np.where(a >= high, result.dtype.type(target.max), result)
    return np.where(a < low, result.dtype.type(target.min), result)


def round_to_tf32(a: Array) -> Array:
    """f32 values rounded to the 10 mantissa bits of tf32, ties to even; inf and NaN stay."""
    bits = a.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(a), rounded, bits).view(np.float32)
