"""Writing at computed places of a copy of a tensor: scatter, index-put and the inverses of slice, select and diagonal.

The first input may be overwritten when nothing else reads it later. Updates apply in row-major order of their index, so
results are reproducible: where places repeat, the last replacement wins, and sums add up in that order. Reductions of
f16 and bf16 are formed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.compute.definition import (
    ALL,
    ANY,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Combiner,
    Compute,
    Definition,
    Operand,
    Scan,
    Scatter,
    compute,
    fresh_axes,
    single,
)
from hidet.dims import Dim, product
from hidet.dtypes import DType
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec, Position, View
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.gather import WRAPS, along_axis, in_tuples, indexed_layout, indexed_place, one_an_axis
from hidet.operators.reshape import reshape_indices
from hidet.operators.rules import (
    arithmetic_dtype,
    normalize_axis,
    present,
    read_broadcast,
    require_broadcasts_to,
    require_dtype,
    require_places,
    require_rank,
    require_same_dtype,
    require_within,
    same_extent,
    shape_text,
    truth,
    wrap_index,
)
from hidet.operators.selection import decompose_masked_scatter
from hidet.operators.view import (
    diagonal_place,
    diagonal_shape,
    diagonal_view,
    select_view,
    selected_position,
    slice_ranges,
    slice_view,
)

_COMBINERS = {"sum": SUM, "prod": PRODUCT, "amax": MAX, "amin": MIN, "mean": SUM}
_BOOL_COMBINERS = {"sum": ANY, "prod": ALL, "amax": ANY, "amin": ALL}


@dataclass(frozen=True, slots=True)
class Writes:
    """What a scatter writes: `update(axes)` at `place(axes)` for every index below `extents`."""

    extents: Sequence[Dim]
    place: Callable[[Sequence[Expr]], Sequence[Expr]]
    update: Callable[[Sequence[Expr]], Expr]


def _stage(
    name: str,
    base: Operand,
    dtype: DType,
    writes: Writes,
    combine: Combiner | None = None,
    *,
    is_distinct: bool = False,
) -> Scatter:
    """A copy of `base` as `dtype` with `writes` applied; `combine` None replaces."""
    base_axes, axes = fresh_axes(base.rank, "b"), fresh_axes(len(writes.extents))
    return Scatter(
        Operand(name, dtype, base.shape),
        build.cast(base[base_axes], dtype),
        base_axes,
        axes,
        tuple(writes.extents),
        tuple(writes.place(axes)),
        build.cast(writes.update(axes), dtype),
        combine,
        is_distinct=is_distinct,
    )


def _replacing(name: str, inputs: Sequence[Operand], writes: Writes, *, is_distinct: bool = True) -> Definition:
    """The first input with places replaced, each at most once where they are distinct."""
    return single(inputs, _stage(name, inputs[0], inputs[0].dtype, writes, is_distinct=is_distinct))


def _combining(
    name: str, inputs: Sequence[Operand], writes: Writes, reduce: str | None, include_self: bool = True
) -> Definition:
    """The first input with updates combined into places by the reduction named `reduce`; None replaces."""
    if reduce is None:
        return _replacing(name, inputs, writes, is_distinct=False)
    x = inputs[0]
    combiners = _BOOL_COMBINERS if x.dtype.is_bool else _COMBINERS
    if reduce not in combiners:
        raise UnsupportedOp(f"operator {name} of {x.dtype} has no reduction {reduce!r}; it has: {', '.join(combiners)}")
    require_dtype(name, x, "any")
    combiner, wide = combiners[reduce], arithmetic_dtype(x.dtype)
    stages: list[Compute | Scatter] = []
    base = x
    if not include_self:
        neutral = combiner.identity((wide,))[0]
        stages.append(_stage("cleared", x, wide, Writes(writes.extents, writes.place, lambda axes: neutral)))
        base = stages[-1].result
    is_last = wide == x.dtype and reduce != "mean"
    reduced = _stage(name if is_last else "combined", base, wide, writes, combiner)
    stages.append(reduced)
    if reduce == "mean":
        start = compute("start", x.shape, lambda *axes: build.const(1 if include_self else 0, dtypes.i64))
        once = Writes(writes.extents, writes.place, lambda axes: build.const(1, dtypes.i64))
        counts = _stage("counts", start.result, dtypes.i64, once, SUM)

        def average(*axes: Expr) -> Expr:
            total, count = reduced.result[axes], build.maximum(counts.result[axes], 1)
            whole = build.cast(count, wide)
            return build.cast(total / whole if wide.is_float else total // whole, x.dtype)

        stages += [start, counts, compute(name, x.shape, average)]
    elif not is_last:
        stages.append(compute(name, x.shape, lambda *axes: build.cast(reduced.result[axes], x.dtype)))
    return Definition(tuple(inputs), tuple(stages), (stages[-1].result,))


def _require_pair(name: str, x: Operand, src: Operand) -> None:
    require_dtype(name, x, "data")
    require_same_dtype(name, (x, src))


def _scatter(
    x: Operand, index: Operand, src: Operand, *, axis: int, reduce: str | None, include_self: bool, wraps: bool
) -> Definition:
    name = "scatter"
    _require_pair(name, x, src)
    require_dtype(name, index, "int")
    rank = max(x.rank, 1)
    if max(index.rank, 1) != rank or max(src.rank, 1) != rank:
        shapes = ", ".join(shape_text(operand.shape) for operand in (x, index, src))
        raise ShapeError(f"operator {name} takes x, index and src of as many axes each, got shapes {shapes}")
    cut = normalize_axis(name, axis, x.rank)
    require_within(index.shape, x.shape, f"operator {name}: index against x", besides=cut)
    require_within(index.shape, src.shape, f"operator {name}: index against src")

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        if x.rank == 0:
            return ()
        return (*axes[:cut], wrap_index(index[tuple(axes)], x.shape[cut], wraps), *axes[cut + 1 :])

    writes = Writes(index.shape, place, lambda axes: src[tuple(axes[: src.rank])])
    return _combining(name, (x, index, src), writes, reduce, include_self)


def _index_put(x: Operand, values: Operand, *indices: Operand | None, accumulate: bool) -> Definition:
    name = "index_put"
    _require_pair(name, x, values)
    start, picked, shape = indexed_layout(name, x.shape, indices)
    require_broadcasts_to(name, values, shape)
    writes = Writes(
        shape,
        lambda axes: indexed_place(x.shape, indices, start, picked, axes),
        lambda axes: read_broadcast(values, axes, shape),
    )
    return _combining(name, present(x, values, *indices), writes, "sum" if accumulate else None)


def _scatter_nd(x: Operand, index: Operand, src: Operand, *, reduce: str | None) -> Definition:
    name = "scatter_nd"
    _require_pair(name, x, src)
    require_dtype(name, index, "int")
    require_rank(name, index, at_least=1)
    depth = index.shape[-1]
    if not isinstance(depth, int) or depth > x.rank:
        raise ShapeError(f"operator {name}: index tuples of {depth} positions for shape {shape_text(x.shape)}")
    outer = index.rank - 1
    extents = (*index.shape[:-1], *x.shape[depth:])
    require_rank(name, src, at_least=len(extents), at_most=len(extents))
    for have, want in zip(src.shape, extents, strict=True):
        same_extent(have, want, f"operator {name}: src against index and x")

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        given = [wrap_index(index[(*axes[:outer], level)], x.shape[level]) for level in range(depth)]
        return (*given, *axes[outer:])

    return _combining(name, (x, index, src), Writes(extents, place, lambda axes: src[tuple(axes)]), reduce)


def _require_shape(name: str, src: Operand, shape: Sequence[Dim]) -> None:
    require_rank(name, src, at_least=len(shape), at_most=len(shape))
    for have, want in zip(src.shape, shape, strict=True):
        same_extent(have, want, f"operator {name}: src of shape {shape_text(src.shape)} for {shape_text(shape)}")


def _slice_scatter(
    x: Operand,
    src: Operand,
    *,
    starts: Sequence[Dim | None],
    stops: Sequence[Dim | None],
    steps: Sequence[int] | None,
) -> Definition:
    name = "slice_scatter"
    _require_pair(name, x, src)
    ranges = slice_ranges(x.shape, starts, stops, steps)
    shape = [count for _, count, _ in ranges]
    _require_shape(name, src, shape)

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        pairs = zip(axes, ranges, strict=True)
        return [axis * build.index(step) + build.index(first) for axis, (first, _, step) in pairs]

    return _replacing(name, (x, src), Writes(shape, place, lambda axes: src[tuple(axes)]))


def _select_scatter(x: Operand, src: Operand, *, axis: int, index: Dim) -> Definition:
    name = "select_scatter"
    _require_pair(name, x, src)
    gone = normalize_axis(name, axis, x.rank)
    position = build.index(selected_position(x.shape[gone], index))
    shape = (*x.shape[:gone], *x.shape[gone + 1 :])
    _require_shape(name, src, shape)
    writes = Writes(shape, lambda axes: (*axes[:gone], position, *axes[gone:]), lambda axes: src[tuple(axes)])
    return _replacing(name, (x, src), writes)


def _diagonal_scatter(x: Operand, src: Operand, *, offset: int, axis1: int, axis2: int) -> Definition:
    name = "diagonal_scatter"
    _require_pair(name, x, src)
    shape = diagonal_shape(x.shape, offset, axis1, axis2)
    _require_shape(name, src, shape)
    writes = Writes(
        shape, lambda axes: diagonal_place(x.rank, offset, axis1, axis2, axes), lambda axes: src[tuple(axes)]
    )
    return _replacing(name, (x, src), writes)


def _as_strided_scatter(
    x: Operand, src: Operand, *, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim
) -> Definition:
    name = "as_strided_scatter"
    _require_pair(name, x, src)
    _require_shape(name, src, shape)
    require_places(name, product(x.shape), shape, strides, offset)

    def place(axes: Sequence[Expr]) -> Sequence[Expr]:
        flat = build.flatten(axes, strides) + build.index(offset)
        return reshape_indices(x.shape, (product(x.shape),), (flat,))

    return _replacing(name, (x, src), Writes(shape, place, lambda axes: src[tuple(axes)]))


def _masked_scatter(x: Operand, mask: Operand, src: Operand) -> Definition:
    """Element number k of src goes to the k-th place where the mask is true; k is found by a running sum."""
    name = "masked_scatter"
    _require_pair(name, x, src)
    count = product(x.shape)
    require_broadcasts_to(name, mask, x.shape)

    def is_chosen(flat: Expr) -> Expr:
        axes = reshape_indices(x.shape, (count,), (flat,))
        return build.cast(truth(read_broadcast(mask, axes, x.shape)), dtypes.i64)

    scan_axes = fresh_axes(1)
    ranks = Scan((Operand("ranks", dtypes.i64, (count,)),), scan_axes, (is_chosen(scan_axes[0]),), 0, SUM)

    def value(*axes: Expr) -> Expr:
        (flat,) = reshape_indices((count,), x.shape, axes)
        source = reshape_indices(src.shape, (product(src.shape),), (ranks.results[0][flat] - 1,))
        return build.select(truth(read_broadcast(mask, axes, x.shape)), src[source], x[axes])

    stage = compute(name, x.shape, value)
    return Definition((x, mask, src), (ranks, stage), (stage.result,))


_REDUCE = Attribute("reduce", None, "None replaces; or sum, prod, amax, amin, mean")
_REUSES_FIRST = ((0, 0),)


def _spec(
    name: str,
    define: Callable[..., Definition],
    inputs: str,
    doc: str,
    *attributes: Attribute,
    part: Callable[[TensorType, Attrs, TensorType], View | None] | None = None,
    positions: Callable[[Sequence[Any], Attrs], Sequence[Position]] | None = None,
    decompose: Any = None,
    family: str | None = "scatter",
) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=tuple(inputs.split()),
        attributes=attributes,
        define=define,
        reuses=_REUSES_FIRST,
        part=part,
        positions=positions,
        decompose=decompose,
        reads_parts=True,
        family=family,
        doc=doc,
    )


SPECS: tuple[OperatorSpec, ...] = (
    _spec(
        "scatter",
        _scatter,
        "x index src",
        "x with src[...] written at index[...] of `axis`, for every place of index; torch.scatter, scatter_add and "
        "scatter_reduce, ONNX ScatterElements. One element type; index of any integer type, negative from the end.",
        Attribute("axis"),
        _REDUCE,
        Attribute("include_self", True, "whether the old value takes part in the reduction"),
        WRAPS,
        positions=along_axis,
    ),
    _spec(
        "index_put",
        _index_put,
        "x values indices*",
        "x[indices] = values, or += values: one index tensor an axis, none where the whole axis is meant; values "
        "broadcast. torch.Tensor.index_put. One element type.",
        Attribute("accumulate", False),
        positions=one_an_axis(2),
    ),
    _spec(
        "scatter_nd",
        _scatter_nd,
        "x index src",
        "x with src[i, ...] written at the position index[i, :] of the leading axes; ONNX ScatterND. One element type.",
        _REDUCE,
        positions=in_tuples,
    ),
    _spec(
        "slice_scatter",
        _slice_scatter,
        "x src",
        "x with src in place of its slice; attributes as those of slice. torch.slice_scatter. One element type.",
        Attribute("starts"),
        Attribute("stops"),
        Attribute("steps", None),
        part=slice_view,
    ),
    _spec(
        "select_scatter",
        _select_scatter,
        "x src",
        "x with src at one position of an axis; torch.select_scatter. One element type.",
        Attribute("axis"),
        Attribute("index"),
        part=select_view,
    ),
    _spec(
        "diagonal_scatter",
        _diagonal_scatter,
        "x src",
        "x with src on a diagonal; attributes as those of diagonal. torch.diagonal_scatter. One element type.",
        Attribute("offset", 0),
        Attribute("axis1", 0),
        Attribute("axis2", 1),
        part=diagonal_view,
    ),
    _spec(
        "as_strided_scatter",
        _as_strided_scatter,
        "x src",
        "x, laid out row-major, with src at elements offset + sum(index * stride); torch.as_strided_scatter.",
        Attribute("shape"),
        Attribute("strides"),
        Attribute("offset", 0),
    ),
    _spec(
        "masked_scatter",
        _masked_scatter,
        "x mask src",
        "x with the elements of src, in order, where the mask is not zero; torch.Tensor.masked_scatter.",
        decompose=decompose_masked_scatter,
        family=None,
    ),
)
