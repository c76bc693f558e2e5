"""Reductions and votes of a warp."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import boolean, i32, i64, u32, u64
from hidet.ir.intrinsic import Intrinsic, Parameter, Result, SameAs, Value, table

_MASK = Value("mask", (u32,))
_WORD = Value("value", (i32, u32))
# Lanes are exchanged inside parts of `width` lanes, a power of two.


def _warp(name: str, doc: str, ptx: str, *parameters: Parameter, result: Result) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=CUDA,
        group="warp",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        result=result,
        effect="waits",
        threads=32,
    )


WARP = table(
    _warp(
        "cuda.match_any",
        "the lanes of mask with the same `value`, a bit each",
        "match.sync",
        _MASK,
        Value("value", (i32, u32, i64, u64)),
        result=u32,
    ),
    *(
        _warp(
            f"cuda.reduce_{name}",
            f"{doc} of `value` over the threads of mask",
            "redux.sync",
            _MASK,
            _WORD,
            result=SameAs("value"),
        )
        for name, doc in (("add", "sum"), ("min", "minimum"), ("max", "maximum"))
    ),
    *(
        _warp(
            f"cuda.reduce_{name}",
            f"bit-wise {name} of `value` over the threads of mask",
            "redux.sync",
            _MASK,
            Value("value", (u32,)),
            result=u32,
        )
        for name in ("and", "or", "xor")
    ),
    Intrinsic(
        name="cuda.elect",
        family=CUDA,
        group="warp",
        doc="true in exactly one thread of mask",
        ptx="elect.sync",
        parameters=(_MASK,),
        result=boolean,
        effect="waits",
        arch=90,
        threads=32,
    ),
)
