"""Reductions along axes, scans, sums over segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.shape import normal_axis

Reduction = Callable[[Emitter, Value, tuple[int, ...], bool], Value]


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        **{name: _over_axes(reduction) for name, reduction in _REDUCTIONS.items()},
        "ArgMax": _position("argmax"),
        "ArgMin": _position("argmin"),
        "Cumsum": _running("cumsum"),
        "Cumprod": _running("cumprod"),
        "CumulativeLogsumexp": _running("logcumsumexp"),
        "L2Loss": _half_square,
        "InTopK": _is_among_largest,
        "InTopKV2": _is_among_largest,
        **{name: _segments(reduce, start) for name, (reduce, start) in _SEGMENTS.items()},
        "SegmentMean": _segment_mean,
        **{f"SparseSegment{name}{version}": _sparse_segments(name) for name in _PICKED for version in _COUNTED},
        "Bincount": lambda e, x, size, weights: _bin_count(e, x, size, weights, False),
        "DenseBincount": lambda e, x, size, weights, binary_output: _bin_count(e, x, size, weights, binary_output),
        "Bucketize": _bucketize,
        "LowerBound": _bound(is_upper=False),
        "UpperBound": _bound(is_upper=True),
    }


def _plain(core: str) -> Reduction:
    """Core sums narrow integers in i64; TensorFlow keeps the type."""
    return lambda e, x, axes, keepdim: e.cast(e.emit(core, x, axes=axes, keepdim=keepdim), x.tensor.dtype)


def _mean(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    """Integers are divided towards zero."""
    if x.tensor.dtype.is_float:
        return e.emit("mean", x, axes=axes, keepdim=keepdim)
    count = e.size(dims.product([x.tensor.shape[axis] for axis in axes]))
    total = e.cast(e.emit("sum", x, axes=axes, keepdim=keepdim), dtypes.i64)
    return e.cast(e.emit("trunc_divide", total, count), x.tensor.dtype)


def _extreme(core: str, is_max: bool) -> Reduction:
    """Of no elements: the least, or greatest, value of the type."""

    def reduce(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
        if not any(x.tensor.shape[axis] == 0 for axis in axes):
            return e.emit(core, x, axes=axes, keepdim=keepdim)
        shape = [1 if axis in axes else n for axis, n in enumerate(x.tensor.shape) if keepdim or axis not in axes]
        return e.emit("full", shape=tuple(shape), value=_limit(x.tensor.dtype, not is_max), dtype=x.tensor.dtype)

    return reduce


def _limit(dtype: DType, is_greatest: bool) -> float | int:
    """The greatest, or least, value of a type."""
    if dtype.is_float:
        return float("inf") if is_greatest else float("-inf")
    return int(dtype.max if is_greatest else dtype.min)


def _norm(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    return e.emit("norm", x, p=2, axes=axes, keepdim=keepdim)


_REDUCTIONS: dict[str, Reduction] = {
    "All": _plain("all"),
    "Any": _plain("any"),
    "EuclideanNorm": _norm,
    "Max": _extreme("amax", True),
    "Mean": _mean,
    "Min": _extreme("amin", False),
    "Prod": _plain("prod"),
    "Sum": _plain("sum"),
}


def _over_axes(reduction: Reduction) -> Handler:
    def handler(e: Emitter, x: Value, axes: Value, keep_dims: bool = False) -> Value:
        chosen = sorted({normal_axis(e, axis, x.tensor.rank) for axis in e.ints(axes, "the axes")})
        return reduction(e, x, tuple(chosen), keep_dims) if chosen else x

    return handler


def _position(core: str) -> Handler:
    def handler(e: Emitter, x: Value, dimension: Value, output_type: DType = dtypes.i64) -> Value:
        axis = normal_axis(e, e.one_int(dimension, "the axis"), x.tensor.rank)
        return e.cast(e.emit(core, x, axes=(axis,)), output_type)

    return handler


def _running(core: str) -> Handler:
    def handler(e: Emitter, x: Value, axis: Value, exclusive: bool = False, reverse: bool = False) -> Value:
        place = normal_axis(e, e.one_int(axis, "the axis"), x.tensor.rank)
        return e.cast(e.emit(core, x, axis=place, exclusive=exclusive, reverse=reverse), x.tensor.dtype)

    return handler


def _is_among_largest(e: Emitter, x: Value, classes: Value, k: Value | int) -> Value:
    """Whether fewer than k elements of a row of x[b, c] are larger than that of its class."""
    index = e.unsqueeze(e.cast(classes, dtypes.i64), (1,))
    own = e.emit("gather", x, index, axis=1)
    larger = e.emit("sum", e.emit("greater", x, own), axes=(1,))
    limit = e.constant(k, dtypes.i64) if isinstance(k, int) else e.cast(k, dtypes.i64)
    return e.emit("less", e.cast(larger, dtypes.i64), limit)


def _half_square(e: Emitter, x: Value) -> Value:
    total = e.emit("sum", e.emit("square", x))
    return e.emit("mul", total, e.constant(0.5, x.tensor.dtype))


# --- segments --------------------------------------------------------------------------------------------------------

# Names and versions: ids ascend, with and without the number of segments, or not.
_VARIANTS = (("Segment", ""), ("Segment", "V2"), ("UnsortedSegment", ""))

# TensorFlow operator -> reduction of core's scatter, and what a segment without elements has.
_SEGMENTS: dict[str, tuple[str, Any]] = {
    **{f"{name}Max{version}": ("amax", False) for name, version in _VARIANTS},
    **{f"{name}Min{version}": ("amin", True) for name, version in _VARIANTS},
    **{f"{name}Prod{version}": ("prod", 1) for name, version in _VARIANTS},
    **{f"{name}Sum{version}": ("sum", 0) for name, version in _VARIANTS},
}


def _segments(reduce: str, start: Any) -> Handler:
    """start: what a segment begins with; False and True are the least and the greatest finite value of the type."""

    def handler(e: Emitter, data: Value, ids: Value, count: Value | None = None) -> Value:
        dtype = data.tensor.dtype
        number = (dtype.max if start else dtype.min) if isinstance(start, bool) else start
        size = _count(e, ids) if count is None else e.one_size(count, "the number of segments")
        made = _scattered(e, data, ids, size, reduce, number if dtype.is_float else int(number))
        if count is not None or not isinstance(start, bool):
            return made
        # The first version of these operators has 0 where a segment is empty.
        zero = e.constant(0, dtype)
        return e.emit("where", e.emit("equal", made, e.constant(number, dtype)), zero, made)

    return handler


_PICKED = ("Mean", "Sum", "SqrtN")
_COUNTED = ("", "WithNumSegments")


def _sparse_segments(name: str) -> Handler:
    """Sums of the rows of `data` that `index` says, by their segments; means, or sums by the root of their number."""

    def handler(e: Emitter, data: Value, index: Value, ids: Value, count: Value | None = None, **_: Any) -> Value:
        size = _count(e, ids) if count is None else e.one_size(count, "the number of segments")
        total = _scattered(e, e.emit("index_select", data, index, axis=0, wraps=False), ids, size, "sum", 0)
        if name == "Sum":
            return total
        dtype = data.tensor.dtype
        number = _scattered(e, e.expand(e.constant(1, dtype), ids.tensor.shape), ids, size, "sum", 0)
        number = e.emit("maximum", number, e.constant(1, dtype))
        number = e.emit("sqrt", number) if name == "SqrtN" else number
        return e.emit("div", total, e.unsqueeze(number, range(1, total.tensor.rank)))

    return handler


def _scattered(e: Emitter, data: Value, ids: Value, count: Dim, reduce: str, start: float | int) -> Value:
    """Rows of `data` reduced by the segment that `ids`, its leading axes, say; those of negative ids are dropped."""
    rows = dims.product(ids.tensor.shape)
    rest = data.tensor.shape[ids.tensor.rank :]
    # Dropped rows go into a segment behind the others.
    number = e.cast(e.reshape(ids, (rows,)), dtypes.i64)
    kept = e.emit("where", e.emit("less", number, e.constant(0, dtypes.i64)), e.size(count), number)
    empty = e.emit("full", shape=(count + 1, *rest), value=start, dtype=data.tensor.dtype)
    index = e.unsqueeze(kept, (1,))
    filled = e.emit("scatter_nd", empty, index, e.reshape(data, (rows, *rest)), reduce=reduce)
    return e.emit("slice", filled, starts=(0,) * filled.tensor.rank, stops=(count, *rest))


def _count(e: Emitter, ids: Value) -> Dim:
    """The number of segments, of which the last one is the last of ascending ids."""
    last = e.emit("select", ids, axis=0, index=-1)
    return e.one_size(e.emit("add", last, e.constant(1, ids.tensor.dtype)), "the number of segments")


def _segment_mean(e: Emitter, data: Value, ids: Value) -> Value:
    count = _count(e, ids)
    total = _scattered(e, data, ids, count, "sum", 0)
    ones = e.emit("full", shape=ids.tensor.shape, value=1, dtype=data.tensor.dtype)
    number = _scattered(e, ones, ids, count, "sum", 0)
    number = e.emit("maximum", number, e.constant(1, data.tensor.dtype))
    return e.emit("div", total, e.unsqueeze(number, tuple(range(1, total.tensor.rank))))


def _bin_count(e: Emitter, x: Value, size: Value, weights: Value, is_binary: bool) -> Value:
    """How often each number from 0 to size - 1 occurs in x[..., n], or the sum of the weights of its places."""
    count = e.one_size(size, "the number of bins")
    bins = e.emit("arange", start=0, stop=count, dtype=x.tensor.dtype)
    is_here = e.emit("equal", e.unsqueeze(x, (x.tensor.rank,)), bins)
    axis = x.tensor.rank - 1
    dtype = weights.tensor.dtype
    if is_binary:
        return e.cast(e.emit("any", is_here, axes=(axis,)), dtype)
    if weights.tensor.shape == (0,) or weights.tensor.rank != x.tensor.rank:
        return e.cast(e.emit("sum", is_here, axes=(axis,)), dtype)
    zero = e.constant(0, dtype)
    weighted = e.emit("where", is_here, e.unsqueeze(weights, (weights.tensor.rank,)), zero)
    return e.cast(e.emit("sum", weighted, axes=(axis,)), dtype)


def _bucketize(e: Emitter, x: Value, boundaries: tuple[float, ...]) -> Value:
    """Integers are compared in f64, which holds the boundaries of either type."""
    wide = x.tensor.dtype if x.tensor.dtype.is_float else dtypes.f64
    limits = e.array(numpy.asarray(boundaries, numpy.float32).astype(wide.numpy()))
    return e.cast(e.emit("searchsorted", limits, e.cast(x, wide), right=True), dtypes.i32)


def _bound(is_upper: bool) -> Handler:
    """Where values[b, n] belong in the ascending rows of sorted[b, m]; behind equal ones if `is_upper`."""

    def handler(e: Emitter, rows: Value, values: Value, out_type: DType = dtypes.i32) -> Value:
        return e.cast(e.emit("searchsorted", rows, values, right=is_upper), out_type)

    return handler
