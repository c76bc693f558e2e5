"""Reductions over segments and counts of values: bags of embeddings, segment_reduce, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.operators import selection
from hidet.operators.rules import arithmetic_dtype
from hidet.torch.emitter import TorchEmitter

_MODES = ("sum", "mean", "max")


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten._embedding_bag.default": _embedding_bag,
        "aten._embedding_bag_forward_only.default": _embedding_bag,
        "aten._embedding_bag_backward.default": _embedding_bag_gradient,
        "aten._embedding_bag_per_sample_weights_backward.default": _sample_weights_gradient,
        "aten.segment_reduce.default": _segment_reduce,
        "aten._segment_reduce_backward.default": _segment_reduce_gradient,
        "aten.bincount.default": _bincount,
        "aten.histc.default": _histc,
        "aten.histogram.bin_ct": _histogram_of_count,
        "aten.histogram.bins_tensor": _histogram_of_edges,
    }


# --- bags of embeddings --------------------------------------------------------------------------------------------


def _ends(e: TorchEmitter, offsets: Value, count: Dim, has_last: bool) -> tuple[Value, Value]:
    """Where the bags start and stop."""
    bags = offsets.tensor.shape[0] - (1 if has_last else 0)
    if has_last:
        return _part(e, offsets, 0, bags), _part(e, offsets, 1, bags + 1)
    last = e.expand(e.size(count, offsets.tensor.dtype), (1,))
    return offsets, e.emit("concat", _part(e, offsets, 1, bags), last, axis=0)


def _part(e: TorchEmitter, x: Value, start: Dim, stop: Dim) -> Value:
    """Positions `start` to `stop` of the last axis."""
    shape = x.tensor.shape
    starts, stops = (*(0 for _ in shape[:-1]), start), (*shape[:-1], stop)
    return e.emit("slice", x, starts=starts, stops=stops, steps=(1,) * len(shape))


def _bag_of(e: TorchEmitter, starts: Value, count: Dim) -> Value:
    """The number of the bag that each of `count` elements is in: the last that starts at it or before."""
    places = e.emit("arange", stop=count, dtype=starts.tensor.dtype)
    passed = e.emit("searchsorted", starts, places, right=True)
    return e.emit("sub", passed, e.constant(1, dtypes.i64))


def _is_kept(e: TorchEmitter, indices: Value, padding_idx: int, rows: int) -> Value | None:
    """bool[n], or bool[n, 1]: which elements are no padding; None where there is none."""
    if padding_idx < 0:
        return None
    kept = e.emit("not_equal", indices, e.constant(padding_idx, indices.tensor.dtype))
    return e.unsqueeze(kept, (1,)) if rows else kept


def _reduce(e: TorchEmitter, x: Value, ends: tuple[Value, Value], by: str) -> Value:
    return e.emit("segment_reduce", x, *ends, reduce_by=by, axis=0)


def _bag_sizes(e: TorchEmitter, indices: Value, ends: tuple[Value, Value], padding_idx: int) -> Value:
    """How many indices each bag has, padding aside."""
    kept = _is_kept(e, indices, padding_idx, 0)
    ones = e.emit("full", shape=indices.tensor.shape, value=1, dtype=dtypes.i64)
    return _reduce(e, ones if kept is None else e.cast(kept, dtypes.i64), ends, "sum")


def _embedding_bag(
    e: TorchEmitter,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value | None, ...]:
    """The bags, of which one of nothing is zeros; and in mode max, as the last result, the indices they came from."""
    by, dtype, count = _MODES[mode], weight.tensor.dtype, indices.tensor.shape[0]
    ends = _ends(e, e.cast(offsets, indices.tensor.dtype), count, include_last_offset)
    kept = _is_kept(e, indices, padding_idx, 1)
    rows = e.emit("embedding", weight, indices, wraps=False)
    if per_sample_weights is not None:
        rows = e.emit("mul", rows, e.unsqueeze(e.cast(per_sample_weights, dtype), (1,)))
    if kept is not None:
        rows = e.emit("where", kept, rows, e.constant(float("-inf") if by == "max" else 0.0, dtype))
    sizes = _bag_sizes(e, indices, ends, padding_idx)
    is_empty = e.unsqueeze(e.emit("equal", sizes, e.constant(0, dtypes.i64)), (1,))
    zero = e.constant(0.0, dtype)
    if by == "mean":
        wide = arithmetic_dtype(dtype)
        total = _reduce(e, e.cast(rows, wide), ends, "sum")
        some = e.emit("maximum", sizes, e.constant(1, dtypes.i64))
        bags = e.cast(e.emit("div", total, e.unsqueeze(e.cast(some, wide), (1,))), dtype)
    else:
        bags = _reduce(e, rows, ends, by)
    if by == "max":
        bags = e.emit("where", is_empty, zero, bags)
    most = e.emit("index_select", indices, _reduce(e, rows, ends, "argmax"), axis=0) if by == "max" else None
    # The others are for the gradient, which computes them where it needs them: torch leaves some empty, as it likes.
    spare = [
        None if type_ is None else e.emit("full", shape=type_.shape, value=0, dtype=type_.dtype)
        for type_ in e.results[1:]
    ]
    return bags, *spare[:2], spare[2] if most is None else most


def _embedding_bag_gradient(
    e: TorchEmitter,
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: Dim,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:
    if sparse:
        raise UnsupportedOp("a sparse gradient")
    dtype, bags, count = grad.tensor.dtype, grad.tensor.shape[0], indices.tensor.shape[0]
    # Offsets may end with the number of indices, which is where the last bag stops anyhow.
    starts = _part(e, e.cast(offsets, indices.tensor.dtype), 0, bags)
    sizes = _bag_sizes(e, indices, _ends(e, starts, count, has_last=False), padding_idx)
    zeros = e.emit("full", shape=(num_weights, grad.tensor.shape[1]), value=0, dtype=dtype)
    zero = e.constant(0, dtype)
    if _MODES[mode] == "max":
        is_empty = e.unsqueeze(e.emit("equal", sizes, e.constant(0, dtypes.i64)), (1,))
        given = e.emit("where", is_empty, zero, grad)
        return e.emit("scatter", zeros, maximum_indices, given, axis=0, reduce="sum", wraps=False)
    bag = _bag_of(e, starts, count)
    rows = e.emit("index_select", grad, bag, axis=0)
    if _MODES[mode] == "mean":
        some = e.emit("maximum", e.emit("index_select", sizes, bag, axis=0), e.constant(1, dtypes.i64))
        rows = e.emit("div", rows, e.unsqueeze(e.cast(some, dtype), (1,)))
    if per_sample_weights is not None:
        rows = e.emit("mul", rows, e.unsqueeze(per_sample_weights, (1,)))
    if scale_grad_by_freq:
        none = e.emit("full", shape=(num_weights,), value=0, dtype=dtypes.i64)
        ones = e.emit("full", shape=indices.tensor.shape, value=1, dtype=dtypes.i64)
        found = e.emit("scatter", none, indices, ones, axis=0, reduce="sum", wraps=False)
        often = e.emit("index_select", found, indices, axis=0)
        rows = e.emit("div", rows, e.unsqueeze(e.cast(often, dtype), (1,)))
    kept = _is_kept(e, indices, padding_idx, 1)
    if kept is not None:
        rows = e.emit("where", kept, rows, zero)
    return e.emit("index_put", zeros, rows, indices, accumulate=True)


def _sample_weights_gradient(
    e: TorchEmitter,
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    mode: int,
    padding_idx: int = -1,
) -> Value:
    """Products of the gradients of the bags and the rows that were weighted."""
    starts = _part(e, e.cast(offsets, indices.tensor.dtype), 0, grad.tensor.shape[0])
    given = e.emit("index_select", grad, _bag_of(e, starts, indices.tensor.shape[0]), axis=0)
    rows = e.emit("embedding", weight, indices, wraps=False)
    wide = arithmetic_dtype(grad.tensor.dtype)
    products = e.emit("sum", e.emit("mul", e.cast(given, wide), e.cast(rows, wide)), axes=(1,))
    found = e.cast(products, grad.tensor.dtype)
    kept = _is_kept(e, indices, padding_idx, 0)
    return found if kept is None else e.emit("where", kept, found, e.constant(0, found.tensor.dtype))


# --- segments ------------------------------------------------------------------------------------------------------


def _segments(e: TorchEmitter, x: Value, lengths: Value | None, offsets: Value | None) -> tuple[Value, Value]:
    """Where segments start and stop, from their lengths or from all of their ends."""
    if offsets is not None:
        count = offsets.tensor.shape[-1] - 1
        return _part(e, offsets, 0, count), _part(e, offsets, 1, count + 1)
    if lengths is None:
        raise UnsupportedOp("segments without lengths and offsets")
    stops = e.emit("cumsum", lengths, axis=-1)
    return e.emit("sub", stops, lengths), stops


def _segment_reduce(
    e: TorchEmitter,
    x: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Value:
    if indices is not None:
        raise UnsupportedOp("segment_reduce of indices")
    starts, stops = _segments(e, x, lengths, offsets)
    return e.emit("segment_reduce", x, starts, stops, reduce_by=reduce, axis=axis, initial=initial)


def _segment_reduce_gradient(
    e: TorchEmitter,
    grad: Value,
    output: Value,
    x: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: Number | None = None,
) -> Value:
    """What each element has of the gradient of its segment. Elements that share an extreme value share its gradient."""
    if axis % x.tensor.rank or reduce == "prod":
        raise UnsupportedOp("the gradient of products, and of segments behind the first axis")
    starts, stops = _segments(e, x, lengths, offsets)
    extent, rank = x.tensor.shape[0], x.tensor.rank
    behind = tuple(range(1, rank))
    dtype = x.tensor.dtype
    place = e.emit("arange", stop=extent, dtype=starts.tensor.dtype)
    number = e.emit("searchsorted", stops, place, right=True)
    count = e.size(starts.tensor.shape[0])
    # Elements before the first segment and after the last one are in none.
    last = e.emit("minimum", number, e.emit("sub", count, e.constant(1, dtypes.i64)))
    inside = e.emit(
        "logical_and",
        e.emit("less", number, count),
        e.emit("greater_equal", place, e.emit("index_select", starts, last, axis=0)),
    )
    given = e.emit("index_select", grad, last, axis=0)
    if reduce == "mean":
        sizes = e.emit("index_select", e.emit("sub", stops, starts), last, axis=0)
        given = e.emit("div", given, e.unsqueeze(e.cast(sizes, dtype), behind))
    elif reduce in ("max", "min"):
        extreme = e.emit("index_select", output, last, axis=0)
        same = e.emit("logical_or", e.emit("equal", x, extreme), e.emit("isnan", x))
        sharing = e.emit("segment_reduce", e.cast(same, dtype), starts, stops, reduce_by="sum", axis=0)
        share = e.emit("div", given, e.emit("index_select", sharing, last, axis=0))
        given = e.emit("where", same, share, e.constant(0, dtype))
    return e.emit("where", e.unsqueeze(inside, behind), given, e.constant(0, dtype))


# --- counts --------------------------------------------------------------------------------------------------------


def _counts(e: TorchEmitter, places: Value, weights: Value | None, count: Dim, dtype: DType) -> Value:
    """How often, or with which weight, each number below `count` is among `places`."""
    zeros = e.emit("full", shape=(count,), value=0, dtype=dtype)
    ones = e.emit("full", shape=places.tensor.shape, value=1, dtype=dtype) if weights is None else weights
    return e.emit("scatter", zeros, places, ones, axis=0, reduce="sum", wraps=False)


def _bincount(e: TorchEmitter, x: Value, weights: Value | None = None, minlength: Dim = 0) -> Value:
    dtype = e.result.dtype
    (count,) = e.result.shape
    numbers = e.cast(x, dtypes.i64)
    if str(count) in e.facts.fresh:
        some = e.emit("concat", numbers, e.emit("full", shape=(1,), value=minlength - 1, dtype=dtypes.i64), axis=0)
        largest = e.emit("amax", some, axes=(0,))
        selection.read_size(e.builder, e.emit("add", largest, e.constant(1, dtypes.i64)), count)
    ones = None if weights is None else e.cast(weights, dtype)
    return e.own(_counts(e, numbers, ones, count, dtype))


def _bin(e: TorchEmitter, x: Value, low: Value, high: Value, bins: int) -> Value:
    """The number of the bin of each element, of `bins` equal ones from low to high; `bins` for those in none.

    It is rounded as in eager mode, in the type of the elements.
    """
    dtype = x.tensor.dtype
    scaled = e.emit("mul", e.emit("sub", x, low), e.constant(bins, dtype))
    place = e.cast(e.emit("div", scaled, e.emit("sub", high, low)), dtypes.i64)
    # The last bin holds its upper end.
    place = e.emit("minimum", place, e.constant(bins - 1, dtypes.i64))
    inside = e.emit("logical_and", e.emit("greater_equal", x, low), e.emit("less_equal", x, high))
    return e.emit("where", inside, place, e.constant(bins, dtypes.i64))


def _flat(e: TorchEmitter, x: Value) -> Value:
    count: Dim = 1
    for extent in x.tensor.shape:
        count = count * extent
    return e.reshape(x, (count,))


def _limits(e: TorchEmitter, x: Value, low: Number, high: Number, margin: float) -> tuple[Value, Value]:
    """Both ends of a histogram: those of the data where the given ones are equal; where these are, too, moved apart."""
    dtype = x.tensor.dtype
    if low != high or x.tensor.shape[0] == 0:
        wider = margin if low == high else 0
        return e.constant(low - wider, dtype), e.constant(high + wider, dtype)
    first, last = (e.emit(core, x, axes=(0,)) for core in ("amin", "amax"))
    is_point = e.emit("equal", first, last)
    one = e.constant(margin, dtype)
    return (
        e.emit("where", is_point, e.emit("sub", first, one), first),
        e.emit("where", is_point, e.emit("add", last, one), last),
    )


def _histc(e: TorchEmitter, x: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    dtype = e.result.dtype
    flat = _flat(e, x)
    wide = arithmetic_dtype(dtype)
    if not dtype.is_float:
        raise UnsupportedOp("histc of integers")
    flat = e.cast(flat, wide)
    low, high = _limits(e, flat, min, max, 1)
    found = _counts(e, _bin(e, flat, low, high, bins), None, bins + 1, dtypes.i64)
    return e.cast(_part(e, found, 0, bins), dtype)


def _edges(e: TorchEmitter, low: Value, high: Value, bins: int) -> Value:
    """bins + 1 numbers from low to high, counted from the nearer end, as torch.linspace does."""
    dtype = low.tensor.dtype
    step = e.emit("div", e.emit("sub", high, low), e.constant(bins, dtype))
    number = e.emit("arange", stop=bins + 1, dtype=dtype)
    upwards = e.emit("add", low, e.emit("mul", step, number))
    left = e.emit("sub", e.constant(bins, dtype), number)
    downwards = e.emit("sub", high, e.emit("mul", step, left))
    is_near = e.emit("less", number, e.constant((bins + 1) // 2, dtype))
    return e.emit("where", is_near, upwards, downwards)


def _histogram(e: TorchEmitter, x: Value, edges: Value, weight: Value | None, density: bool) -> tuple[Value, Value]:
    """What lies between neighbouring edges, each with its lower end, the last with both."""
    dtype, bins = x.tensor.dtype, edges.tensor.shape[0] - 1
    flat = _flat(e, x)
    place = e.emit("sub", e.emit("searchsorted", edges, flat, right=True), e.constant(1, dtypes.i64))
    first, last = (e.emit("select", edges, axis=0, index=number) for number in (0, bins))
    place = e.emit("minimum", place, e.size(bins - 1))
    inside = e.emit("logical_and", e.emit("greater_equal", flat, first), e.emit("less_equal", flat, last))
    place = e.emit("where", inside, place, e.size(bins))
    weights = None if weight is None else _flat(e, weight)
    found = _part(e, _counts(e, place, weights, bins + 1, dtype), 0, bins)
    if density:
        widths = e.emit("sub", _part(e, edges, 1, bins + 1), _part(e, edges, 0, bins))
        found = e.emit("div", found, e.emit("mul", e.emit("sum", found, axes=(0,)), widths))
    return found, edges


def _histogram_of_count(
    e: TorchEmitter,
    x: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    flat = _flat(e, x)
    if range is None and flat.tensor.shape[0] != 0:
        ends = _limits(e, flat, 0.0, 0.0, 0.5)
    else:
        low, high = range or (0.0, 1.0)
        margin = 0.5 if low == high else 0.0
        ends = e.constant(low - margin, x.tensor.dtype), e.constant(high + margin, x.tensor.dtype)
    return _histogram(e, x, _edges(e, *ends, bins), weight, density)


def _histogram_of_edges(
    e: TorchEmitter, x: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    return _histogram(e, x, bins, weight, density)
