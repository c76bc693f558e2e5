"""Reductions along axes and over windows: sums, extremes, positions of extremes, running sums, and any other region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from hidet import dtypes
from hidet.dims import Dim, product
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.mapping.move import padded, sliced
from hidet.stablehlo.mapping.terms import argument, combination, terms_of

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

_MOST_TAPS = 512
"""Places of a window whose elements are joined one by one."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "reduce": _reduce,
        "reduce_window": _reduce_window,
    }


def _folds(dtype: DType) -> Mapping[str, tuple[str, str, Any]]:
    """By the operator of a region: core's reduction, core's operator for two, and what changes nothing."""
    if dtype == dtypes.boolean:
        return {
            "and": ("all", "logical_and", True),
            "minimum": ("all", "logical_and", True),
            "multiply": ("all", "logical_and", True),
            "or": ("any", "logical_or", False),
            "maximum": ("any", "logical_or", False),
            "add": ("any", "logical_or", False),
        }
    is_float = dtype.is_float
    return {
        "add": ("sum", "add", 0),
        "multiply": ("prod", "mul", 1),
        "maximum": ("amax", "maximum", float("-inf") if is_float else int(dtype.min)),
        "minimum": ("amin", "minimum", float("inf") if is_float else int(dtype.max)),
    }


def _reduce(e: Emitter, *operands: Value, dimensions: Any, regions: Sequence[Body], **_: Any) -> Any:
    count = len(operands) // 2
    if count == 0 or len(operands) != 2 * count or len(regions) != 1:
        raise ImportFailed(f"{e.operator} has {len(operands)} operands and {len(regions)} regions")
    xs, starts = operands[:count], operands[count:]
    axes = e.axes(dimensions, xs[0].tensor.rank, "the dimensions")
    (body,) = regions
    if not axes:
        return xs if count > 1 else xs[0]
    fold = _folds(xs[0].tensor.dtype).get(combination(body) or "") if count == 1 else None
    if fold is not None:
        name, joined, neutral = fold
        return _with_start(e, folded(e, name, xs[0], axes), starts[0], joined, neutral)
    found = _extreme_with_place(e, xs, axes, body) if count == 2 else None
    return found if found is not None else _by_halves(e, xs, starts, axes, body)


def folded(e: Emitter, name: str, x: Value, axes: Sequence[int]) -> Value:
    """A reduction of core in the type of its operand. Of no elements, extremes are what changes nothing."""
    dtype = x.tensor.dtype
    shape = [extent for axis, extent in enumerate(x.tensor.shape) if axis not in axes]
    if name in ("amax", "amin") and any(x.tensor.shape[axis] == 0 for axis in axes):
        return e.filled(_folds(dtype)["maximum" if name == "amax" else "minimum"][2], shape, x)
    made = e.emit(name, x, axes=tuple(axes))
    return e.cast(made, dtype)


def is_number(e: Emitter, value: Value, number: Any) -> bool:
    """Whether a tensor is known to be this number."""
    found = e.contents(value)
    if found is None or found.size != 1:
        return False
    item = found.reshape(-1)[0]
    return bool(item == number)


def _with_start(e: Emitter, made: Value, start: Value, joined: str, neutral: Any) -> Value:
    return made if is_number(e, start, neutral) else e.emit(joined, made, start)


def _extreme_with_place(e: Emitter, xs: Sequence[Value], axes: Sequence[int], body: Body) -> tuple[Value, Value] | None:
    """The largest or smallest with the first place where it is; NaN is both."""
    if len(axes) != 1 or len(body.block.arguments) != 4:
        return None
    terms = terms_of(body)
    left, left_place, right, right_place = (argument(number) for number in range(4))
    for direction, core in (("GT", "max_with_index"), ("LT", "min_with_index")):
        better: Any = ("compare", direction, left, right)
        if xs[0].tensor.dtype.is_float:
            better = ("or", better, ("compare", "NE", left, left))
        same = ("and", ("compare", "EQ", left, right), ("compare", "LT", left_place, right_place))
        wanted = (("select", better, left, right), ("select", ("or", better, same), left_place, right_place))
        if terms == wanted and counts_along(e, xs[1], axes[0]):
            values, place = e.emit_all(core, (xs[0],), {"axis": axes[0]})
            return values, e.cast(place, xs[1].tensor.dtype)
    return None


def counts_along(e: Emitter, value: Value, axis: int) -> bool:
    """Whether the elements of a tensor are known to be their places along an axis."""
    spread = e.made_by(value, "expand")
    row = value if spread is None else spread.values[0]
    if row.tensor.rank != value.tensor.rank:
        return False
    if any(n != axis and extent != 1 for n, extent in enumerate(row.tensor.shape)):
        return False
    turned = e.made_by(row, "reshape")
    numbers = row if turned is None else turned.values[0]
    node = e.made_by(numbers, "arange")
    return node is not None and node.attrs["start"] == 0 and node.attrs["step"] == 1


