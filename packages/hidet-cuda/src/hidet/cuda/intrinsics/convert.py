"""Conversions of several packed values at once. Conversions of one value are `Cast`."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import f32, u16, u32
from hidet.ir.intrinsic import Intrinsic, Memory, Result, Value, table

_PAIR = (Value("low", (f32,)), Value("high", (f32,)))


def _convert(name: str, doc: str, *parameters: Value, result: Result, arch: int = 80) -> Intrinsic:
    return Intrinsic(
        name=f"cuda.{name}",
        family=CUDA,
        group="convert",
        doc=doc,
        ptx="cvt",
        parameters=parameters,
        result=result,
        arch=arch,
    )


CONVERT = table(
    _convert("pack_f16", "two f32 as a word of two f16, to nearest even", *_PAIR, result=u32),
    _convert("pack_bf16", "two f32 as a word of two bf16, to nearest even", *_PAIR, result=u32),
    _convert("round_tf32", "f32 to the nearest tf32, ties away from zero, as a word", Value("a", (f32,)), result=u32),
    _convert("pack_f8e4m3", "two f32 as two f8e4m3, to nearest even, saturating", *_PAIR, result=u16, arch=89),
    _convert("pack_f8e5m2", "two f32 as two f8e5m2, to nearest even, saturating", *_PAIR, result=u16, arch=89),
    _convert("unpack_f8e4m3", "two f8e4m3 as a word of two f16", Value("a", (u16,)), result=u32, arch=89),
    _convert("unpack_f8e5m2", "two f8e5m2 as a word of two f16", Value("a", (u16,)), result=u32, arch=89),
    *(
        Intrinsic(
            name=f"cuda.unpack_{short}_{to}",
            family=CUDA,
            group="convert",
            doc=f"eight {short} of a word as four words of two {to}, the lowest bits first",
            ptx="lop3",
            parameters=(Memory("target", ("register", "local"), (u32,), nbytes=16), Value("a", (u32,))),
            effect="reads",
        )
        for short in ("i4", "u4")
        for to in ("f16", "bf16")
    ),
)
