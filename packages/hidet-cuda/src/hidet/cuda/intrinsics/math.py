"""Arithmetic on packed pairs and quarters of words."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import bf16, f16, i32, u32
from hidet.ir.intrinsic import Intrinsic, Result, Value, table


def _math(name: str, doc: str, ptx: str, *parameters: Value, result: Result) -> Intrinsic:
    return Intrinsic(name=name, family=CUDA, group="math", doc=doc, ptx=ptx, parameters=parameters, result=result)


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
