"""Ordering: sort, top-k, order statistics, and operators whose number of results depends on the data.

The algorithms are routines of `hidet.compute.routines`. Attribute `count` of the data-dependent ones is the Dim,
usually a symbol of its own, that stands for the number of results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hidet import dtypes
from hidet.compute.definition import SUM, Definition, Operand, Routine, compute, reduce, single
from hidet.compute.routines import ARGSORT, MASKED_SELECT, NONZERO, SORT, TOPK, UNIQUE
from hidet.dims import Dim, prove_lt
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    broadcast_shapes,
    normalize_axis,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    widen,
)
from hidet.operators.selection import decompose_masked_select, decompose_nonzero, decompose_unique


def _sorted(x: Operand, axis: int, *, descending: bool) -> Routine:
    results = (Operand("values", x.dtype, x.shape), Operand("indices", dtypes.i64, x.shape))
    return Routine(SORT, (x,), results, (("axis", axis), ("descending", descending)))


def _sort(x: Operand, *, axis: int, descending: bool) -> Definition:
    require_dtype("sort", x, "any")
    return single((x,), _sorted(x, normalize_axis("sort", axis, x.rank), descending=descending))


def _argsort(x: Operand, *, axis: int, descending: bool) -> Definition:
    require_dtype("argsort", x, "any")
    attributes = (("axis", normalize_axis("argsort", axis, x.rank)), ("descending", descending))
    return single((x,), Routine(ARGSORT, (x,), (Operand("indices", dtypes.i64, x.shape),), attributes))


def _topk(x: Operand, *, k: Dim, axis: int, largest: bool) -> Definition:
    require_dtype("topk", x, "any")
    cut = normalize_axis("topk", axis, x.rank)
    shape = x.shape if x.rank == 0 else (*x.shape[:cut], k, *x.shape[cut + 1 :])
    extent = x.shape[cut] if x.rank else 1
    if prove_lt(k, 0) or prove_lt(extent, k):
        raise ShapeError(f"operator topk: {k} elements of an axis of extent {extent}")
    results = (Operand("values", x.dtype, shape), Operand("indices", dtypes.i64, shape))
    routine = Routine(TOPK, (x,), results, (("k", k), ("axis", cut), ("largest", largest)))
    return Definition((x,), (routine,), results, at_most=((k, extent),))


def _picked(name: str, x: Operand, cut: int, keepdim: bool, position: Callable[[tuple[Expr, ...]], Expr]) -> Definition:
    """Value and index at `position(other axes)` of the sorted axis `cut`."""
    order = _sorted(x, cut, descending=False)
    shape = (*x.shape[:cut], *((1,) if keepdim else ()), *x.shape[cut + 1 :])

    def pick(result: Operand) -> Callable[..., Expr]:
        def value(*axes: Expr) -> Expr:
            outer = (*axes[:cut], *axes[cut + (1 if keepdim else 0) :])
            return result[(*outer[:cut], position(outer), *outer[cut:])]

        return value

    stages = [compute(f"{name}_{result.name}", shape, pick(result)) for result in order.results]
    return Definition((x,), (order, *stages), tuple(stage.result for stage in stages))


def _only(name: str, x: Operand) -> Definition:
    """Value and index of the one element of a scalar."""
    value, index = compute(name, (), lambda: x[()]), compute("index", (), lambda: build.index(0))
    return Definition((x,), (value, index), (value.result, index.result))


def _kthvalue(x: Operand, *, k: int, axis: int, keepdim: bool) -> Definition:
    require_dtype("kthvalue", x, "number")
    cut = normalize_axis("kthvalue", axis, x.rank)
    extent = x.shape[cut] if x.rank else 1
    if k < 1 or prove_lt(extent, k):
        raise ShapeError(f"operator kthvalue: no element number {k} (counted from 1) on an axis of extent {extent}")
    return _picked("kthvalue", x, cut, keepdim, lambda outer: build.index(k - 1)) if x.rank else _only("kthvalue", x)


def _median(x: Operand, *, axis: int, keepdim: bool) -> Definition:
    require_dtype("median", x, "number")
    cut = normalize_axis("median", axis, x.rank)
    if x.rank == 0:
        return _only("median", x)
    if x.shape[cut] == 0:
        raise ShapeError("operator median has no value for an axis of extent 0")
    count = build.index(x.shape[cut])
    middle = (count - 1) // 2
    if not x.dtype.is_float:
        return _picked("median", x, cut, keepdim, lambda outer: middle)

    def is_nan(outer: tuple[Expr, ...], r: Expr) -> Expr:
        return build.cast(build.unary("isnan", widen(x[(*outer[:cut], r, *outer[cut:])])), dtypes.i64)

    outer_shape = (*x.shape[:cut], *x.shape[cut + 1 :])
    nans = compute("nans", outer_shape, lambda *outer: reduce(SUM, (x.shape[cut],), lambda r: is_nan(outer, r)))

    def position(outer: tuple[Expr, ...]) -> Expr:
        # One NaN makes the median NaN. They sort last and stably, so the first of them is `nans` before the end.
        found = nans.result[outer]
        return build.select(found > 0, count - found, middle)

    picked = _picked("median", x, cut, keepdim, position)
    return Definition(picked.inputs, (nans, *picked.stages), picked.outputs)


def _nonzero(x: Operand, *, count: Dim) -> Definition:
    require_dtype("nonzero", x, "any")
    return single((x,), Routine(NONZERO, (x,), (Operand("indices", dtypes.i64, (count, x.rank)),)))


def _masked_select(x: Operand, mask: Operand, *, count: Dim) -> Definition:
    require_dtype("masked_select", x, "data")
    if not mask.dtype.is_bool:
        raise DTypeError(f"operator masked_select takes a bool mask, got {mask.dtype}")
    broadcast_shapes("masked_select", (x.shape, mask.shape))
    return single((x, mask), Routine(MASKED_SELECT, (x, mask), (Operand("values", x.dtype, (count,)),)))


def _unique(x: Operand, *, axis: int | None, count: Dim) -> Definition:
    require_dtype("unique", x, "any")
    cut = None if axis is None else normalize_axis("unique", axis, x.rank)
    values: tuple[Dim, ...] = (count,) if cut is None else (*x.shape[:cut], count, *x.shape[cut + 1 :])
    inverse = x.shape if cut is None else (x.shape[cut],)
    results = (
        Operand("values", x.dtype, values),
        Operand("inverse", dtypes.i64, inverse),
        Operand("counts", dtypes.i64, (count,)),
    )
    return single((x,), Routine(UNIQUE, (x,), results, (("axis", cut),)))


def _searchsorted(boundaries: Operand, values: Operand, *, right: bool) -> Definition:
    """How many boundaries lie before each value, by counting: linear in the boundaries, but fuses like a reduction."""
    name = "searchsorted"
    require_dtype(name, boundaries, "number")
    require_same_dtype(name, (boundaries, values))
    require_rank(name, boundaries, at_least=1)
    if boundaries.rank > 1:
        require_rank(name, values, at_least=boundaries.rank, at_most=boundaries.rank)
        for have, want in zip(values.shape[:-1], boundaries.shape[:-1], strict=True):
            same_extent(have, want, f"operator {name}: leading axes of values against boundaries")

    def value(*axes: Expr) -> Expr:
        searched = widen(values[axes])

        def is_before(r: Expr) -> Expr:
            boundary = widen(boundaries[(*axes[:-1], r) if boundaries.rank > 1 else (r,)])
            # Written as "not after" so that a NaN value comes after all boundaries.
            after = boundary > searched if right else boundary >= searched
            return build.cast(build.unary("lnot", after), dtypes.i64)

        return reduce(SUM, boundaries.shape[-1:], is_before)

    return single((boundaries, values), compute(name, values.shape, value))


_AXIS = Attribute("axis", -1)
_DESCENDING = Attribute("descending", False)
_KEEPDIM = Attribute("keepdim", False)
_COUNT = Attribute("count", doc="Dim that stands for the number of results")


def _spec(
    name: str,
    define: Callable[..., Definition],
    doc: str,
    *attributes: Attribute,
    decompose: Any = None,
    family: str | None = None,
) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=("x",),
        attributes=attributes,
        kind="routine",
        define=define,
        decompose=decompose,
        family=family,
        doc=doc,
    )


SPECS: tuple[OperatorSpec, ...] = (
    _spec(
        "sort",
        _sort,
        "x sorted along an axis, stably, NaN as the largest value; and the i64 positions the elements had. torch.sort.",
        _AXIS,
        _DESCENDING,
        family="sort",
    ),
    _spec(
        "argsort", _argsort, "The second result of sort; torch.argsort(stable=True).", _AXIS, _DESCENDING, family="sort"
    ),
    _spec(
        "topk",
        _topk,
        "The k largest or smallest elements along an axis, best first, the earlier of equals first; and their i64 "
        "positions. torch.topk.",
        Attribute("k"),
        _AXIS,
        Attribute("largest", True),
        family="sort",
    ),
    _spec(
        "kthvalue",
        _kthvalue,
        "Element number k, from 1, in ascending order along an axis; and its i64 position. torch.kthvalue. Numbers.",
        Attribute("k"),
        _AXIS,
        _KEEPDIM,
        family="sort",
    ),
    _spec(
        "median",
        _median,
        "The middle element along an axis, the lower of two, NaN if there is one; and its i64 position. torch.median "
        "with a dim. Numbers.",
        _AXIS,
        _KEEPDIM,
        family="sort",
    ),
    _spec(
        "nonzero",
        _nonzero,
        "Positions of the elements that are not zero, row-major: i64[count, rank]. torch.nonzero.",
        _COUNT,
        decompose=decompose_nonzero,
    ),
    OperatorSpec(
        name="masked_select",
        inputs=("x", "mask"),
        attributes=(_COUNT,),
        kind="routine",
        define=_masked_select,
        decompose=decompose_masked_select,
        doc="The elements of x where the bool mask is true, row-major: [count]; both broadcast. torch.masked_select.",
    ),
    _spec(
        "unique",
        _unique,
        "Distinct elements, ascending (or slices of an axis); for each element its number among them; and how often "
        "each occurs. torch.unique(sorted=True).",
        Attribute("axis", None, "None compares single elements"),
        _COUNT,
        decompose=decompose_unique,
    ),
    OperatorSpec(
        name="searchsorted",
        inputs=("boundaries", "values"),
        attributes=(Attribute("right", False, "count boundaries equal to the value too"),),
        define=_searchsorted,
        doc="i64 position at which each value keeps ascending boundaries[..., n] in order; torch.searchsorted, and "
        "torch.bucketize with boundaries[n] and values of any shape. One type of numbers.",
    ),
)
