"""Elements at other places: joining, cutting, picking, writing, padding, repeating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims, dtypes
from hidet.dims import Dim, prove_lt
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_bounds
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.shape import normal_axis

_REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}
_FAR = (1 << 31) - 1
"""Exporters write ends beyond every axis as the largest 32- or 64-bit integer."""


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Concat", 1): lambda e, *tensors, axis=1: _concat(e, tensors, axis),
        ("Concat", 4): lambda e, *tensors, axis: _concat(e, tensors, axis),
        ("Split", 2): lambda e, x, axis, split=None: split_at(e, x, axis, split, None),
        ("Split", 13): _split,
        ("Slice", 1): lambda e, x, starts, ends, axes=None: _slice(e, x, starts, ends, axes, None),
        ("Slice", 10): _slice_by_inputs,
        ("Gather", 1): lambda e, x, index, axis: e.emit("index_select", x, index, axis=_axis(e, axis, x)),
        ("GatherElements", 11): lambda e, x, index, axis: e.emit("gather", x, index, axis=_axis(e, axis, x)),
        ("GatherND", 11): lambda e, x, index, batch_dims=0: e.emit("gather_nd", x, index, batch=batch_dims),
        ("Scatter", 9): _scatter_elements,
        ("ScatterElements", 11): _scatter_elements,
        ("ScatterND", 11): lambda e, x, index, updates, reduction="none": e.emit(
            "scatter_nd", x, index, updates, reduce=_reduction(e, reduction)
        ),
        ("Pad", 2): lambda e, x, mode, pads, value: _pad(e, x, pads, mode, value, None),
        ("Pad", 11): _pad_by_inputs,
        ("Tile", 6): _tile,
        ("Trilu", 14): _trilu,
        ("DepthToSpace", 1): _depth_to_space,
        ("SpaceToDepth", 1): _space_to_depth,
        ("ReverseSequence", 10): _reverse_sequence,
        ("TopK", 1): lambda e, x, k, axis: _top_k(e, x, k, axis, 1),
        ("TopK", 10): lambda e, x, k, axis, largest=1, sorted=1: _top_k(e, x, e.one_size(k, "k"), axis, largest),
    }


def _axis(e: Emitter, axis: int, x: Value) -> int:
    return normal_axis(e, axis, x.tensor.rank)


def _concat(e: Emitter, tensors: Sequence[Value], axis: int) -> Value:
    place = _axis(e, axis, tensors[0])
    return tensors[0] if len(tensors) == 1 else e.emit("concat", *tensors, axis=place)


def _split(
    e: Emitter, x: Value, sizes: Value | None = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    if num_outputs is not None and num_outputs != len(e.facts.read):
        raise ImportFailed(f"Split has {len(e.facts.read)} outputs, but num_outputs is {num_outputs}")
    return split_at(e, x, axis, None if sizes is None else e.dims(sizes, "the split"), num_outputs)


def split_at(
    e: Emitter, x: Value, axis: int, sizes: Sequence[Dim] | None, num_outputs: int | None
) -> tuple[Value, ...]:
    """Parts of these sizes along an axis. Without sizes, as many equal parts as the node has outputs; the last one is
    smaller where `num_outputs` is given and does not divide the extent."""
    place = _axis(e, axis, x)
    extent = x.tensor.shape[place]
    count = len(e.facts.read)
    if sizes is None:
        if num_outputs is None and isinstance(extent, int) and extent % count:
            raise ImportFailed(f"Split: an axis of extent {extent} has no {count} equal parts")
        part = dims.ceildiv(extent, count)
        sizes = [*[part] * (count - 1), extent - part * (count - 1)]
    total: Dim = 0
    for size in sizes:
        total = total + size
    if len(sizes) != count or dims.prove_equal(total, extent) is False:
        raise ImportFailed(f"Split: parts {list(map(str, sizes))} do not make the extent {extent} in {count} outputs")
    starts, parts = [0] * x.tensor.rank, []
    stops: list[Dim | None] = [None] * x.tensor.rank
    first: Dim = 0
    for size in sizes:
        low: list[Dim] = list(starts)
        low[place], stops[place] = first, first + size
        parts.append(e.emit("slice", x, starts=tuple(low), stops=tuple(stops), steps=None))
        first = first + size
    return tuple(parts)


def _slice_by_inputs(
    e: Emitter, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    chosen = None if axes is None else e.ints(axes, "the axes")
    strides = None if steps is None else e.ints(steps, "the steps")
    if e.reads_sizes and not e.is_known(starts, ends) and all(step > 0 for step in strides or ()):
        count = starts.tensor.shape[0]
        if chosen is None and isinstance(count, int):
            chosen = tuple(range(count))
        if chosen is not None:
            places = tuple(_axis(e, axis, x) for axis in chosen)
            return _slice(e, x, *measured_bounds(e, x, starts, ends, places), places, strides)
    return _slice(e, x, e.dims(starts, "the starts"), e.dims(ends, "the ends"), chosen, strides)


def _slice(
    e: Emitter,
    x: Value,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    chosen = tuple(range(len(starts))) if axes is None else tuple(_axis(e, axis, x) for axis in axes)
    strides = (1,) * len(chosen) if steps is None else tuple(steps)
    if not len(starts) == len(ends) == len(chosen) == len(strides) or len(set(chosen)) < len(chosen):
        raise ImportFailed(f"Slice: {len(starts)} starts, {len(ends)} ends, {len(strides)} steps for axes {chosen}")
    low: list[Dim | None] = [None] * x.tensor.rank
    high: list[Dim | None] = [None] * x.tensor.rank
    step = [1] * x.tensor.rank
    for axis, start, end, stride in zip(chosen, starts, ends, strides, strict=True):
        if stride == 0:
            raise ImportFailed("Slice: a step is 0")
        low[axis], high[axis], step[axis] = _bound(start, stride < 0), _bound(end, stride > 0), stride
    if all(a in (None, 0) and b is None and s == 1 for a, b, s in zip(low, high, step, strict=True)):
        return x
    return e.emit("slice", x, starts=tuple(low), stops=tuple(high), steps=tuple(step))


def _bound(position: Dim, is_upper: bool) -> Dim | None:
    """A position, or None for one so far off that it is the end of every axis on that side."""
    if isinstance(position, int) and (position >= _FAR if is_upper else position < -_FAR):
        return None
    return position


def _scatter_elements(e: Emitter, x: Value, index: Value, updates: Value, axis: int, reduction: str = "none") -> Value:
    return e.emit("scatter", x, index, updates, axis=_axis(e, axis, x), reduce=_reduction(e, reduction))


def _reduction(e: Emitter, name: str) -> str | None:
    if name not in _REDUCTIONS:
        raise UnsupportedOp(f"{e.operator}: reduction is {name!r}, expected one of {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def _pad_by_inputs(
    e: Emitter, x: Value, pads: Value, constant: Value | None = None, axes: Value | None = None, mode: str = "constant"
) -> Value:
    value = 0 if constant is None else e.number(constant, "the constant")
    chosen = None if axes is None else e.ints(axes, "the axes")
    return _pad(e, x, e.dims(pads, "the pads"), mode, value, chosen)


def _pad(e: Emitter, x: Value, pads: Sequence[Dim], mode: str, value: float | int, axes: Sequence[int] | None) -> Value:
    """`pads` has all amounts before, then all after; a negative one cuts."""
    if mode not in _PAD_MODES:
        raise UnsupportedOp(f"Pad: mode is {mode!r}, expected one of {', '.join(_PAD_MODES)}")
    rank = x.tensor.rank
    chosen = list(range(rank)) if axes is None else [_axis(e, axis, x) for axis in axes]
    if len(pads) != 2 * len(chosen):
        raise ImportFailed(f"Pad: {len(pads)} amounts for {len(chosen)} axes: expected two an axis")
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for number, axis in enumerate(chosen):
        pairs[axis] = pads[number], pads[number + len(chosen)]
    if not any(pair != (0, 0) for pair in pairs):
        return x
    shape = tuple(extent + a + b for extent, (a, b) in zip(x.tensor.shape, pairs, strict=True))
    e.require_size(shape, x.tensor.dtype)
    return e.emit("pad", x, pads=tuple(pairs), mode=_PAD_MODES[mode], value=value)


def _tile(e: Emitter, x: Value, repeats: Value) -> Value:
    counts = e.sizes(repeats, "the repeats")
    if len(counts) != x.tensor.rank or any(isinstance(count, int) and count < 0 for count in counts):
        raise ImportFailed(f"Tile of {x.type} by {list(map(str, counts))}: expected one count an axis, none below 0")
    e.require_size(tuple(n * m for n, m in zip(x.tensor.shape, counts, strict=True)), x.tensor.dtype)
    return e.emit("tile", x, repeats=counts)


def _trilu(e: Emitter, x: Value, k: Value | None = None, upper: int = 1) -> Value:
    offset = 0 if k is None else e.number(k, "k")
    return e.emit("triu" if upper else "tril", x, offset=offset)


def _blocks(e: Emitter, x: Value, blocksize: int) -> tuple[Dim, Dim, Dim, Dim]:
    if x.tensor.rank != 4 or blocksize < 1:
        raise ImportFailed(f"{e.operator} of {x.type} with blocks of {blocksize}: expected [n, c, h, w] and 1 or more")
    n, c, h, w = x.tensor.shape
    return n, c, h, w


def _depth_to_space(e: Emitter, x: Value, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _blocks(e, x, blocksize)
    channels = dims.floordiv(c, blocksize * blocksize)
    if mode == "DCR":
        parts = e.reshape(x, (n, blocksize, blocksize, channels, h, w))
        ordered = e.transpose(parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = e.reshape(x, (n, channels, blocksize, blocksize, h, w))
        ordered = e.transpose(parts, (0, 1, 4, 2, 5, 3))
    return e.reshape(ordered, (n, channels, h * blocksize, w * blocksize))


def _space_to_depth(e: Emitter, x: Value, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _blocks(e, x, blocksize)
    rows, columns = dims.floordiv(h, blocksize), dims.floordiv(w, blocksize)
    parts = e.reshape(x, (n, c, rows, blocksize, columns, blocksize))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return e.reshape(e.transpose(parts, order), (n, c * blocksize * blocksize, rows, columns))


def _reverse_sequence(e: Emitter, x: Value, lengths: Value, batch_axis: int, time_axis: int) -> Value:
    """Along time, the first lengths[b] elements of batch b backwards, the rest as they are."""
    if {batch_axis, time_axis} != {0, 1} or x.tensor.rank < 2:
        raise ImportFailed(f"ReverseSequence: batch and time axes are {batch_axis} and {time_axis}, expected 0 and 1")
    batch, time = x.tensor.shape[batch_axis], x.tensor.shape[time_axis]
    steps = e.unsqueeze(e.emit("arange", start=0, stop=time, dtype=dtypes.i64), (batch_axis,))
    rows = e.unsqueeze(e.emit("arange", start=0, stop=batch, dtype=dtypes.i64), (time_axis,))
    count = e.unsqueeze(e.cast(lengths, dtypes.i64), (time_axis,))
    mirrored = e.emit("sub", e.emit("sub", count, e.constant(1, dtypes.i64)), steps)
    place = e.emit("where", e.emit("less", steps, count), mirrored, steps)
    return e.emit("index", x, *((place, rows) if time_axis == 0 else (rows, place)))


def _top_k(e: Emitter, x: Value, k: Dim, axis: int, largest: int) -> tuple[Value, ...]:
    """The order of the results is that of `sorted`, which is right without it, too."""
    place = _axis(e, axis, x)
    extent = x.tensor.shape[place]
    if prove_lt(k, 0) or prove_lt(extent, k):
        raise ImportFailed(f"TopK: k is {k}, expected 0 to {extent}")
    return e.emit_all("topk", (x,), {"k": k, "axis": place, "largest": bool(largest)})