def _by_halves(
    e: Emitter, xs: Sequence[Value], starts: Sequence[Value], axes: Sequence[int], body: Body
) -> tuple[Value, ...] | Value:
    """Any region: halves of the axis are joined until one element is left. StableHLO leaves the order open."""
    rank = xs[0].tensor.rank
    order = (*axes, *(axis for axis in range(rank) if axis not in axes))
    length = product([xs[0].tensor.shape[axis] for axis in axes])
    if not isinstance(length, int):
        raise UnsupportedOp(f"{e.operator} by a region of its own along an axis of open size")
    rest = [xs[0].tensor.shape[axis] for axis in order[len(axes) :]]
    parts = [e.reshape(e.transpose(x, order), (length, *rest)) for x in xs]
    if length == 0:
        made = [e.expand(start, rest) for start in starts]
        return tuple(made) if len(made) > 1 else made[0]
    while length > 1:
        half = length // 2
        joined = _joined(body, [_rows(e, x, 0, half) for x in parts], [_rows(e, x, half, 2 * half) for x in parts])
        if length % 2:
            tails = [_rows(e, x, length - 1, length) for x in parts]
            joined = [e.emit("concat", a, b, axis=0) for a, b in zip(joined, tails, strict=True)]
        parts, length = joined, half + length % 2
    made = _joined(body, list(starts), [e.reshape(x, rest) for x in parts])
    return tuple(made) if len(made) > 1 else made[0]


def _rows(e: Emitter, x: Value, start: int, stop: int) -> Value:
    rank = x.tensor.rank
    return sliced(e, x, (start, *(0,) * (rank - 1)), (stop, *x.tensor.shape[1:]), (1,) * rank)


