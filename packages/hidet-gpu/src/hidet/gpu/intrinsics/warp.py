"""Exchange of values between the threads of a warp."""

from __future__ import annotations

from hidet.dtypes import bf16, boolean, f16, f32, f64, i32, i64, u32, u64
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Immediate, Intrinsic, Parameter, Result, SameAs, Value, table

_MASK = Value("mask", (u32,))
_MOVED = Value("value", (i32, u32, i64, u64, f16, bf16, f32, f64), group="value")
# Lanes are exchanged inside parts of `width` lanes, a power of two.
_WIDTH = Immediate("width", 1, 32)


def _warp(name: str, doc: str, ptx: str, *parameters: Parameter, result: Result) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=GPU,
        group="warp",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        result=result,
        effect="waits",
        threads=32,
    )


_SHUFFLES = (
    ("shuffle", Value("lane", (i32,)), "`value` of lane number `lane` of the part of `width` lanes"),
    ("shuffle_up", Value("delta", (i32,)), "`value` of the lane `delta` below; its own where that leaves the part"),
    ("shuffle_down", Value("delta", (i32,)), "`value` of the lane `delta` above; its own where that leaves the part"),
    ("shuffle_xor", Value("lane_mask", (i32,)), "`value` of the lane whose number differs in the bits of `lane_mask`"),
)

WARP = table(
    *(
        _warp(f"gpu.{name}", doc, "shfl.sync", _MASK, _MOVED, lane, _WIDTH, result=SameAs("value"))
        for name, lane, doc in _SHUFFLES
    ),
    *(
        _warp(f"gpu.vote_{name}", doc, "vote.sync", _MASK, Value("predicate", (boolean,)), result=result)
        for name, doc, result in (
            ("all", "whether predicate holds in all threads of mask", boolean),
            ("any", "whether predicate holds in any thread of mask", boolean),
            ("uniform", "whether predicate is the same in all threads of mask", boolean),
            ("ballot", "bit i tells whether predicate holds in lane i of mask", u32),
        )
    ),
    _warp("gpu.active_mask", "the lanes that execute this together, a bit each", "activemask", result=u32),
)
