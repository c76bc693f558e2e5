"""Reductions along axes.

f16 and bf16 are reduced in f32 and rounded once; sums and products of integers and bools are i64, as torch has it.
Attribute `axes` names the axes to reduce (negative from the end; None or none given: all), `keepdim` leaves them with
extent 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hidet import dtypes
from hidet.compute.definition import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Combiner,
    Compute,
    Definition,
    Operand,
    compute,
    number,
    reduce,
    single,
)
from hidet.dims import Dim, DimExpr, product
from hidet.dtypes import DType
from hidet.errors import ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    Accepts,
    accepted_types,
    arithmetic_dtype,
    normalize_axes,
    require_dtype,
    shape_text,
    truth,
    widen,
    without_offset,
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which axes of a shape are reduced, and the shape that is left."""

    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    keepdim: bool

    @property
    def extents(self) -> tuple[Dim, ...]:
        """Extents of the reduced axes."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def count(self) -> Expr:
        """Number of reduced elements, i64."""
        return build.index(product(self.extents))

    @property
    def result_shape(self) -> tuple[Dim, ...]:
        """Shape of the result."""
        kept = ((axis, extent) for axis, extent in enumerate(self.shape) if self.keepdim or axis not in self.axes)
        return tuple(1 if axis in self.axes else extent for axis, extent in kept)

    def place(self, outer: Sequence[Expr], inner: Sequence[Expr]) -> tuple[Expr, ...]:
        """Position in the input of position `inner` of the reduced axes, for the result at `outer`."""
        reduced = dict(zip(self.axes, inner, strict=True))
        kept = iter(outer if not self.keepdim else [o for axis, o in enumerate(outer) if axis not in self.axes])
        return tuple(reduced[axis] if axis in reduced else next(kept) for axis in range(len(self.shape)))


def reduction_of(name: str, x: Operand, axes: Sequence[int] | None, keepdim: bool) -> Reduction:
    """The reduction of `x` along `axes`."""
    return Reduction(x.shape, normalize_axes(name, axes, x.rank), keepdim)


def _require_elements(name: str, reduction: Reduction) -> None:
    if 0 in reduction.extents:
        raise ShapeError(
            f"operator {name} has no value for no elements: shape {shape_text(reduction.shape)}, axes {reduction.axes}"
        )


def _reduced_by(reduction: Reduction, value: Callable[[Sequence[Expr], Sequence[Expr]], Expr]) -> Callable[..., Expr]:
    """The sum of `value(result's axes, reduced axes)` as a function of the result's axes."""
    return lambda *outer: reduce(SUM, reduction.extents, lambda *r: value(outer, r))


def _reduced(
    reduction: Reduction, combiner: Combiner, x: Operand, element: Callable[[Expr], Expr]
) -> Callable[..., Expr]:
    """The result of reducing `element(x)` as a function of the result's axes."""
    return lambda *outer: reduce(combiner, reduction.extents, lambda *r: element(x[reduction.place(outer, r)]))


@dataclass(frozen=True, slots=True)
class ReductionRow:
    """One single-pass reduction: `final(combiner over element(x), count)`, rounded to the result's type.

    result: the result's type from the input's. needs_elements: ShapeError for axes provably without elements.
    """

    name: str
    combiner: Combiner
    doc: str
    accepts: Accepts = "any"
    element: Callable[[Expr], Expr] = widen
    final: Callable[[Expr, Expr], Expr] = lambda total, count: total
    result: Callable[[DType], DType] = lambda dtype: dtype
    needs_elements: bool = False


def _reduction(row: ReductionRow, x: Operand, *, axes: Sequence[int] | None, keepdim: bool) -> Definition:
    require_dtype(row.name, x, row.accepts)
    reduction = reduction_of(row.name, x, axes, keepdim)
    if row.needs_elements:
        _require_elements(row.name, reduction)
    reduced, count, dtype = _reduced(reduction, row.combiner, x, row.element), reduction.count, row.result(x.dtype)
    stage = compute(
        row.name, reduction.result_shape, lambda *outer: build.cast(row.final(reduced(*outer), count), dtype)
    )
    return single((x,), stage)


