"""What MLIR's builtin dialect and VHLO, StableHLO with versions, write into bytecode: attributes, types, places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError
from hidet.loc import Loc
from hidet.stablehlo.bytes_reader import BytesReader, damaged
from hidet.stablehlo.elements import elements_of
from hidet.stablehlo.program import (
    Attribute,
    Function,
    FunctionType,
    Opaque,
    Operation,
    OtherType,
    Ranked,
    Scalar,
    Symbol,
    Type,
)


@dataclass(frozen=True, slots=True)
class Tables:
    """What attributes and types refer to by number."""

    string: Callable[[int], str]
    attribute: Callable[[int], Attribute]
    type: Callable[[int], Type]


def operator_name(name: str) -> str:
    """The operator without its version: "vhlo.add_v1" is "add"."""
    dialect, _, bare = name.partition(".")
    if dialect != "vhlo":
        return bare if dialect in ("stablehlo", "mhlo", "func", "builtin") else name
    stem, _, version = bare.rpartition("_v")
    return stem if stem and version.isdigit() else bare


def function_of(operation: Operation, names: tuple[str, ...]) -> Function:
    """The function that a `func` operation defines. names: of its arguments, () for none."""
    name = operation.attributes.get("sym_name")
    if not isinstance(name, str) or len(operation.regions) != 1:
        raise damaged("a function has no name, or no body")
    (block,) = operation.regions
    arguments = _dictionaries(operation.attributes.get("arg_attrs"), len(block.arguments))
    return Function(
        name,
        block,
        names or ("",) * len(block.arguments),
        arguments,
        _dictionaries(operation.attributes.get("res_attrs"), len(block.returned)),
    )


def _dictionaries(attribute: Attribute, count: int) -> tuple[Mapping[str, Attribute], ...]:
    if not isinstance(attribute, tuple) or len(attribute) != count:
        return ({},) * count
    return tuple(entry if isinstance(entry, dict) else {} for entry in attribute)


# --- types -----------------------------------------------------------------------------------------------------------

_ELEMENTS: Mapping[int, str] = {
    0: "bool",
    2: "bfloat16",
    3: "float16",
    4: "float32",
    5: "float64",
    6: "float8_e4m3fn",
    7: "float8_e5m2",
    9: "int64",
    10: "int4",
    11: "int8",
    12: "int16",
    13: "int32",
    14: "int64",
    15: "uint4",
    16: "uint8",
    17: "uint16",
    18: "uint32",
    19: "uint64",
    31: "int2",
    32: "uint2",
    35: "float8_e4m3",
    36: "float8_e3m4",
    27: "float8_e4m3fnuz",
    28: "float8_e5m2fnuz",
    29: "float8_e4m3b11fnuz",
    37: "float4_e2m1fn",
    38: "float6_e2m3fn",
    39: "float6_e3m2fn",
    40: "float8_e8m0fnu",
}
"""VHLO's codes of element types, by the names of hidet's."""

_OTHERS: Mapping[int, str] = {22: "token", 26: "witness", 33: "none", 34: "tf32", 41: "buffer", 42: "future"}


def element_type(name: str) -> Type:
    """The element type of that name; an `OtherType` where hidet has none."""
    try:
        return Scalar(dtypes.dtype(name))
    except DTypeError:
        return OtherType(name)


def tensor_type(shape: tuple[int | None, ...], element: Type) -> Type:
    """A tensor of these elements; an `OtherType` where hidet has none such."""
    if isinstance(element, Scalar):
        return Ranked(element.dtype, shape)
    return OtherType(f"tensor of {element}")


def complex_of(element: Type) -> Type:
    """The complex numbers of two such parts."""
    found = {dtypes.f32: dtypes.c64, dtypes.f64: dtypes.c128}
    if isinstance(element, Scalar) and element.dtype in found:
        return Scalar(found[element.dtype])
    return OtherType(f"complex<{element}>")


def read_type(dialect: str, reader: BytesReader, tables: Tables) -> Type:
    """The type whose bytes `reader` has."""
    code = reader.number()
    if dialect == "builtin":
        return _builtin_type(code, reader, tables)
    if dialect != "vhlo":
        return OtherType(f"a type of dialect {dialect}")
    if code in _ELEMENTS:
        return element_type(_ELEMENTS[code])
    if code == 1:
        return complex_of(tables.type(reader.number()))
    if code == 8:
        inputs = tuple(tables.type(reader.number()) for _ in range(reader.count()))
        return FunctionType(inputs, tuple(tables.type(reader.number()) for _ in range(reader.count())))
    if code in (20, 21):
        if code == 21:
            tables.attribute(reader.number())  # bounds of extents, which are hints
        shape = tuple(reader.signed() for _ in range(reader.count()))
        return tensor_type(tuple(None if n == _OPEN else n for n in shape), tables.type(reader.number()))
    if code in (24, 30):
        return OtherType("a quantised element type")
    if code in (23, 25):
        return OtherType("tuple" if code == 23 else "tensor without a number of axes")
    return OtherType(_OTHERS.get(code, f"type {code} of VHLO"))


_OPEN = -(1 << 63)
"""An extent that is open."""


def _builtin_type(code: int, reader: BytesReader, tables: Tables) -> Type:
    if code == 0:
        width = reader.number()
        bits, is_unsigned = width >> 2, width & 3 == 2
        return element_type("bool" if bits == 1 else f"{'u' if is_unsigned else ''}int{bits}")
    names = {1: "int64", 3: "bfloat16", 4: "float16", 5: "float32", 6: "float64"}
    if code in names:
        return element_type(names[code])
    if code == 2:
        inputs = tuple(tables.type(reader.number()) for _ in range(reader.count()))
        return FunctionType(inputs, tuple(tables.type(reader.number()) for _ in range(reader.count())))
    if code == 9:
        return complex_of(tables.type(reader.number()))
    if code == 13:
        shape = tuple(reader.signed() for _ in range(reader.count()))
        return tensor_type(tuple(None if n == _OPEN else n for n in shape), tables.type(reader.number()))
    return OtherType(f"type {code} of MLIR")


# --- attributes ------------------------------------------------------------------------------------------------------

_ENUMS: Mapping[int, tuple[str, ...]] = {
    3: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    4: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    5: ("UNSPECIFIED", "ORIGINAL", "STATUS_RETURNING", "STATUS_RETURNING_UNIFIED", "TYPED_FFI"),
    7: ("FFT", "IFFT", "RFFT", "IRFFT"),
    11: ("DEFAULT", "HIGH", "HIGHEST"),
    12: ("DEFAULT", "THREE_FRY", "PHILOX"),
    13: ("", "UNIFORM", "NORMAL"),
    16: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    19: ("DEFAULT", "HIGHEST", "TOLERANCE"),
}
"""VHLO's codes of attributes that are one of some words, with the words in the order of their numbers."""


