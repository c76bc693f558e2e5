"""Operations on the bits of words."""

from __future__ import annotations

from hidet.dtypes import i32, i64, u32, u64
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Intrinsic, Parameter, Result, SameAs, Value, table


def _bits(name: str, doc: str, ptx: str, *parameters: Parameter, result: Result) -> Intrinsic:
    return Intrinsic(name=name, family=GPU, group="bits", doc=doc, ptx=ptx, parameters=parameters, result=result)


def _word(name: str) -> Value:
    return Value(name, (u32,))


_ANY = Value("a", (u32, u64))
_SHORT = Value("a", (i32, u32), group="value")

BITS = table(
    _bits("gpu.population_count", "how many bits are set", "popc", _ANY, result=i32),
    _bits("gpu.leading_zeros", "how many bits above the highest set one", "clz", _ANY, result=i32),
    _bits("gpu.reverse_bits", "the bits in reverse order", "brev", _ANY, result=SameAs("a")),
    _bits("gpu.find_first_set", "1 plus the number of the lowest set bit, 0 for none", "bfind", _ANY, result=i32),
    _bits(
        "gpu.extract_bits",
        "`length` bits from bit `position` on, extended by the sign for i32",
        "bfe",
        _SHORT,
        _word("position"),
        _word("length"),
        result=SameAs("a"),
    ),
    _bits(
        "gpu.insert_bits",
        "b with `length` bits from bit `position` on replaced by the lowest of a",
        "bfi",
        _word("a"),
        _word("b"),
        _word("position"),
        _word("length"),
        result=u32,
    ),
    _bits(
        "gpu.multiply_high",
        "the upper half of the product",
        "mul",
        Value("a", (i32, u32, i64, u64), group="value"),
        Value("b", (i32, u32, i64, u64), group="value"),
        result=SameAs("a"),
    ),
)