def _exact(dtype: DType) -> DType:
    """Sums of integers and bools do not overflow soon."""
    return dtype if dtype.is_float else dtypes.i64


def _as_exact(x: Expr) -> Expr:
    return widen(x) if x.dtype.is_float else build.cast(x, dtypes.i64)


def _ordered(x: Expr) -> Expr:
    return build.cast(x, dtypes.u8) if x.dtype.is_bool else widen(x)


def _average(total: Expr, count: Expr) -> Expr:
    return total / build.cast(count, total.dtype)


_ROWS = (
    ReductionRow("sum", SUM, "Sum; 0 for no elements.", element=_as_exact, result=_exact),
    ReductionRow("prod", PRODUCT, "Product; 1 for no elements.", element=_as_exact, result=_exact),
    ReductionRow("mean", SUM, "Average; NaN for no elements.", "float", final=_average),
    ReductionRow("amax", MAX, "Largest; NaN if there is one.", element=_ordered, needs_elements=True),
    ReductionRow("amin", MIN, "Smallest; NaN if there is one.", element=_ordered, needs_elements=True),
    ReductionRow("any", ANY, "Whether one is not zero; bool.", element=truth, result=lambda d: dtypes.boolean),
    ReductionRow("all", ALL, "Whether none is zero; bool.", element=truth, result=lambda d: dtypes.boolean),
    ReductionRow(
        "count_nonzero",
        SUM,
        "How many are not zero; i64.",
        element=lambda x: build.cast(truth(x), dtypes.i64),
        result=lambda d: dtypes.i64,
    ),
)


def _extreme_with_index(
    name: str, combiner: Combiner, x: Operand, axes: Sequence[int] | None, keepdim: bool
) -> tuple[Compute, Compute]:
    """Stages for the extreme value and for its position among the reduced elements in row-major order."""
    require_dtype(name, x, "any")
    reduction = reduction_of(name, x, axes, keepdim)
    _require_elements(name, reduction)
    strides = contiguous_strides(reduction.extents)

    def pair(result: int) -> Callable[..., Expr]:
        def element(outer: Sequence[Expr], r: Sequence[Expr]) -> tuple[Expr, Expr]:
            return _ordered(x[reduction.place(outer, r)]), build.flatten(r, strides)

        return lambda *outer: reduce(combiner, reduction.extents, lambda *r: element(outer, r), result)

    value, position = pair(0), pair(1)
    return (
        compute(f"{name}_value", reduction.result_shape, lambda *outer: build.cast(value(*outer), x.dtype)),
        compute(f"{name}_index", reduction.result_shape, position),
    )


def _arg(name: str, combiner: Combiner, x: Operand, *, axes: Sequence[int] | None, keepdim: bool) -> Definition:
    return single((x,), _extreme_with_index(name, combiner, x, axes, keepdim)[1])


def _with_index(name: str, combiner: Combiner, x: Operand, *, axis: int, keepdim: bool) -> Definition:
    value, position = _extreme_with_index(name, combiner, x, (axis,), keepdim)
    return Definition((x,), (value, position), (value.result, position.result))


def _distances(reduction: Reduction, x: Operand) -> tuple[Compute, Compute, Callable[..., Expr]]:
    """Two passes: stages for the mean and for what it lacks, and the sum of squared distances from the mean.

    The mean is rounded. What it lacks is the average distance from it, whose square is taken from that of the squared
    distances.
    """
    total = _reduced(reduction, SUM, x, widen)
    count = build.cast(reduction.count, arithmetic_dtype(x.dtype))
    mean = compute("mean", reduction.result_shape, lambda *outer: total(*outer) / count)

    def distance(outer: Sequence[Expr], r: Sequence[Expr]) -> Expr:
        return widen(x[reduction.place(outer, r)]) - mean.result[tuple(outer)]

    average = _reduced_by(reduction, distance)
    rest = compute("rest", reduction.result_shape, lambda *outer: average(*outer) / count)
    squares = _reduced_by(reduction, lambda outer, r: distance(outer, r) * distance(outer, r))

    def squared(*outer: Expr) -> Expr:
        off = rest.result[outer]
        return without_offset(squares(*outer), off * off * count)

    return mean, rest, squared


