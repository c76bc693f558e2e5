"""Slices and picked rows: StridedSlice with its masks, Slice, Gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_bounds
from hidet.graph import Value
from hidet.tensorflow.mapping.shape import normal_axis


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "Gather": lambda e, x, index, **_: e.emit("index_select", x, index, axis=0, wraps=False),
        "GatherV2": _gather,
        "Slice": _slice,
        "StridedSlice": _strided_slice,
    }


def _gather(e: Emitter, x: Value, index: Value, axis: Value, batch_dims: int = 0, **_: Any) -> Value:
    return gather(e, x, index, normal_axis(e, e.one_int(axis, "the axis"), x.tensor.rank), batch_dims)


def gather(e: Emitter, x: Value, index: Value, axis: int, batch_dims: int) -> Value:
    """x at the positions `index`[batch, ...] of an axis; the first axes of both are the batch."""
    batch = batch_dims + index.tensor.rank if batch_dims < 0 else batch_dims
    if batch == 0:
        return e.emit("index_select", x, index, axis=axis, wraps=False)
    between = axis - batch
    rank = x.tensor.rank
    front = e.transpose(x, (*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)))
    made = e.emit("gather_nd", front, e.unsqueeze(index, (index.tensor.rank,)), batch=batch)
    # [batch, places, between, rest] -> [batch, between, places, rest]
    first = index.tensor.rank
    order = (
        *range(batch),
        *range(first, first + between),
        *range(batch, first),
        *range(first + between, made.tensor.rank),
    )
    return e.transpose(made, order)


def _slice(e: Emitter, x: Value, begin: Value, size: Value) -> Value:
    """A size of -1 is what is left."""
    starts = elements(e, begin)
    sizes = elements(e, size)
    chosen: list[_Range] = []
    shape: list[Dim] = []
    for extent, start, count in zip(x.tensor.shape, starts, sizes, strict=True):
        if isinstance(start, Value) or isinstance(count, Value):
            return _measured_slice(e, x, begin, size)
        shape.append(extent - start if count == -1 else count)
        chosen.append(_Range(start, start + shape[-1], 1))
    # It is of exactly that size, where core's slice would end with the axis.
    return e.reshape(_cut(e, x, chosen), shape)


def _measured_slice(e: Emitter, x: Value, begin: Value, size: Value) -> Value:
    """Bounds that data decide. In a loop, elements are picked one by one where the sizes are known."""
    starts, given = elements(e, begin), elements(e, size)
    counts: list[Dim] = []
    for extent, start, count in zip(x.tensor.shape, starts, given, strict=True):
        if count == -1 and not isinstance(start, Value):
            counts.append(extent - start)
        elif count != -1 and not isinstance(count, Value):
            counts.append(count)
    if len(counts) == len(given):
        for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
            if isinstance(start, Value):
                steps = e.emit("arange", start=0, stop=count, dtype=start.tensor.dtype)
                x = e.emit("index_select", x, e.emit("add", steps, start), axis=axis, wraps=False)
            else:
                ranges = [_Range(0, extent, 1) for extent in x.tensor.shape]
                ranges[axis] = _Range(start, start + count, 1)
                x = _cut(e, x, ranges)
        return e.reshape(x, counts)
    first = e.sizes(begin, "the begin")
    # A size of -1 is what is left, of which the begin decides.
    rest = e.emit("sub", e.size_vector(x.tensor.shape, size.tensor.dtype), begin)
    is_rest = e.emit("equal", size, e.constant(-1, size.tensor.dtype))
    sizes = e.sizes(e.emit("where", is_rest, rest, size), "the sizes")
    return _cut(e, x, [_Range(start, start + count, 1) for start, count in zip(first, sizes, strict=True)])


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of an axis; None is its end on that side."""

    start: Dim | None
    stop: Dim | None
    step: int


