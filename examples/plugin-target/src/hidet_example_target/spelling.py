"""How types, constants and operations are written in C: tables, and what they leave out is refused by name."""

from __future__ import annotations

import math
import re

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.expr import Number
from hidet.ir.types import BufferType, PointerType, Type, VectorType

_TYPES = {dtype: dtype.short for dtype in (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)}
_TYPES |= {dtype: dtype.short for dtype in (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64, dtypes.f32, dtypes.f64)}

_SAME_IN_C = (
    "exp exp2 expm1 log log2 log10 log1p sqrt floor ceil trunc sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc lgamma pow atan2 hypot nextafter copysign"
)
_LIBM = {name: name for name in _SAME_IN_C.split()} | {"abs": "fabs", "round": "rint", "rem": "fmod"}
_TESTS = ("isnan", "isinf", "isfinite")
_OF_FLOATS = ("min", "max", "rsqrt", "truncdiv", "mod", "floordiv")
_OF_INTEGERS = ("neg", "abs", "min", "max", "truncdiv", "rem", "mod", "floordiv", "shl", "shr", "pow")
_WHOLE = ("floor", "ceil", "round", "trunc")
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_TRUTH = {**_BITS, "add": "|", "mul": "&", "max": "|", "min": "&", "land": "&", "lor": "|"}


def symbol(name: str) -> str:
    """The C name of a function: with a prefix, so that it is none of a library's."""
    return "ir_" + re.sub(r"[^0-9A-Za-z_]", lambda found: f"_{ord(found[0]):x}_", name)


def value_type(type_: Type) -> str:
    """The C type of a value. CodegenError for types that this target does not have."""
    if isinstance(type_, PointerType | BufferType):
        return f"{memory_type(type_.dtype)} *"
    if isinstance(type_, VectorType):
        raise CodegenError(f"target example-c has no SIMD values such as {type_}", hint="write loops over scalars")
    return "_Bool" if type_.is_bool else _scalar(type_)


def memory_type(dtype: DType) -> str:
    """The C type of an element in memory. A bool is a byte of which any value but 0 is true."""
    return "u8" if dtype.is_bool else _scalar(dtype)


def _scalar(dtype: DType) -> str:
    if dtype not in _TYPES:
        raise CodegenError(f"target example-c has no type {dtype}", hint="cast to float32 before")
    return _TYPES[dtype]


def literal(value: Number, type_: Type) -> str:
    """A constant with its type."""
    if isinstance(type_, PointerType | BufferType):
        return f"(({value_type(type_)})0)"
    spelled = value_type(type_)
    assert isinstance(type_, DType) and not isinstance(value, complex)
    if not type_.is_float:
        # The smallest i64 has no literal: its size is that of no i64.
        text = "INT64_MIN" if value == -(2**63) else f"{int(value)}{'u' if type_.kind == 'uint' else ''}"
    elif math.isfinite(value):
        text = float(value).hex()
    else:
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    return f"(({spelled}){text})"


def unary(op: str, a: str, dtype: DType) -> str:
    """An operation on a value of `dtype`."""
    if op == "lnot" or (op == "not" and dtype.is_bool):
        return f"!{a}"
    if dtype.is_float:
        if op == "neg":
            return f"(-{a})"
        if op in _TESTS:
            return f"({op}({a}) != 0)"
        if op in _OF_FLOATS or op in _LIBM:
            return _float_call(op, (a,), dtype)
    if dtype.is_int:
        if op in _OF_INTEGERS:
            return f"{op}_{_scalar(dtype)}({a})"
        if op == "not":
            return f"(({_scalar(dtype)})~{a})"
        if op in _WHOLE:
            return a
    raise _unknown(op, dtype)


def binary(op: str, a: str, b: str, dtype: DType) -> str:
    """An operation on values of `dtype`. What wraps around is converted back, as C computes small integers in int."""
    if op in _COMPARE:
        return f"({a} {_COMPARE[op]} {b})"
    if dtype.is_bool:
        if op in _TRUTH:
            return f"({a} {_TRUTH[op]} {b})"
    elif op in _ARITHMETIC or (op == "div" and dtype.is_float) or (op in _BITS and dtype.is_int):
        sign = {**_ARITHMETIC, **_BITS, "div": "/"}[op]
        return f"(({_scalar(dtype)})({a} {sign} {b}))"
    elif dtype.is_float and (op in _OF_FLOATS or op in _LIBM):
        return _float_call(op, (a, b), dtype)
    elif dtype.is_int and op in _OF_INTEGERS:
        return f"{op}_{_scalar(dtype)}({a}, {b})"
    raise _unknown(op, dtype)


def cast(a: str, source: DType, target: DType) -> str:
    """A conversion of a value. Integers below 32 bits are the low bits of the i32 that a float becomes."""
    if target.is_bool:
        return f"({a} != 0)"
    spelled = _scalar(target)
    if source.is_float and target.is_int:
        return f"(({spelled})to_{spelled if target.bits >= 32 else 'i32'}({a}))"
    return f"(({spelled}){a})"


def _float_call(op: str, operands: tuple[str, ...], dtype: DType) -> str:
    name = f"{op}_{_scalar(dtype)}" if op in _OF_FLOATS else _LIBM[op] + ("f" if dtype is dtypes.f32 else "")
    return f"{name}({', '.join(operands)})"


def _unknown(op: str, dtype: DType) -> CodegenError:
    return CodegenError(f"target example-c has no operation {op} of {dtype}", hint="C's library does not have it")


def quoted(text: str) -> str:
    """A C string of the text in UTF-8."""
    escaped = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(escaped) + '"'