def _moments(x: Operand, *, axes: Sequence[int] | None, keepdim: bool) -> Definition:
    require_dtype("moments", x, "float")
    reduction = reduction_of("moments", x, axes, keepdim)
    count = build.cast(reduction.count, arithmetic_dtype(x.dtype))
    mean, rest, squares = _distances(reduction, x)
    variance = compute("variance", reduction.result_shape, lambda *outer: squares(*outer) / count)

    def unbiased(*outer: Expr) -> Expr:
        return variance.result[outer] * (count / build.maximum(count - 1, 0))

    stages = (mean, rest, variance, compute("unbiased", reduction.result_shape, unbiased))
    return Definition((x,), stages, tuple(stage.result for stage in stages))


def _variance(
    name: str,
    outputs: Sequence[str],
    x: Operand,
    *,
    axes: Sequence[int] | None,
    keepdim: bool,
    correction: float | DimExpr,
) -> Definition:
    """The sum of squared distances from the mean divided by count - correction (at least 0).

    NaN for no elements, also where a negative correction leaves something to divide by.
    """
    require_dtype(name, x, "float")
    reduction = reduction_of(name, x, axes, keepdim)
    wide = arithmetic_dtype(x.dtype)
    count = build.cast(reduction.count, wide)
    mean, rest, squares = _distances(reduction, x)

    def variance(*outer: Expr) -> Expr:
        value = squares(*outer) / build.maximum(count - number(correction, wide), 0)
        if not isinstance(correction, DimExpr) and correction >= 0:
            return value
        return build.select(build.equal(reduction.count, 0), build.const(math.nan, wide), value)

    formulas: dict[str, Callable[..., Expr]] = {
        "var": variance,
        "std": lambda *outer: build.unary("sqrt", variance(*outer)),
        "mean": lambda *outer: mean.result[outer] + rest.result[outer],
    }
    rounded = {key: (lambda *outer, f=formula: build.cast(f(*outer), x.dtype)) for key, formula in formulas.items()}
    stages = tuple(compute(f"{name}_{key}", reduction.result_shape, rounded[key]) for key in outputs)
    return Definition((x,), (mean, rest, *stages), tuple(stage.result for stage in stages))


def _logsumexp(x: Operand, *, axes: Sequence[int] | None, keepdim: bool) -> Definition:
    require_dtype("logsumexp", x, "float")
    reduction = reduction_of("logsumexp", x, axes, keepdim)
    largest = _reduced(reduction, MAX, x, widen)
    top = compute("max", reduction.result_shape, largest)

    def value(*outer: Expr) -> Expr:
        # An infinite maximum would give inf - inf; shifting by 0 instead keeps log(0) and log(inf) right.
        peak = top.result[outer]
        shift = build.select(build.unary("isinf", peak), build.const(0, peak.dtype), peak)
        total = reduce(
            SUM, reduction.extents, lambda *r: build.unary("exp", widen(x[reduction.place(outer, r)]) - shift)
        )
        return build.cast(build.unary("log", total) + shift, x.dtype)

    stage = compute("logsumexp", reduction.result_shape, value)
    return Definition((x,), (top, stage), (stage.result,))


def _norm_row(p: float | DimExpr) -> ReductionRow:
    """The vector p-norm as a reduction of |x|; torch.linalg.vector_norm."""
    row = ReductionRow("norm", SUM, "", "float", element=lambda x: build.unary("abs", widen(x)))
    if isinstance(p, DimExpr):
        return _norm_row_of_size(row, p)
    if p == math.inf:
        return replace(row, combiner=MAX, needs_elements=True)
    if p == -math.inf:
        return replace(row, combiner=MIN, needs_elements=True)
    if p == 0:
        return replace(row, element=lambda x: build.cast(truth(x), arithmetic_dtype(x.dtype)))
    if p == 1:
        return row
    if p == 2:
        return replace(row, element=_squared, final=lambda total, count: build.unary("sqrt", total))
    return replace(
        row,
        element=lambda x: build.binary("pow", build.unary("abs", widen(x)), p),
        final=lambda total, count: build.binary("pow", total, 1 / p),
    )