def _cut(e: Emitter, x: Value, ranges: Sequence[_Range]) -> Value:
    whole = [
        r.start in (None, 0) and (r.stop is None or r.stop is extent or r.stop == extent) and r.step == 1
        for r, extent in zip(ranges, x.tensor.shape, strict=True)
    ]
    if all(whole):
        return x
    return e.emit(
        "slice",
        x,
        starts=tuple(r.start for r in ranges),
        stops=tuple(r.stop for r in ranges),
        steps=tuple(r.step for r in ranges),
    )


def elements(e: Emitter, vector: Value) -> list[Dim | Value]:
    """The elements of a vector of sizes: what is known as a size, anything else as a tensor without axes."""
    if e.is_known(vector):
        return list(e.dims(vector, "a shape"))
    node = e.made_by(vector, "stack")
    if node is not None:
        return [e.one_dim(part, "a size") if e.is_known(part) else part for part in node.values]
    count = vector.tensor.shape[0]
    if not isinstance(count, int):
        raise e.value_needed(vector, "a shape")
    return [e.emit("select", vector, axis=0, index=number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class _Masks:
    """Bits of StridedSlice: a set bit says of that entry that it is the end of the axis, all axes that are left, a new
    axis, or one position."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink: int


def _strided_slice(
    e: Emitter,
    x: Value,
    begin: Value,
    end: Value,
    strides: Value,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:
    masks = _Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    steps = e.ints(strides, "the strides")
    starts, stops = elements(e, begin), elements(e, end)
    # The next axis of x, and of the result as it is before axes are dropped.
    axis, place = 0, 0
    ranges = [_Range(None, None, 1) for _ in x.tensor.shape]
    picked: list[tuple[int, Dim | Value]] = []
    new_axes: list[int] = []
    given = sum(1 for n in range(len(steps)) if not (masks.new_axis >> n & 1 or masks.ellipsis >> n & 1))
    dynamic: list[tuple[int, Dim | Value | None, Dim | Value | None]] = []
    for number, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        bit = 1 << number
        if masks.ellipsis & bit:
            rest = x.tensor.rank - given
            axis, place = axis + rest, place + rest
        elif masks.new_axis & bit:
            new_axes.append(place)
            place += 1
        elif axis >= x.tensor.rank:
            raise ImportFailed(f"{e.operator} of {x.type} has more entries than that has axes")
        elif masks.shrink & bit:
            picked.append((axis, start))
            axis += 1
        else:
            low = None if masks.begin & bit else start
            high = None if masks.end & bit else stop
            if isinstance(low, Value) or isinstance(high, Value):
                if step != 1:
                    raise UnsupportedOp(f"{e.operator} with a step of {step} between positions that data decide")
                dynamic.append((axis, low, high))
            else:
                ranges[axis] = _Range(low, high, step)
            axis, place = axis + 1, place + 1
    made = _cut(e, x, ranges)
    for cut, low, high in dynamic:
        made = _cut_by_data(e, made, cut, low, high)
    for gone, position in sorted(picked, key=lambda item: -item[0]):
        made = _pick(e, made, gone, position)
    return e.unsqueeze(made, tuple(new_axes))


def _pick(e: Emitter, x: Value, axis: int, position: Dim | Value) -> Value:
    if isinstance(position, int):
        return e.emit("select", x, axis=axis, index=position)
    index = position if isinstance(position, Value) else e.size(position)
    return e.emit("index_select", x, index, axis=axis)


def _cut_by_data(e: Emitter, x: Value, axis: int, low: Dim | Value | None, high: Dim | Value | None) -> Value:
    """From `low` to `high`, which are clamped to the axis; negative ones count from its end."""
    first = low if isinstance(low, Value) else e.size(0 if low is None else low)
    last = high if isinstance(high, Value) else e.size(x.tensor.shape[axis] if high is None else high)
    starts, stops = measured_bounds(e, x, e.reshape(first, (1,)), e.reshape(last, (1,)), (axis,))
    ranges = [_Range(None, None, 1) for _ in x.tensor.shape]
    ranges[axis] = _Range(starts[0], stops[0], 1)
    return _cut(e, x, ranges)
