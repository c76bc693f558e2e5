"""How types and literals are spelled in CUDA C++."""

from __future__ import annotations

import math

from hidet import dtypes
from hidet.cuda.codegen.small_float import SMALL_FLOATS
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.expr import Number
from hidet.ir.types import BufferType, PointerType, Type, VectorType

_TYPE_NAMES: dict[DType, str] = {
    dtypes.boolean: "bool",
    dtypes.i8: "signed char",
    dtypes.i16: "short",
    dtypes.i32: "int",
    dtypes.i64: "long long",
    dtypes.u8: "unsigned char",
    dtypes.u16: "unsigned short",
    dtypes.u32: "unsigned",
    dtypes.u64: "unsigned long long",
    dtypes.f16: "f16",
    dtypes.bf16: "bf16",
    dtypes.f32: "float",
    dtypes.f64: "double",
    dtypes.tf32: "float",
    **{dtype: dtype.short for dtype in SMALL_FLOATS},
}

WORD_STRUCTS = frozenset({dtypes.f16, dtypes.bf16, *SMALL_FLOATS})
"""Types that are structs of their bits in generated code, each a piece of the prelude under its name."""


def scalar_type(dtype: DType) -> str:
    """The C++ type of one element. CodegenError for types that no kernel holds."""
    name = _TYPE_NAMES.get(dtype)
    if name is None:
        if dtype.is_subbyte and dtype.is_int:
            # A byte each in memory, as numpy arrays have them.
            return "signed char" if dtype.is_signed else "unsigned char"
        raise CodegenError(f"CUDA kernels do not hold elements of {dtype.name}", hint="cast the tensor first")
    return name


def type_name(type_: Type | None) -> str:
    """The C++ type of a value; pointers are to elements, buffers are passed as pointers."""
    if type_ is None:
        return "void"
    if isinstance(type_, PointerType):
        return f"{scalar_type(type_.dtype)}*"
    if isinstance(type_, BufferType):
        return f"{type_name(element_type(type_))}*"
    if isinstance(type_, VectorType):
        return f"Lanes<{scalar_type(type_.dtype)}, {type_.lanes}>"
    return scalar_type(type_)


def element_type(type_: BufferType | PointerType) -> DType | VectorType:
    """What one element of memory is."""
    lanes = type_.lanes if isinstance(type_, BufferType) else 1
    return type_.dtype if lanes == 1 else VectorType(type_.dtype, lanes)


def literal(value: Number, dtype: DType) -> str:
    """A constant of an element type."""
    if isinstance(value, complex):
        raise CodegenError(f"CUDA kernels do not compute in {dtype.name}")
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_int:
        return _integer(int(value), dtype)
    if dtype is dtypes.f64:
        return _double(float(value))
    text = _single(float(value))
    return f"to_{dtype.short}({text})" if dtype in WORD_STRUCTS else text


def _integer(value: int, dtype: DType) -> str:
    if dtype is dtypes.u64:
        return f"{value}ull"
    if dtype is dtypes.u32:
        return f"{value}u"
    if dtype.bits < 32:
        return f"({scalar_type(dtype)}){value}" if value >= 0 else f"({scalar_type(dtype)})({value})"
    if value == dtype.min and dtype.bits >= 32:
        suffix = "ll" if dtype.bits == 64 else ""
        return f"({value + 1}{suffix} - 1)"
    text = str(value) if abs(value) < 1 << 31 else f"{value}ll"
    return text if value >= 0 else f"({text})"


def _single(value: float) -> str:
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(value):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    text = f"{value!r}f"
    return text if math.copysign(1.0, value) > 0 else f"({text})"


def _double(value: float) -> str:
    if math.isnan(value):
        return "__longlong_as_double(0x7ff8000000000000ll)"
    if math.isinf(value):
        return f"__longlong_as_double({'0x7ff0000000000000ll' if value > 0 else '0xfff0000000000000ll'})"
    text = repr(value)
    return text if math.copysign(1.0, value) > 0 else f"({text})"
