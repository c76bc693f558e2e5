"""Types, literals, pointers and library of OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.codegen.small_float import SMALL_FLOATS
from hidet.gpu.codegen.spelling import C_FUNCTIONS, Spelling
from hidet.ir.types import MemorySpace

WORD_STRUCTS = frozenset({dtypes.f16, dtypes.bf16, *SMALL_FLOATS})
"""Types that are structs of their bits, each a piece of the prelude under its name."""

_SPACES: Mapping[MemorySpace, str] = {
    "global": "__global ",
    "shared": "__local ",
    "constant": "__constant ",
    "register": "__private ",
    "local": "__private ",
}
"""Of the generic address space a pointer without any is."""

_OWN = {"erfinv": "inverse_erf"}


def library_function(op: str, dtype: DType) -> str | None:
    """The function for an operation: the same name for every float. Those of `_OWN` are in the prelude always."""
    if dtype.is_int:
        return "magnitude" if op == "abs" else None
    return _OWN.get(op, C_FUNCTIONS.get(op))


def spaced_pointer(element: str, space: MemorySpace) -> str:
    """A pointer that says where it points."""
    return f"{_SPACES.get(space, '')}{element}*"


SPELLING = Spelling(
    name="OpenCL",
    types={
        dtypes.boolean: "bool",
        dtypes.i8: "char",
        dtypes.i16: "short",
        dtypes.i32: "int",
        dtypes.i64: "long",
        dtypes.u8: "uchar",
        dtypes.u16: "ushort",
        dtypes.u32: "uint",
        dtypes.u64: "ulong",
        dtypes.f16: "f16",
        dtypes.bf16: "bf16",
        dtypes.f32: "float",
        dtypes.f64: "double",
        dtypes.tf32: "float",
        **{dtype: dtype.short for dtype in SMALL_FLOATS},
    },
    structs=WORD_STRUCTS,
    vector="{element}_{lanes}",
    suffixes={dtypes.u32: "u", dtypes.i64: "L", dtypes.u64: "UL", dtypes.f32: "f", dtypes.f64: ""},
    not_finite={
        (dtypes.f32, "nan"): "as_float(0x7fc00000)",
        (dtypes.f32, "inf"): "as_float(0x7f800000)",
        (dtypes.f32, "-inf"): "as_float(0xff800000)",
        (dtypes.f64, "nan"): "as_double(0x7ff8000000000000L)",
        (dtypes.f64, "inf"): "as_double(0x7ff0000000000000L)",
        (dtypes.f64, "-inf"): "as_double(0xfff0000000000000L)",
    },
    function=library_function,
    pointer=spaced_pointer,
)
