"""Vectors of four and eight f32 under the names of AVX's intrinsics. They compile for every CPU.

avx_f32x8_load(p), avx_f32x8_store(p, v)        eight neighbours from a pointer on
avx_f32x8_fmadd(a, b, c)                        a * b + c, rounded once
avx_f32x8_setzero(), avx_f32x8_set1(x)          equal lanes; avx_f32x8_broadcast(p) reads their value
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Load
from hidet.ir.types import VectorType
from hidet.lang import operators
from hidet.lang.values import Primitive

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

_ARITHMETIC = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "max": "max", "min": "min"}
_FOLDS = {"find_sum": "add", "find_max": "max"}


def _pointer(value: Any) -> Expr:
    return operators.as_expr(operators.decayed(value))


def _of_width(lanes: int) -> dict[str, Callable[..., Any]]:
    """What each operation on vectors of `lanes` numbers becomes, by name."""
    type_ = VectorType(dtypes.f32, lanes)

    def load(translator: Translator, pointer: Any) -> Expr:
        return Load(_pointer(pointer), (build.index(0),), type_)

    def store(translator: Translator, pointer: Any, value: Any) -> None:
        converted = operators.convert(value, type_, "the vector stored")
        translator.stmts.append(s.Store(_pointer(pointer), (build.index(0),), converted))

    def equal(translator: Translator, value: Any = 0.0) -> Expr:
        return operators.convert(value, type_, "the value of all lanes")

    def broadcast(translator: Translator, pointer: Any) -> Expr:
        return build.broadcast(build.load(_pointer(pointer), 0), lanes)

    def fmadd(translator: Translator, a: Any, b: Any, c: Any) -> Expr:
        return fma(*(operators.convert(x, type_, "a vector") for x in (a, b, c)))

    def binary(op: str) -> Callable[..., Any]:
        return lambda translator, a, b: operators.binary(op, a, b)

    def fold(op: str) -> Callable[..., Any]:
        def run(translator: Translator, vector: Any) -> Any:
            parts = [build.extract(operators.as_expr(vector), lane) for lane in range(lanes)]
            while len(parts) > 1:
                pairs = zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True)
                parts = [operators.binary(op, a, b) for a, b in pairs]
            return parts[0]

        return run

    found: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("load", "load_aligned"), load),
        **dict.fromkeys(("store", "store_aligned"), store),
        **dict.fromkeys(("setzero", "set1"), equal),
        "broadcast": broadcast,
        "fmadd": fmadd,
        **{name: binary(op) for name, op in _ARITHMETIC.items()},
        **{name: fold(op) for name, op in _FOLDS.items()},
    }
    return {f"avx_f32x{lanes}_{name}": meaning for name, meaning in found.items()}


VECTOR_OPERATIONS = {**_of_width(4), **_of_width(8)}
"""name -> function of the translator and the arguments."""


def __getattr__(name: str) -> Primitive:
    if name not in VECTOR_OPERATIONS:
        raise AttributeError(f"hidet.lang.cpu has no {name!r}")
    return Primitive(name)


def __dir__() -> list[str]:
    return sorted(VECTOR_OPERATIONS)
