"""Slices, padding and concatenation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr
from hidet.errors import ImportFailed
from hidet.frontend import Handler
from hidet.frontend.loops import NotRows
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Item, Rows


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "concatenate": _concatenate,
        "dynamic_pad": _dynamic_pad,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
        "pad": _pad,
        "real_dynamic_slice": _real_dynamic_slice,
        "reverse": lambda e, x, dimensions, **_: _reverse(e, x, dimensions),
        "slice": _slice,
    }


def _concatenate(e: Emitter, *parts: Value, dimension: Any, **_: Any) -> Value:
    axis = e.axis(dimension, parts[0].tensor.rank, "the dimension")
    return parts[0] if len(parts) == 1 else e.emit("concat", *parts, axis=axis)


def _reverse(e: Emitter, x: Value, dimensions: Any) -> Value:
    axes = e.axes(dimensions, x.tensor.rank, "the dimensions")
    return e.emit("flip", x, axes=axes) if axes else x


def sliced(e: Emitter, x: Value, starts: Sequence[Dim], stops: Sequence[Dim], steps: Sequence[int]) -> Value:
    """A part of `x`, or `x` itself."""
    is_whole = all(start == 0 and step == 1 for start, step in zip(starts, steps, strict=True))
    if is_whole and all(stop == extent for stop, extent in zip(stops, x.tensor.shape, strict=True)):
        return x
    return e.emit("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def _slice(e: Emitter, x: Value, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Value:
    rank = x.tensor.rank
    starts = e.whole(start_indices, "the starts", rank)
    stops = e.whole(limit_indices, "the limits", rank)
    steps = e.whole(strides, "the strides", rank)
    for start, stop, step, extent in zip(starts, stops, steps, x.tensor.shape, strict=True):
        if start < 0 or stop < start or step < 1 or (isinstance(extent, int) and stop > extent):
            raise ImportFailed(f"{e.operator} [{start}:{stop}:{step}] of an axis of extent {extent}")
    return sliced(e, x, starts, stops, steps)


def _real_dynamic_slice(e: Emitter, x: Value, starts: Value, limits: Value, strides: Value, **_: Any) -> Value:
    """Of a part whose place data decide, the file says the size."""
    steps = e.ints(strides, "the strides")
    if e.is_known(starts, limits):
        return sliced(e, x, e.dims(starts, "the starts"), e.dims(limits, "the limits"), steps)
    for axis, size in enumerate(e.result.shape):
        start, limit = (_element(e, numbers, axis) for numbers in (starts, limits))
        extent = x.tensor.shape[axis]
        if e.is_known(start, limit):
            begin, stop = e.one_dim(start, "the start"), e.one_dim(limit, "the limit")
            bounds = [
                (begin, stop, steps[axis]) if n == axis else (0, whole, 1) for n, whole in enumerate(x.tensor.shape)
            ]
            x = sliced(e, x, *zip(*bounds, strict=True))
        elif size is not None and steps[axis] == 1:
            x = e.emit("index_select", x, positions(e, start, size, extent), axis=axis)
        else:
            raise e.value_needed(start, "the starts")
    return x


_ARITHMETIC = ("add", "cast", "clamp_tensor", "maximum", "minimum", "mul", "sub")


def _element(e: Emitter, numbers: Value, place: int) -> Value:
    """One of the numbers of a tensor with one axis, i[1]: computed from those that it is made of, because some of them
    may be known where others are not."""
    parts = e.made_by(numbers, "concat")
    if parts is not None and len(parts.inputs) == numbers.tensor.shape[0]:
        return parts.values[place]
    node = e.builder.producer(numbers)
    if node is not None and node.op.name in _ARITHMETIC and all(v.tensor.rank == 1 for v in node.values):
        operands = [None if value is None else _element(e, value, place) for value in node.inputs]
        return e.emit(node.op, *operands, **node.attrs)
    return e.emit("slice", numbers, starts=(place,), stops=(place + 1,))


def _dynamic_slice(e: Emitter, x: Value, *starts: Value, slice_sizes: Any, **_: Any) -> Value:
    sizes = e.whole(slice_sizes, "the sizes", x.tensor.rank)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        extent = x.tensor.shape[axis]
        if isinstance(extent, int) and not 0 <= size <= extent:
            raise ImportFailed(f"{e.operator} of {size} elements of an axis of extent {extent}")
        if size == extent:
            continue
        begin = known_start(e, start, size, extent)
        if begin is not None:
            begins = [begin if n == axis else 0 for n in range(x.tensor.rank)]
            stops = [begin + size if n == axis else whole for n, whole in enumerate(x.tensor.shape)]
            x = sliced(e, x, begins, stops, (1,) * x.tensor.rank)
        else:
            x = e.emit("index_select", x, positions(e, start, size, extent), axis=axis)
    return x


def known_start(e: Emitter, start: Value, size: Dim, extent: Dim) -> Dim | None:
    """Where a part of an axis begins, moved so that it fits, if that is known while importing."""
    found = e.contents(start)
    if found is None or found.size != 1 or not isinstance(extent, int) or not isinstance(size, int):
        return None
    item = found.reshape(-1)[0]
    return None if isinstance(item, DimExpr) else min(max(int(item), 0), extent - size)


def positions(e: Emitter, start: Value, size: int, extent: Dim) -> Value:
    """The `size` places from a number on, which is moved so that they fit: i64[size]."""
    first = clamped(e, start, extent - size)
    if size == 1:
        return e.reshape(first, (1,))
    return e.emit("add", e.reshape(first, (1,)), e.emit("arange", start=0, stop=size, dtype=dtypes.i64))


def clamped(e: Emitter, index: Value, last: Dim) -> Value:
    """Places as i64, those below 0 and above `last` moved there."""
    found = e.cast(index, dtypes.i64)
    if isinstance(last, int):
        return e.emit("clamp", found, min=0, max=max(last, 0))
    limit = e.size(last)
    return e.emit("maximum", e.emit("minimum", found, limit), e.constant(0, dtypes.i64))


def _dynamic_update_slice(e: Emitter, x: Item, update: Value, *starts: Value, **_: Any) -> Item:
    if isinstance(x, Rows):
        return _with_row(e, x, update, starts)
    if x.tensor.rank != update.tensor.rank or len(starts) != x.tensor.rank:
        raise ImportFailed(f"{e.operator} of {update.type} into {x.type} at {len(starts)} numbers")
    parts = [axis for axis in range(x.tensor.rank) if update.tensor.shape[axis] != x.tensor.shape[axis]]
    if not parts:
        return update
    shape, extents = update.tensor.shape, x.tensor.shape
    known = {axis: known_start(e, starts[axis], shape[axis], extents[axis]) for axis in parts}
    begins = [begin for axis in range(x.tensor.rank) if (begin := known.get(axis, 0)) is not None]
    if len(begins) == x.tensor.rank:
        stops = [begin + size for begin, size in zip(begins, shape, strict=True)]
        return e.emit("slice_scatter", x, update, starts=tuple(begins), stops=tuple(stops))
    # Axes that are written in part come first, so that one index an axis says where.
    rest = [axis for axis in range(x.tensor.rank) if axis not in parts]
    order = (*parts, *rest)
    index: list[Value] = []
    for number, axis in enumerate(parts):
        size = shape[axis]
        if not isinstance(size, int):
            raise e.sizes_needed(update, f"{e.operator} of a part whose size is open")
        place = positions(e, starts[axis], size, extents[axis])
        index.append(e.reshape(place, [size if n == number else 1 for n in range(len(parts))]))
    made = e.emit("index_put", e.transpose(x, order), e.transpose(update, order), *index)
    return e.transpose(made, [order.index(axis) for axis in range(x.tensor.rank)])


def _with_row(e: Emitter, rows: Rows, update: Value, starts: Sequence[Value]) -> Rows:
    """The row of this iteration: written once, at the number of the iteration, as wide as the tensor."""
    shape = tuple(1 if axis == rows.axis else extent for axis, extent in enumerate(rows.shape))
    at = starts[rows.axis]
    source = at
    while (node := e.made_by(source, "cast")) is not None:
        source = node.values[0]
    others = [start for axis, start in enumerate(starts) if axis != rows.axis]
    zeros = [e.contents(start) for start in others]
    if (
        rows.row is not None
        or update.tensor.shape != shape
        or not ({at, source} & rows.places)
        or any(found is None or found.any() for found in zeros)
    ):
        raise NotRows
    return Rows(rows.places, rows.shape, rows.axis, e.reshape(update, shape[: rows.axis] + shape[rows.axis + 1 :]))


# --- padding ---------------------------------------------------------------------------------------------------------


def _pad(
    e: Emitter, x: Value, value: Value, edge_padding_low: Any, edge_padding_high: Any, interior_padding: Any, **_: Any
) -> Value:
    rank = x.tensor.rank
    low = e.whole(edge_padding_low, "the padding", rank)
    high = e.whole(edge_padding_high, "the padding", rank)
    inside = e.whole(interior_padding, "the padding", rank)
    return padded(e, x, value, low, high, inside)


def _dynamic_pad(e: Emitter, x: Value, value: Value, low: Value, high: Value, interior: Value, **_: Any) -> Value:
    before, behind = (e.dims(part, "the padding") for part in (low, high))
    return padded(e, x, value, before, behind, e.ints(interior, "the padding"))


def padded(e: Emitter, x: Value, value: Value, low: Sequence[Dim], high: Sequence[Dim], inside: Sequence[int]) -> Value:
    """`x` with elements added at the ends of axes, and between its elements; negative amounts at ends cut."""
    found = e.contents(value)
    if found is not None and found.size == 1:
        return _padded_with(e, x, found.reshape(-1)[0].item(), low, high, inside)
    # What is added shows where nothing else is.
    ones = e.emit("full", shape=x.tensor.shape, value=True, dtype=dtypes.boolean)
    is_own = _padded_with(e, ones, False, low, high, inside)
    return e.emit("where", is_own, _padded_with(e, x, 0, low, high, inside), value)


def _padded_with(
    e: Emitter, x: Value, number: Any, low: Sequence[Dim], high: Sequence[Dim], inside: Sequence[int]
) -> Value:
    for axis, gap in enumerate(inside):
        if gap < 0:
            raise ImportFailed(f"{e.operator} with {gap} elements between others")
        if gap and x.tensor.shape[axis] != 1:
            x = _spread(e, x, axis, gap, number)
    pairs = list(zip(low, high, strict=True))
    cut = [tuple(-n if isinstance(n, int) and n < 0 else 0 for n in pair) for pair in pairs]
    if any(a or b for a, b in cut):
        # What is cut may be what is added at the other end.
        x = _grown(e, x, [(a + before, b + after) for (a, b), (before, after) in zip(pairs, cut, strict=True)], number)
        stops = [extent - after for extent, (_, after) in zip(x.tensor.shape, cut, strict=True)]
        return sliced(e, x, [before for before, _ in cut], stops, (1,) * x.tensor.rank)
    return _grown(e, x, pairs, number)


def _grown(e: Emitter, x: Value, pads: Sequence[tuple[Dim, Dim]], number: Any) -> Value:
    if all(pair == (0, 0) for pair in pads):
        return x
    return e.emit("pad", x, pads=tuple(pads), mode="constant", value=number)


def _spread(e: Emitter, x: Value, axis: int, gap: int, number: Any) -> Value:
    """`x` with `gap` elements between those along an axis."""
    extent = x.tensor.shape[axis]
    wide = e.unsqueeze(x, (axis + 1,))
    pads = [(0, gap) if n == axis + 1 else (0, 0) for n in range(wide.tensor.rank)]
    wide = e.emit("pad", wide, pads=tuple(pads), mode="constant", value=number)
    shape = [extent * (gap + 1) if n == axis else whole for n, whole in enumerate(x.tensor.shape)]
    made = e.reshape(wide, shape)
    stops = [whole - gap if n == axis else whole for n, whole in enumerate(shape)]
    return sliced(e, made, (0,) * x.tensor.rank, stops, (1,) * x.tensor.rank)