def _norm_row_of_size(row: ReductionRow, p: DimExpr) -> ReductionRow:
    """The norm of an order that is known at run time only, which may be 0 then."""
    is_count = build.equal(build.index(p), 0)

    def element(x: Expr) -> Expr:
        counted = build.cast(truth(x), arithmetic_dtype(x.dtype))
        return build.select(
            is_count, counted, build.binary("pow", build.unary("abs", widen(x)), number(p, counted.dtype))
        )

    def final(total: Expr, count: Expr) -> Expr:
        return build.select(is_count, total, build.binary("pow", total, 1 / number(p, total.dtype)))

    return replace(row, element=element, final=final)


def _squared(x: Expr) -> Expr:
    return widen(x) * widen(x)


def _norm(x: Operand, *, p: float | DimExpr, axes: Sequence[int] | None, keepdim: bool) -> Definition:
    return _reduction(_norm_row(p), x, axes=axes, keepdim=keepdim)


_AXES = Attribute("axes", None, "None or none given is all of them")
_KEEPDIM = Attribute("keepdim", False)
_CORRECTION = Attribute("correction", 1, "subtracted from the count that divides")


def _spec(name: str, define: Callable[..., Definition], doc: str, *attributes: Attribute, **more: Any) -> OperatorSpec:
    return OperatorSpec(
        name=name, inputs=("x",), attributes=attributes, define=define, family="reduction", doc=doc, **more
    )


SPECS: tuple[OperatorSpec, ...] = (
    *(
        _spec(
            row.name,
            partial(_reduction, row),
            f"{row.doc} Over axes of {accepted_types(row.accepts)}; torch.{row.name}.",
            _AXES,
            _KEEPDIM,
        )
        for row in _ROWS
    ),
    *(
        _spec(
            name,
            partial(_arg, name, combiner),
            f"i64 position of the {what} in row-major order of the reduced axes, the first of equals, NaN above all; "
            f"torch.{name}.",
            _AXES,
            _KEEPDIM,
        )
        for name, combiner, what in (("argmax", ARGMAX, "largest"), ("argmin", ARGMIN, "smallest"))
    ),
    *(
        _spec(
            name,
            partial(_with_index, name, combiner),
            f"The {what} along an axis and its i64 position, the first of equals, NaN above all; two results.",
            Attribute("axis"),
            _KEEPDIM,
        )
        for name, combiner, what in (("max_with_index", ARGMAX, "largest"), ("min_with_index", ARGMIN, "smallest"))
    ),
    *(
        _spec(
            name,
            partial(_variance, name, outputs),
            f"{what} over axes, from distances to the mean; torch.{name}. Floating-point types.",
            _AXES,
            _KEEPDIM,
            _CORRECTION,
        )
        for name, outputs, what in (
            ("var", ("var",), "Variance"),
            ("std", ("std",), "Standard deviation"),
            ("var_mean", ("var", "mean"), "Variance, and mean as second result,"),
            ("std_mean", ("std", "mean"), "Standard deviation, and mean as second result,"),
        )
    ),
    _spec(
        "moments",
        _moments,
        "Over axes, four results in the arithmetic type: the mean m as it is rounded, the average of x - m, which "
        "is what m lacks, the variance, and the unbiased one, which divides by the count - 1. Floating-point types.",
        _AXES,
        _KEEPDIM,
    ),
    _spec(
        "logsumexp",
        _logsumexp,
        "log(sum(e ** x)) over axes without overflow; torch.logsumexp. Floating-point types.",
        _AXES,
        _KEEPDIM,
    ),
    _spec(
        "norm",
        _norm,
        "Vector p-norm over axes, p any number or +-inf; torch.linalg.vector_norm. Floating-point types.",
        Attribute("p", 2),
        _AXES,
        _KEEPDIM,
    ),
)
