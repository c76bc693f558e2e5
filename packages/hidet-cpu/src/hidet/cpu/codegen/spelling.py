"""How types, constants and scalar operations are spelled in LLVM IR: tables only.

f16 and bf16 values travel as i16 and bool values in memory as i8, so that no conversion needs a library call. Complex
numbers are moved, never computed with: they travel as their bits. Types below 8 bits have registers of their width, and
take a byte each in memory, whose upper bits are zero: the form that numpy arrays of them have.
"""

from __future__ import annotations

import struct

import numpy

from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype

_BYTE_FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
SMALL_FLOATS = (*_BYTE_FLOATS, "float4_e2m1fn")

_REGISTER = {
    "bool": "i1",
    "float32": "float",
    "float64": "double",
    "float16": "i16",
    "bfloat16": "i16",
    **dict.fromkeys(_BYTE_FLOATS, "i8"),
    "float4_e2m1fn": "i4",
}

# operations LLVM has an intrinsic for that every target lowers without a library call
INTRINSIC_UNARY = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}

FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
# of truth values, as numpy has it
BOOL_BINARY = {"add": "or", "mul": "and", "land": "and", "lor": "or", "max": "or", "min": "and"}
FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
SIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
UNSIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
# of i64, with the type; sums and products of indices never overflow
WRAPPING_INDEX_BINARY = {
    **{op: f"{name} i64" for op, name in INT_BINARY.items()},
    **{op: f"icmp {name} i64" for op, name in SIGNED_COMPARE.items()},
}
INDEX_BINARY = {**WRAPPING_INDEX_BINARY, **{op: f"{op} nsw i64" for op in ("add", "sub", "mul")}}

_ADDRESSES = (PointerType, BufferType)


def register_type(type_: Type) -> str:
    """The LLVM type of a value held in a register."""
    if isinstance(type_, DType):
        return _scalar(type_)
    if isinstance(type_, _ADDRESSES):
        return "ptr"
    return f"<{type_.lanes} x {_scalar(type_.dtype)}>"


def memory_type(type_: Type) -> str:
    """The LLVM type of a value in memory: like in a register, but bool and types below 8 bits take a byte."""
    if isinstance(type_, _ADDRESSES):
        return "ptr"
    dtype = type_.dtype if isinstance(type_, VectorType) else type_
    scalar = "i8" if is_widened_in_memory(dtype) else _scalar(dtype)
    return f"<{type_.lanes} x {scalar}>" if isinstance(type_, VectorType) else scalar


def is_widened_in_memory(dtype: DType) -> bool:
    """Whether the type's register is narrower than its place in memory."""
    return dtype.is_bool or dtype.is_subbyte


def _scalar(dtype: DType) -> str:
    known = _REGISTER.get(dtype.name)
    if known is not None:
        return known
    if dtype.is_int or dtype.is_complex:
        return f"i{dtype.bits}"
    raise CodegenError(f"the CPU target has no register type for {dtype.name}", hint="cast it to a supported dtype")


def literal(value: bool | int | float | complex, dtype: DType) -> str:
    """A constant as LLVM writes it; floats exactly, by their bits."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_complex:
        # The real part lies first, in the lower half.
        return str(int.from_bytes(numpy.asarray(value, dtype=dtype.numpy()).tobytes(), "little"))
    if isinstance(value, complex):
        raise CodegenError(f"the complex number {value} is no constant of dtype {dtype.name}")
    if dtype.is_int:
        return str(int(value))
    if dtype.name == "float64":
        return _double_bits(float(value))
    if dtype.name == "float32":
        return _double_bits(_round_to_single(float(value)))
    if dtype.name in ("float16", "bfloat16", *SMALL_FLOATS):
        with numpy.errstate(over="ignore"):
            bits = numpy.asarray(value, dtype=dtype.numpy()).view(f"u{dtype.nbytes}")
        return str(int(bits))
    raise CodegenError(f"the CPU target has no constants of dtype {dtype.name}")


def constant(value: bool | int | float | complex, type_: Type) -> str:
    """A literal of a scalar type, or a vector of equal lanes."""
    if not isinstance(type_, VectorType):
        return literal(value, element_dtype(type_))
    return f"splat ({_scalar(type_.dtype)} {literal(value, type_.dtype)})"


def _round_to_single(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else -float("inf")
    return rounded


def _double_bits(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def intrinsic_suffix(type_: Type) -> str:
    """Overload suffix of an LLVM intrinsic: f32, v16f32, i64, …"""
    dtype = type_.dtype if isinstance(type_, VectorType) else type_
    if isinstance(dtype, PointerType | BufferType):
        raise CodegenError("no intrinsic takes a pointer here")
    scalar = f"f{dtype.bits}" if dtype.name in ("float32", "float64") else _scalar(dtype)
    return f"v{type_.lanes}{scalar}" if isinstance(type_, VectorType) else scalar


def suffix_of(llvm_type: str) -> str:
    """Overload suffix of an LLVM type: "<16 x float>" becomes "v16f32", "i8" stays."""
    names = {"float": "f32", "double": "f64"}
    if not llvm_type.startswith("<"):
        return names.get(llvm_type, llvm_type)
    count, _, scalar = llvm_type.strip("<>").partition(" x ")
    return f"v{count}{names.get(scalar, scalar)}"
