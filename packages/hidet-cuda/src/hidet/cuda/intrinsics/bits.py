"""Operations on the bits of words that NVIDIA's GPUs have besides."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import u32
from hidet.ir.intrinsic import Immediate, Intrinsic, Parameter, Result, Value, table


def _bits(name: str, doc: str, ptx: str, *parameters: Parameter, result: Result) -> Intrinsic:
    return Intrinsic(name=name, family=CUDA, group="bits", doc=doc, ptx=ptx, parameters=parameters, result=result)


def _word(name: str) -> Value:
    return Value(name, (u32,))


BITS = table(
    _bits(
        "cuda.lop3",
        "each bit is bit number 4 a + 2 b + c of `lut`, a, b and c being the bits at its place",
        "lop3",
        _word("a"),
        _word("b"),
        _word("c"),
        Immediate("lut", 0, 255),
        result=u32,
    ),
    _bits(
        "cuda.byte_permute",
        "each byte is that of the eight of b and a (a lowest) which four bits of selector name",
        "prmt",
        _word("a"),
        _word("b"),
        _word("selector"),
        result=u32,
    ),
    *(
        _bits(
            f"cuda.funnel_shift_{way}",
            f"the {part} word of high:low shifted {way} by the lowest five bits of shift",
            "shf",
            _word("low"),
            _word("high"),
            _word("shift"),
            result=u32,
        )
        for way, part in (("left", "upper"), ("right", "lower"))
    ),
)
