"""Scans along one axis. f16 and bf16 are summed in f32; sums and products of integers and bools are i64."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hidet import dtypes
from hidet.compute.definition import (
    PRODUCT,
    SUM,
    Combiner,
    Compute,
    Definition,
    Operand,
    Scan,
    compute,
    fresh_axes,
)
from hidet.dtypes import DType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import arithmetic_dtype, normalize_axis, require_dtype, widen


def _latest(op: str) -> Combiner:
    """(value, position) of the extreme so far: the later one of equals, NaN above all numbers, as torch has it."""

    def combine(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        take = build.binary(op, b[0], a[0])
        if a[0].dtype.is_float:
            a_nan, b_nan = build.unary("isnan", a[0]), build.unary("isnan", b[0])
            take = build.binary("lor", b_nan, build.logical_and(take, build.unary("lnot", a_nan)))
        return build.select(take, b[0], a[0]), build.select(take, b[1], a[1])

    def identity(types: Sequence[DType]) -> tuple[Expr, ...]:
        value, position = types
        limit = value.min if op == "ge" else value.max
        infinite = -float("inf") if op == "ge" else float("inf")
        return build.const(infinite if value.is_float else limit, value), build.const(0, position)

    return Combiner("cummax" if op == "ge" else "cummin", identity, combine)


def _log_sum(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """log(e**a + e**b); equal infinities give themselves."""
    top = build.maximum(a[0], b[0])
    tail = build.unary("log1p", build.unary("exp", -build.unary("abs", a[0] - b[0])))
    same_infinity = build.logical_and(build.unary("isinf", top), build.equal(a[0], b[0]))
    return (build.select(same_infinity, top, top + tail),)


CUMULATIVE_MAX, CUMULATIVE_MIN = _latest("ge"), _latest("le")
LOG_SUM = Combiner("logsumexp", lambda types: (build.const(-float("inf"), types[0]),), _log_sum)


def _running(
    name: str, combiner: Combiner, x: Operand, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> Definition:
    require_dtype(name, x, "float" if combiner is LOG_SUM else "any")
    cut = normalize_axis(name, axis, x.rank)
    result = x.dtype if x.dtype.is_float else dtypes.i64
    wide = arithmetic_dtype(result)
    axes = fresh_axes(x.rank)
    value = build.cast(x[axes], wide)
    if x.rank == 0:
        only = combiner.identity((wide,))[0] if exclusive else value
        stage = compute(name, (), lambda: build.cast(only, result))
        return Definition((x,), (stage,), (stage.result,))
    scanned = Operand(name if wide == result else "running", wide, x.shape)
    scan = Scan((scanned,), axes, (value,), cut, combiner, exclusive, reverse)
    if wide == result:
        return Definition((x,), (scan,), (scanned,))
    rounded = compute(name, x.shape, lambda *places: build.cast(scanned[places], result))
    return Definition((x,), (scan, rounded), (rounded.result,))


def _cumulative_extreme(name: str, combiner: Combiner, x: Operand, *, axis: int) -> Definition:
    require_dtype(name, x, "any")
    cut = normalize_axis(name, axis, x.rank)
    axes = fresh_axes(x.rank)
    value = build.cast(x[axes], dtypes.u8) if x.dtype.is_bool else widen(x[axes])
    if x.rank == 0:
        only = compute(name, (), lambda: x[()])
        position = compute("indices", (), lambda: build.index(0))
        return Definition((x,), (only, position), (only.result, position.result))
    values, indices = Operand("running", value.dtype, x.shape), Operand("indices", dtypes.i64, x.shape)
    scan = Scan((values, indices), axes, (value, axes[cut]), cut, combiner)
    if value.dtype == x.dtype:
        return Definition((x,), (scan,), (values, indices))
    rounded: Compute = compute(name, x.shape, lambda *places: build.cast(values[places], x.dtype))
    return Definition((x,), (scan, rounded), (rounded.result, indices))


_AXIS = Attribute("axis")
_DIRECTION = (
    Attribute("exclusive", False, "element i takes in those before it only"),
    Attribute("reverse", False, "scan from the end"),
)

SPECS: tuple[OperatorSpec, ...] = (
    *(
        OperatorSpec(
            name=name,
            inputs=("x",),
            attributes=(_AXIS, *_DIRECTION),
            define=partial(_running, name, combiner),
            family="scan",
            doc=f"{what} along an axis; torch.{name}, ONNX CumSum's directions. {kinds}",
        )
        for name, combiner, what, kinds in (
            ("cumsum", SUM, "Running sum", "Any compute type; integers and bools give i64."),
            ("cumprod", PRODUCT, "Running product", "Any compute type; integers and bools give i64."),
            ("logcumsumexp", LOG_SUM, "Running log(sum(e ** x))", "Floating-point types."),
        )
    ),
    *(
        OperatorSpec(
            name=name,
            inputs=("x",),
            attributes=(_AXIS,),
            define=partial(_cumulative_extreme, name, combiner),
            family="scan",
            doc=f"Running {what} along an axis, and its i64 position, the later of equals; torch.{name}.",
        )
        for name, combiner, what in (("cummax", CUMULATIVE_MAX, "maximum"), ("cummin", CUMULATIVE_MIN, "minimum"))
    ),
)
