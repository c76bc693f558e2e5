"""Element-wise operators of three and more inputs, and the row type of the element-wise tables.

f16 and bf16 values are computed in f32 and rounded once at the end. Names and formulas are torch's where no other
source is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hidet.compute.definition import Definition, Operand, number
from hidet.dtypes import DType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    Accepts,
    accepted_types,
    arithmetic_dtype,
    map_elements,
    present,
    require_dtype,
    require_same_dtype,
    truth,
    widen,
)


@dataclass(frozen=True, slots=True)
class ElementwiseRow:
    """One element-wise operator of inputs of one type.

    value: `value(*elements, **attrs)`, on elements in their arithmetic type; a result of that type is rounded to the
        inputs' type, a bool stays bool.
    doc: the formula, then anything remarkable.
    accepts: the element types.
    inputs: names of the inputs.
    """

    name: str
    value: Callable[..., Expr]
    doc: str
    accepts: Accepts = "float"
    inputs: tuple[str, ...] = ("x",)
    attributes: tuple[Attribute, ...] = ()


_SHAPES = {
    1: "Element-wise; the result has the input's shape.",
    2: "Element-wise with numpy broadcasting; inputs have one element type.",
    3: "Element-wise with numpy broadcasting; inputs have one element type.",
}


def _define(row: ElementwiseRow, *operands: Operand, **attrs: Any) -> Definition:
    require_dtype(row.name, operands[0], row.accepts)
    dtype = require_same_dtype(row.name, operands)
    return map_elements(row.name, operands, lambda *x: narrow(row.value(*map(widen, x), **attrs), dtype))


def narrow(value: Expr, dtype: DType) -> Expr:
    """`value` of the arithmetic type of `dtype`, rounded to `dtype`; values of other types stay."""
    return build.cast(value, dtype) if value.dtype == arithmetic_dtype(dtype) else value


def spec_of(row: ElementwiseRow) -> OperatorSpec:
    """The operator of a table row."""
    return OperatorSpec(
        name=row.name,
        inputs=row.inputs,
        attributes=row.attributes,
        define=partial(_define, row),
        doc=f"{row.doc} {_SHAPES[len(row.inputs)]} Takes {accepted_types(row.accepts)}.",
    )


def clamp(x: Expr, low: Expr | float | None, high: Expr | float | None) -> Expr:
    """min(max(x, low), high); None is no limit; NaN stays NaN."""
    if low is not None:
        x = build.maximum(x, low)
    if high is not None:
        x = build.minimum(x, high)
    return x


def _where(condition: Operand, x: Operand, y: Operand) -> Definition:
    require_dtype("where", x, "data")
    require_same_dtype("where", (x, y))
    return map_elements("where", (condition, x, y), lambda c, a, b: build.select(truth(c), a, b))


def _masked_fill(x: Operand, mask: Operand, value: Operand) -> Definition:
    require_dtype("masked_fill", x, "data")
    require_same_dtype("masked_fill", (x, value))
    return map_elements("masked_fill", (x, mask, value), lambda a, m, v: build.select(truth(m), v, a))


def _clamp_tensor(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Definition:
    require_dtype("clamp_tensor", x, "number")
    operands = present(x, low, high)
    dtype = require_same_dtype("clamp_tensor", operands)

    def value(a: Expr, *limits: Expr) -> Expr:
        remaining = list(map(widen, limits))
        lower = remaining.pop(0) if low is not None else None
        upper = remaining.pop(0) if high is not None else None
        return narrow(clamp(widen(a), lower, upper), dtype)

    return map_elements("clamp_tensor", operands, value)


def _lerp(start: Expr, end: Expr, weight: Expr) -> Expr:
    """Formula chosen by the weight, so that both ends are met exactly."""
    near = start + weight * (end - start)
    far = end - (end - start) * (1 - weight)
    return build.select(build.unary("abs", weight) < 0.5, near, far)


def _scaled(value: float, term: Expr) -> Expr:
    return term if value == 1 else number(value, term.dtype) * term


_ROWS = (
    ElementwiseRow(
        "lerp",
        _lerp,
        "start + weight * (end - start).",
        inputs=("start", "end", "weight"),
    ),
    ElementwiseRow(
        "addcmul",
        lambda x, a, b, value: x + _scaled(value, a * b),
        "x + value * a * b.",
        accepts="number",
        inputs=("x", "a", "b"),
        attributes=(Attribute("value", 1),),
    ),
    ElementwiseRow(
        "addcdiv",
        lambda x, a, b, value: x + _scaled(value, a / b),
        "x + value * a / b.",
        inputs=("x", "a", "b"),
        attributes=(Attribute("value", 1),),
    ),
)

SPECS: tuple[OperatorSpec, ...] = (
    *map(spec_of, _ROWS),
    OperatorSpec(
        name="where",
        inputs=("condition", "x", "y"),
        define=_where,
        doc="x where the condition is not zero, else y. condition: any type; x, y: one type. All broadcast.",
    ),
    OperatorSpec(
        name="masked_fill",
        inputs=("x", "mask", "value"),
        define=_masked_fill,
        doc="value where the mask is not zero, else x. mask: any type; x, value: one type. All broadcast.",
    ),
    OperatorSpec(
        name="clamp_tensor",
        inputs=("x", "low?", "high?"),
        define=_clamp_tensor,
        doc="min(max(x, low), high); an absent limit is none; NaN stays NaN. One type; all broadcast.",
    ),
)
