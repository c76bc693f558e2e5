"""Fast approximations of functions, and arithmetic on packed pairs. Their exact kin are scalar operations."""

from __future__ import annotations

from hidet.dtypes import DType, bf16, f16, f32, f64, i32, u32
from hidet.gpu.intrinsics.family import family_of
from hidet.ir.intrinsic import Intrinsic, Result, SameAs, Value, table


def _math(name: str, doc: str, ptx: str, *parameters: Value, result: Result) -> Intrinsic:
    return Intrinsic(
        name=name, family=family_of(name), group="math", doc=doc, ptx=ptx, parameters=parameters, result=result
    )


def _same(*names: str, dtypes: tuple[DType, ...]) -> tuple[Value, ...]:
    return tuple(Value(name, dtypes, group="value") for name in names)


_WORDS = ("a", "b", "c")
_PAIRS = (
    ("add", 2, "a + b", "add"),
    ("sub", 2, "a - b", "sub"),
    ("mul", 2, "a * b", "mul"),
    ("fma", 3, "a * b + c, rounded once", "fma"),
    ("min", 2, "the smaller of a and b; NaN if one is NaN", "min"),
    ("max", 2, "the larger of a and b; NaN if one is NaN", "max"),
)

MATH = table(
    _math(
        "gpu.fma",
        "a * b + c, rounded once",
        "fma",
        *_same("a", "b", "c", dtypes=(f32, f64, f16, bf16)),
        result=SameAs("a"),
    ),
    *(
        _math(f"gpu.{name}_approx", doc, ptx, Value("a", (f32,)), result=f32)
        for name, doc, ptx in (
            ("exp2", "2 ** a within 2 units in the last place; tiny values become zero", "ex2"),
            ("log2", "log2(a) within 2 ** -22 absolutely, near one relatively", "lg2"),
            ("reciprocal", "1 / a within 1 unit in the last place; tiny values become zero", "rcp"),
            ("rsqrt", "1 / sqrt(a), relative error 2 ** -22.4", "rsqrt"),
            ("sqrt", "sqrt(a), relative error 2 ** -23", "sqrt"),
            ("sin", "sin(a), absolute error 2 ** -20.5 between -pi and pi", "sin"),
            ("cos", "cos(a), absolute error 2 ** -20.5 between -pi and pi", "cos"),
            ("tanh", "tanh(a), relative error 2 ** -11", "tanh"),
        )
    ),
    *(
        _math(
            f"cuda.{name}_{dtype.short}x2",
            f"{doc}, for each of the two {dtype} of a word",
            ptx,
            *(Value(word, (u32,)) for word in _WORDS[:count]),
            result=u32,
        )
        for dtype in (f16, bf16)
        for name, count, doc, ptx in _PAIRS
    ),
    _math(
        "cuda.dot_4",
        "c plus the sum of the products of the four i8 of a and of b",
        "dp4a",
        *(Value(word, (i32,)) for word in _WORDS),
        result=i32,
    ),
    _math(
        "cuda.dot_4_unsigned",
        "c plus the sum of the products of the four u8 of a and of b",
        "dp4a",
        *(Value(word, (u32,)) for word in _WORDS),
        result=u32,
    ),
)
