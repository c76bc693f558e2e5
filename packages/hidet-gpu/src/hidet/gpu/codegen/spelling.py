"""How a language of the C family spells types and literals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.expr import Number
from hidet.ir.types import BufferType, MemorySpace, PointerType, Type, VectorType

C_FUNCTIONS = {
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "lgamma": "lgamma",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "trunc": "trunc",
    "pow": "pow",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "abs": "fabs",
    "rem": "fmod",
    "nextafter": "nextafter",
    "fma": "fma",
}
"""Functions of real numbers as math.h names them, by operation."""


def c_function(op: str, dtype: DType) -> str | None:
    """The function of C's library: the f32 form ends in f."""
    if dtype.is_int:
        return ("llabs" if dtype.bits == 64 else "abs") if op == "abs" else None
    name = C_FUNCTIONS.get(op)
    return name if name is None or dtype is dtypes.f64 else f"{name}f"


def plain_pointer(element: str, space: MemorySpace) -> str:
    """A pointer of a language whose pointers do not say where they point, but whether what is there changes."""
    return f"const {element}*" if space == "constant" else f"{element}*"


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """Types, literals and functions of a language's library.

    name: what the language is called in errors ("CUDA"). types: by element type; i32, u32, i64, u64, i8, u8 and f32 are
    there. structs: those of them that are structs of their bits, each a piece of the prelude under its short name, with
    functions `to_f32` and `to_<short name>`. vector: several lanes of an element, of {element} and {lanes}, a struct
    with the array `lane`. suffixes: of literals, "" where there is none. not_finite: literals of f32 and f64 by (type,
    "nan", "inf" or "-inf"). function: the library's function for an operation on f32, f64 or integers; None where it
    has none. pointer: to elements in a space of memory.
    """

    name: str
    types: Mapping[DType, str]
    structs: frozenset[DType]
    vector: str
    suffixes: Mapping[DType, str]
    not_finite: Mapping[tuple[DType, str], str]
    function: Callable[[str, DType], str | None]
    pointer: Callable[[str, MemorySpace], str] = field(default=plain_pointer)

    def scalar_type(self, dtype: DType) -> str:
        """The type of one element. CodegenError for types that no kernel holds."""
        name = self.types.get(dtype)
        if name is None:
            if dtype.is_subbyte and dtype.is_int:
                # A byte each in memory, as numpy arrays have them.
                return self.types[dtypes.i8 if dtype.is_signed else dtypes.u8]
            raise CodegenError(
                f"{self.name} kernels do not hold elements of {dtype.name}", hint="cast the tensor first"
            )
        return name

    def type_name(self, type_: Type | None) -> str:
        """The type of a value; pointers are to elements, buffers are passed as pointers."""
        if type_ is None:
            return "void"
        if isinstance(type_, PointerType):
            return self.pointer(self.scalar_type(type_.dtype), type_.space)
        if isinstance(type_, BufferType):
            return self.pointer(self.type_name(element_type(type_)), type_.space)
        if isinstance(type_, VectorType):
            return self.vector.format(element=self.scalar_type(type_.dtype), lanes=type_.lanes)
        return self.scalar_type(type_)

    def literal(self, value: Number, dtype: DType) -> str:
        """A constant of an element type."""
        if isinstance(value, complex):
            raise CodegenError(f"{self.name} kernels do not compute in {dtype.name}")
        if dtype.is_bool:
            return "true" if value else "false"
        if dtype.is_int:
            return self._integer(int(value), dtype)
        wide = dtypes.f64 if dtype is dtypes.f64 else dtypes.f32
        text = self._float(float(value), wide)
        return f"to_{dtype.short}({text})" if dtype in self.structs else text

    def _integer(self, value: int, dtype: DType) -> str:
        if dtype.kind == "uint" and dtype.bits >= 32:
            return f"{value}{self.suffixes[dtype]}"
        if dtype.bits < 32:
            type_ = self.scalar_type(dtype)
            return f"({type_}){value}" if value >= 0 else f"({type_})({value})"
        if value == dtype.min:
            suffix = self.suffixes[dtypes.i64] if dtype.bits == 64 else ""
            return f"({value + 1}{suffix} - 1)"
        text = str(value) if abs(value) < 1 << 31 else f"{value}{self.suffixes[dtypes.i64]}"
        return text if value >= 0 else f"({text})"

    def _float(self, value: float, dtype: DType) -> str:
        if math.isnan(value):
            return self.not_finite[dtype, "nan"]
        if math.isinf(value):
            return self.not_finite[dtype, "inf" if value > 0 else "-inf"]
        text = f"{value!r}{self.suffixes[dtype]}"
        return text if math.copysign(1.0, value) > 0 else f"({text})"


def element_type(type_: BufferType | PointerType) -> DType | VectorType:
    """What one element of memory is."""
    lanes = type_.lanes if isinstance(type_, BufferType) else 1
    return type_.dtype if lanes == 1 else VectorType(type_.dtype, lanes)
