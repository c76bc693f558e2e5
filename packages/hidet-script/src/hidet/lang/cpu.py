"""Vectors of four and eight f32 under the names of AVX's intrinsics. They compile for every CPU.

avx_f32x8_load(p), avx_f32x8_store(p, v)        eight neighbours from a pointer on
avx_f32x8_fmadd(a, b, c)                        a * b + c, rounded once
avx_f32x8_setzero(), avx_f32x8_set1(x)          equal lanes; avx_f32x8_broadcast(p) reads their value
avx_f32x8_unpacklo(a, b), avx_f32x8_shuffle(a, b, imm), avx_f32x8_permute2f32x4(a, b, imm)   lanes of two vectors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.errors import ScriptError
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

    def picked(pick: Callable[[int, int], int]) -> Callable[..., Any]:
        """Lanes of two vectors, by half of four lanes and place in it; those of the second are counted on."""
        places = [(half * 4, lane) for half in range(lanes // 4) for lane in range(4)]

        def run(translator: Translator, a: Any, b: Any) -> Expr:
            first, second = (operators.convert(x, type_, "a vector") for x in (a, b))
            return build.shuffle(first, second, [pick(half, lane) for half, lane in places])

        return run

    def shuffle(translator: Translator, a: Any, b: Any, imm: Any) -> Expr:
        choices = [_known(imm) >> 2 * lane & 3 for lane in range(4)]
        mixed: Expr = picked(lambda half, lane: half + choices[lane] + lanes * (lane >= 2))(translator, a, b)
        return mixed

    found: dict[str, Callable[..., Any]] = {
        "unpacklo": picked(lambda half, lane: half + lane // 2 + lanes * (lane % 2)),
        "unpackhi": picked(lambda half, lane: half + 2 + lane // 2 + lanes * (lane % 2)),
        "shuffle": shuffle,
        **dict.fromkeys(("load", "load_aligned"), load),
        **dict.fromkeys(("store", "store_aligned"), store),
        **dict.fromkeys(("setzero", "set1"), equal),
        "broadcast": broadcast,
        "fmadd": fmadd,
        **{name: binary(op) for name, op in _ARITHMETIC.items()},
        **{name: fold(op) for name, op in _FOLDS.items()},
    }
    return {f"avx_f32x{lanes}_{name}": meaning for name, meaning in found.items()}


def _known(imm: Any) -> int:
    if not isinstance(imm, int):
        raise ScriptError(f"which lanes are taken is known when the script is translated, got {imm!r}")
    return imm


def _halves(vector: Any, lanes: int) -> Expr:
    return operators.convert(vector, VectorType(dtypes.f32, lanes), "a vector")


def _permute_halves(translator: Translator, a: Any, b: Any, imm: Any) -> Expr:
    """Two halves of the four of a and b, by two bits from bit 0 and from bit 4 on; bit 3 and 7 give zeros."""
    chosen = [_known(imm) >> 4 * half & 15 for half in range(2)]
    places = [4 * (choice & 3) + lane for choice in chosen for lane in range(4)]
    found = build.shuffle(_halves(a, 8), _halves(b, 8), places)
    zeros = operators.convert(0.0, VectorType(dtypes.f32, 8), "zero")
    kept = [8 * bool(choice & 8) + 4 * half + lane for half, choice in enumerate(chosen) for lane in range(4)]
    return build.shuffle(found, zeros, kept)


def _insert_half(translator: Translator, a: Any, b: Any, imm: Any) -> Expr:
    """a with half number `imm` from b, which has four lanes."""
    wide = build.shuffle(_halves(b, 4), _halves(b, 4), [*range(4), *range(4)])
    places = [lane + 8 * (lane // 4 == _known(imm)) for lane in range(8)]
    return build.shuffle(_halves(a, 8), wide, places)


def _lower_half(translator: Translator, a: Any) -> Expr:
    return build.shuffle(_halves(a, 8), _halves(a, 8), [*range(4)])


_OF_HALVES: dict[str, Callable[..., Any]] = {
    "avx_f32x8_permute2f32x4": _permute_halves,
    "avx_f32x8_insert_f32x4": _insert_half,
    "avx_f32x8_cast_f32x4": _lower_half,
}
VECTOR_OPERATIONS = {**_of_width(4), **_of_width(8), **_OF_HALVES}
"""name -> function of the translator and the arguments."""


def __getattr__(name: str) -> Primitive:
    if name not in VECTOR_OPERATIONS:
        raise AttributeError(f"hidet.lang.cpu has no {name!r}")
    return Primitive(name)


def __dir__() -> list[str]:
    return sorted(VECTOR_OPERATIONS)
