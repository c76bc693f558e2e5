"""Types, literals and library of CUDA C++."""

from __future__ import annotations

from hidet import dtypes
from hidet.cuda.codegen.pieces import INFINITY, NAN
from hidet.gpu.codegen.small_float import SMALL_FLOATS
from hidet.gpu.codegen.spelling import Spelling, c_function

WORD_STRUCTS = frozenset({dtypes.f16, dtypes.bf16, *SMALL_FLOATS})
"""Types that are structs of their bits, each a piece of the prelude under its name."""

SPELLING = Spelling(
    name="CUDA",
    types={
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
    },
    structs=WORD_STRUCTS,
    vector="Lanes<{element}, {lanes}>",
    suffixes={dtypes.u32: "u", dtypes.i64: "ll", dtypes.u64: "ull", dtypes.f32: "f", dtypes.f64: ""},
    not_finite={
        (dtypes.f32, "nan"): "__int_as_float(0x7fc00000)",
        (dtypes.f32, "inf"): "__int_as_float(0x7f800000)",
        (dtypes.f32, "-inf"): "__int_as_float(0xff800000)",
        (dtypes.f64, "nan"): NAN,
        (dtypes.f64, "inf"): INFINITY,
        (dtypes.f64, "-inf"): "__longlong_as_double(0xfff0000000000000ll)",
    },
    function=c_function,
)