def _joined(body: Body, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    made = list(body.on_elements((*left, *right)))
    if len(made) != len(left) or not all(isinstance(item, Value) for item in made):
        raise ImportFailed("a region that joins elements returns something else")
    return made


# --- windows ---------------------------------------------------------------------------------------------------------


def _reduce_window(
    e: Emitter,
    *operands: Value,
    window_dimensions: Any,
    regions: Sequence[Body],
    window_strides: Any = None,
    base_dilations: Any = None,
    window_dilations: Any = None,
    padding: Any = None,
    **_: Any,
) -> Any:
    count = len(operands) // 2
    if count == 0 or len(operands) != 2 * count or len(regions) != 1:
        raise ImportFailed(f"{e.operator} has {len(operands)} operands and {len(regions)} regions")
    xs, starts = list(operands[:count]), operands[count:]
    rank = xs[0].tensor.rank
    window = _windows(e, window_dimensions, rank)
    strides, spread, dilation = (
        _windows(e, given, rank) for given in (window_strides, base_dilations, window_dilations)
    )
    flat = e.whole(() if padding is None else numpy.asarray(padding).reshape(-1), "the padding")
    if flat and len(flat) != 2 * rank:
        raise ImportFailed(f"{e.operator}: {len(flat)} numbers of padding, expected {2 * rank}")
    pads = list(zip(flat[::2], flat[1::2], strict=True)) if flat else [(0, 0)] * rank
    (body,) = regions
    if any(step > 1 for step in spread) or any(min(pair) < 0 for pair in pads):
        low, high = [a for a, _ in pads], [b for _, b in pads]
        inside = [step - 1 for step in spread]
        xs = [padded(e, x, start, low, high, inside) for x, start in zip(xs, starts, strict=True)]
        pads = [(0, 0)] * rank
    by = combination(body) if count == 1 else None
    fold = _folds(xs[0].tensor.dtype).get(by or "")
    is_neutral = fold is not None and is_number(e, starts[0], fold[2])
    if by is not None and is_neutral:
        made = _running(e, by, xs[0], window, strides, dilation, pads)
        made = _pooled(e, by, xs[0], window, strides, dilation, pads) if made is None else made
        if made is not None:
            return made
    return _tap_by_tap(e, xs, starts, window, strides, dilation, pads, body)


def _windows(e: Emitter, attribute: Any, rank: int) -> tuple[int, ...]:
    found = e.whole(attribute, "the window") or (1,) * rank
    if len(found) != rank or min(found, default=1) < 1:
        raise ImportFailed(
            f"{e.operator}: {list(found)} for the axes of a tensor of rank {rank}, expected numbers from 1"
        )
    return found


_RUNNING = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


def _only_axis(window: Sequence[int]) -> int | None:
    wide = [axis for axis, size in enumerate(window) if size > 1]
    return wide[0] if len(wide) == 1 else None


def _running(
    e: Emitter,
    by: str,
    x: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Value | None:
    """A window of everything up to an element, or from it on, is a running sum."""
    axis = _only_axis(window)
    if axis is None or by not in _RUNNING or {*strides, *dilation} != {1} or x.tensor.dtype == dtypes.boolean:
        return None
    length = window[axis]
    if x.tensor.shape[axis] != length or any(pair != (0, 0) for n, pair in enumerate(pads) if n != axis):
        return None
    is_reverse = pads[axis] == (0, length - 1)
    if not is_reverse and pads[axis] != (length - 1, 0):
        return None
    if by in ("add", "multiply"):
        return e.cast(e.emit(_RUNNING[by], x, axis=axis, reverse=is_reverse), x.tensor.dtype)
    turned = e.emit("flip", x, axes=(axis,)) if is_reverse else x
    made, _ = e.emit_all(_RUNNING[by], (turned,), {"axis": axis})
    return e.emit("flip", made, axes=(axis,)) if is_reverse else made


def _pooled(
    e: Emitter,
    by: str,
    x: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Value | None:
    """A pooling, over at most three axes, of images whose other axes are channels."""
    wide = [n for n, size in enumerate(window) if size > 1 or strides[n] > 1 or pads[n] != (0, 0)]
    if not 1 <= len(wide) <= 3 or by not in ("add", "maximum", "minimum") or x.tensor.dtype == dtypes.boolean:
        return None
    if by == "add" and (not x.tensor.dtype.is_float or any(dilation[n] != 1 for n in wide)):
        return None
    if any(2 * max(pads[n]) > window[n] for n in wide):
        return None
    rank = x.tensor.rank
    rest = [n for n in range(rank) if n not in wide]
    order = (*rest, *wide)
    outer = [x.tensor.shape[n] for n in rest]
    images = e.transpose(x, order)
    space = images.tensor.shape[len(rest) :]
    if len(rest) != 2:
        lead = [outer[0], product(outer[1:])] if outer else [1, 1]
        images = e.reshape(images, (*lead, *space))
    attrs: dict[str, Any] = {
        "kernel": tuple(window[n] for n in wide),
        "stride": tuple(strides[n] for n in wide),
        "padding": tuple(pads[n] for n in wide),
    }
    if by == "add":
        made = e.emit("avg_pool", images, count_include_pad=True, divisor_override=1, **attrs)
    else:
        attrs["dilation"] = tuple(dilation[n] for n in wide)
        images = e.emit("neg", images) if by == "minimum" else images
        made = e.emit("max_pool", images, **attrs)
        made = e.emit("neg", made) if by == "minimum" else made
    shape: list[Dim] = [*outer, *made.tensor.shape[2:]]
    return e.transpose(e.reshape(made, shape), [order.index(n) for n in range(rank)])


def _tap_by_tap(
    e: Emitter,
    xs: Sequence[Value],
    starts: Sequence[Value],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    body: Body,
) -> Any:
    """Any region: what stands at one place of all windows is joined with what stands at the next."""
    taps = int(numpy.prod([float(size) for size in window]))
    if taps > _MOST_TAPS:
        raise UnsupportedOp(f"{e.operator} by a region of its own over windows of {taps} elements")
    low, high = [a for a, _ in pads], [b for _, b in pads]
    rank = xs[0].tensor.rank
    wide = [padded(e, x, start, low, high, (0,) * rank) for x, start in zip(xs, starts, strict=True)]
    extents = wide[0].tensor.shape
    counts: list[int] = []
    for extent, size, step, spread in zip(extents, window, strides, dilation, strict=True):
        if not isinstance(extent, int):
            if (size, step) != (1, 1):
                raise UnsupportedOp(f"{e.operator} by a region of its own along an axis of open size")
            counts.append(-1)
            continue
        counts.append(max(0, (extent - (size - 1) * spread - 1) // step + 1))

    def at(place: Sequence[int]) -> list[Value]:
        begins = [n * spread for n, spread in zip(place, dilation, strict=True)]
        stops: list[Dim] = [
            extent if count < 0 else begin + (count - 1) * step + 1 if count else begin
            for begin, count, step, extent in zip(begins, counts, strides, extents, strict=True)
        ]
        return [sliced(e, x, begins, stops, strides) for x in wide]

    made = list(starts)
    for place in numpy.ndindex(*window):
        made = _joined(body, made, at(place))
    return tuple(made) if len(made) > 1 else made[0]
