"""Intrinsics that every target has."""

from __future__ import annotations

from hidet.dtypes import bf16, f16, f32, f64
from hidet.ir.expr import Call, Expr
from hidet.ir.intrinsic import Intrinsic, IntrinsicFamily, Memory, SameAs, Value, table

COMMON = IntrinsicFamily(
    name="common",
    doc="intrinsics of every target",
    load="hidet.ir.common_intrinsics:ROWS",
    meanings="hidet.ir.interpret_expr:COMMON_MEANINGS",
)

_FACTOR = (f16, bf16, f32, f64)

FMA = Intrinsic(
    name="fma",
    family=COMMON,
    group="arithmetic",
    doc="a * b + c, rounded once; vectors lane by lane",
    parameters=tuple(Value(name, _FACTOR, lanes=(), group="value") for name in ("a", "b", "c")),
    result=SameAs("a"),
)

PREFETCH = Intrinsic(
    name="prefetch",
    family=COMMON,
    group="memory",
    doc="ask for a line of memory to be read into a cache; any address is allowed",
    parameters=(Memory("place", ("global",)),),
    effect="writes",
)

POLL = Intrinsic(
    name="poll",
    family=COMMON,
    group="control",
    doc="end the call of the host where a signal's handler says so",
    effect="waits",
)

ROWS = table(FMA, PREFETCH, POLL)


def fma(a: Expr, b: Expr, c: Expr) -> Call:
    """a * b + c, rounded once, of floats or vectors of one type."""
    return Call(FMA.name, (a, b, c), c.type, FMA)