def read_attribute(dialect: str, reader: BytesReader, tables: Tables) -> Attribute:
    """The attribute, or place, whose bytes `reader` has."""
    code = reader.number()
    if dialect == "builtin":
        return _builtin_attribute(code, reader, tables)
    if dialect != "vhlo":
        return Opaque(f"an attribute of dialect {dialect}")
    if code == 1:
        return tuple(tables.attribute(reader.number()) for _ in range(reader.count()))
    if code == 2:
        return bool(reader.number())
    if code in _ENUMS:
        words, number = _ENUMS[code], reader.number()
        if number >= len(words):
            raise damaged(f"an attribute has word {number} of {', '.join(words)}")
        return words[number]
    if code == 6:
        pairs = [(tables.attribute(reader.number()), tables.attribute(reader.number())) for _ in range(reader.count())]
        return {str(name): value for name, value in pairs}
    if code == 8:
        return _float(tables.type(reader.number()), reader)
    if code == 9:
        return _integer(tables.type(reader.number()), reader)
    if code == 14:
        return tables.string(reader.number())
    if code == 15:
        type_ = tables.type(reader.number())
        return elements_of(type_, reader.bytes(reader.number()))
    if code == 17:
        return tables.type(reader.number())
    return Opaque(f"attribute {code} of VHLO")


