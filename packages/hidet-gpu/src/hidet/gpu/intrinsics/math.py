"""Fast approximations of functions. Their exact kin are scalar operations."""

from __future__ import annotations

from hidet.dtypes import DType, bf16, f16, f32, f64
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Intrinsic, Result, SameAs, Value, table


def _math(name: str, doc: str, ptx: str, *parameters: Value, result: Result) -> Intrinsic:
    return Intrinsic(name=name, family=GPU, group="math", doc=doc, ptx=ptx, parameters=parameters, result=result)


def _same(*names: str, dtypes: tuple[DType, ...]) -> tuple[Value, ...]:
    return tuple(Value(name, dtypes, group="value") for name in names)


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
)