def _builtin_attribute(code: int, reader: BytesReader, tables: Tables) -> Attribute:
    if code == 0:
        return tuple(tables.attribute(reader.number()) for _ in range(reader.count()))
    if code == 1:
        pairs = [(tables.attribute(reader.number()), tables.attribute(reader.number())) for _ in range(reader.count())]
        return {str(name): value for name, value in pairs}
    if code in (2, 3):
        return tables.string(reader.number())
    if code in (4, 5):
        return Symbol(str(tables.attribute(reader.number())))
    if code == 6:
        return tables.type(reader.number())
    if code == 7:
        return None
    if code == 8:
        return _integer(tables.type(reader.number()), reader)
    if code == 9:
        return _float(tables.type(reader.number()), reader)
    if code in _PLACES:
        return _PLACES[code](reader, tables)
    if code == 18:
        return elements_of(tables.type(reader.number()), reader.bytes(reader.number()))
    return Opaque(f"attribute {code} of MLIR")


def _bits(width: int, reader: BytesReader) -> int:
    """A number of `width` bits, not below 0."""
    value = reader.byte() if width <= 8 else reader.signed()
    return value & (1 << width) - 1


def _integer(type_: Type, reader: BytesReader) -> int | bool:
    dtype = _dtype_of(type_, "an integer")
    if not dtype.is_int and dtype != dtypes.boolean:
        raise damaged(f"an integer is of type {dtype.name}")
    value = _bits(dtype.bits, reader)
    if dtype == dtypes.boolean:
        return bool(value)
    return value - (1 << dtype.bits) if int(dtype.min) < 0 and value >> dtype.bits - 1 else value


_FLOATS: Mapping[DType, tuple[Any, Any]] = {
    dtypes.f64: (numpy.uint64, numpy.float64),
    dtypes.f32: (numpy.uint32, numpy.float32),
    dtypes.f16: (numpy.uint16, numpy.float16),
    dtypes.bf16: (numpy.uint16, ml_dtypes.bfloat16),
}


def _float(type_: Type, reader: BytesReader) -> float | Opaque:
    dtype = _dtype_of(type_, "a number")
    if dtype not in _FLOATS:
        return Opaque(f"a number of type {dtype.name}")
    whole, real = _FLOATS[dtype]
    return float(numpy.array(_bits(dtype.bits, reader), whole).view(real))


def _dtype_of(type_: Type, what: str) -> DType:
    if not isinstance(type_, Scalar):
        raise damaged(f"{what} is of type {type_}")
    return type_.dtype


# --- places ----------------------------------------------------------------------------------------------------------


def _place(value: Attribute) -> Loc | None:
    return value if isinstance(value, Loc) else None


def _call_site(reader: BytesReader, tables: Tables) -> Loc | None:
    callee, caller = _place(tables.attribute(reader.number())), _place(tables.attribute(reader.number()))
    if callee is None or caller is None:
        return callee or caller
    return Loc(callee.file, callee.line, callee.column, callee.name, callee.parent or caller)


def _line(reader: BytesReader, tables: Tables) -> Loc | None:
    file = tables.attribute(reader.number())
    return Loc(str(file), reader.number(), reader.number())


def _range(reader: BytesReader, tables: Tables) -> Loc | None:
    """From a line and column to others; the first are enough."""
    file = str(tables.attribute(reader.number()))
    numbers = [reader.number() for _ in range(reader.count())]
    line, column = (*numbers, None, None)[:2]
    return Loc(file, line, column)


def _fused(reader: BytesReader, tables: Tables) -> Loc | None:
    found = [_place(tables.attribute(reader.number())) for _ in range(reader.count())]
    return next((loc for loc in found if loc is not None), None)


def _named(reader: BytesReader, tables: Tables) -> Loc | None:
    name, inner = str(tables.attribute(reader.number())), _place(tables.attribute(reader.number()))
    if inner is None:
        return Loc(name=name)
    return Loc(inner.file, inner.line, inner.column, name, inner.parent)


_PLACES: Mapping[int, Callable[[BytesReader, Tables], Loc | None]] = {
    10: _call_site,
    11: _line,
    12: _fused,
    13: _fused,
    14: _named,
    15: lambda reader, tables: None,
    22: _range,
}
"""MLIR's codes of places."""
