"""`hidet.ops`: views, parts and other orders of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hidet.api.flow.operation import apply_one, number_dtype
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError

Numbers = int | Sequence[int]


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors, one behind the other along an axis."""
    return apply_one("concat", *tensors, axis=axis)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """x with its dims in another order; None is the reverse one."""
    return apply_one("transpose", x, perm=list(reversed(range(len(x.shape)))) if axes is None else list(axes))


def reshape(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """x with other extents; one of them may be -1."""
    return apply_one("reshape", x, shape=list(shape))


def view(x: Tensor, dtype: Any = None, shape: Sequence[Any] | None = None) -> Tensor:
    """The bytes of x as another type, or with other extents. Its last extent changes with the size of elements."""
    read = x if dtype is None else apply_one("bitcast", x, dtype=number_dtype(dtype))
    return read if shape is None else reshape(read, shape)


def squeeze(x: Tensor, dims: Numbers) -> Tensor:
    """x without dims of extent 1."""
    return apply_one("squeeze", x, axes=listed(dims))


def unsqueeze(x: Tensor, dims: Numbers) -> Tensor:
    """x with new dims of extent 1."""
    return apply_one("unsqueeze", x, axes=listed(dims))


def expand_dims(x: Tensor, axis: int = 0) -> Tensor:
    """x with a new dim of extent 1."""
    return unsqueeze(x, axis)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x with several dims as one."""
    return apply_one("flatten", x, start=start_dim, end=end_dim)


def rearrange(x: Tensor, plan: Sequence[Sequence[int]]) -> Tensor:
    """x with its dims in another order and joined: each list of `plan` names those that make one dim of the result.

    An empty list is a new dim of extent 1; dims that no list names have extent 1 and vanish. ShapeError otherwise.
    """
    order = [dim for joined in plan for dim in joined]
    dropped = [dim for dim in range(len(x.shape)) if dim not in order]
    if any(x.shape[dim] != 1 for dim in dropped) or len({*order}) < len(order):
        raise ShapeError(f"plan {plan} of a tensor of shape {x.shape} names each dim once, but for those of extent 1")
    turned = transpose(x, [*order, *dropped])
    return reshape(turned, [math.prod(x.shape[dim] for dim in joined) for joined in plan])


def broadcast(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """x with dims of extent 1 repeated."""
    return apply_one("expand", x, shape=list(shape))


def cast(x: Tensor, dtype: Any) -> Tensor:
    """x with elements of another type."""
    return apply_one("cast", x, dtype=number_dtype(dtype))


def take(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Rows of `data` along an axis by the numbers in `indices`, whose shape takes the axis' place."""
    place = axis % len(data.shape)
    if len(indices.shape) == 1:
        return apply_one("index_select", data, indices, axis=place)
    rows = apply_one("index_select", data, reshape(indices, [-1]), axis=place)
    return reshape(rows, [*data.shape[:place], *indices.shape, *data.shape[place + 1 :]])


def split(data: Tensor, parts_or_sections: Numbers, axis: int = 0) -> list[Tensor]:
    """Parts along an axis: so many equal ones, or of these extents."""
    extent: Any = data.shape[axis]
    if isinstance(parts_or_sections, int):
        if extent % parts_or_sections:
            raise ShapeError(f"{extent} elements along axis {axis} make no {parts_or_sections} equal parts")
        sections = [extent // parts_or_sections] * parts_or_sections
    else:
        sections = list(parts_or_sections)
    parts, start = [], 0
    for section in sections:
        parts.append(part(data, {axis % len(data.shape): (start, start + section, 1)}))
        start += section
    return parts


def part(x: Tensor, ranges: dict[int, tuple[Any, Any, int]]) -> Tensor:
    """Some elements along axes: (start, stop, step) by axis."""
    starts, stops, steps = bounds_of(x, ranges)
    return apply_one("slice", x, starts=starts, stops=stops, steps=steps)


def bounds_of(x: Tensor, ranges: dict[int, tuple[Any, Any, int]]) -> list[list[Any]]:
    """Starts, stops and steps, one each an axis."""
    chosen = [ranges.get(axis, (0, extent, 1)) for axis, extent in enumerate(x.shape)]
    return [list(numbers) for numbers in zip(*chosen, strict=True)]


def ranges_of(
    x: Tensor, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int] | None, strides: Sequence[Any] | None
) -> dict[int, tuple[Any, Any, int]]:
    """(start, stop, step) by axis, with None as in Python's slices."""
    places = range(len(starts)) if axes is None else [axis % len(x.shape) for axis in axes]
    steps = [None] * len(starts) if strides is None else strides
    bounds = zip(places, starts, ends, steps, strict=True)
    return {axis: slice(start, end, step).indices(x.shape[axis]) for axis, start, end, step in bounds}


def strided_slice(
    data: Tensor,
    starts: Sequence[int | None],
    ends: Sequence[int | None],
    axes: Sequence[int] | None = None,
    strides: Sequence[int | None] | None = None,
) -> Tensor:
    """`data[start:end:stride]` along axes; None for axes is the first ones, None in a list as in Python's slices."""
    return part(data, ranges_of(data, starts, ends, axes, strides))


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]` for integers, slices, None and ...; a tensor of integers takes rows."""
    if isinstance(index, Tensor):
        return take(x, index)
    items = list(index) if isinstance(index, tuple) else [index]
    if ... in items:
        at = items.index(...)
        count = len(x.shape) - sum(item is not None for item in items) + 1
        items[at : at + 1] = [slice(None)] * count
    axis, new, ranges, numbers = 0, [], {}, []
    for place, item in enumerate(items):
        if item is None:
            new.append(place)
            continue
        if axis >= len(x.shape):
            raise ShapeError(f"a tensor of {len(x.shape)} dims has no dim {axis}")
        if isinstance(item, slice):
            ranges[axis] = item.indices(x.shape[axis])
        else:
            extent: Any = x.shape[axis]
            if not -extent <= item < extent:
                raise IndexError(f"index {item} of dim {axis} is outside of its {extent} elements")
            ranges[axis] = (item % extent, item % extent + 1, 1)
            numbers.append((place, axis))
        axis += 1
    taken = part(x, ranges)
    if numbers:
        taken = squeeze(taken, [axis for _, axis in numbers])
    dropped = [place for place, _ in numbers]
    places = [place - sum(d < place for d in dropped) for place in new]
    return unsqueeze(taken, places) if places else taken


def pad(data: Tensor, pads: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Tensor:
    """`data` with elements added around it. mode: "constant", "reflect", "replicate" or "circular".

    pads: numbers before each of the last axes, and then those behind them; or a pair for every axis.
    """
    flat = all(isinstance(number, int) for number in pads)
    half = len(pads) // 2
    pairs = list(zip(pads[:half], pads[half:], strict=True)) if flat else list(pads)
    pairs = [(0, 0)] * (len(data.shape) - len(pairs)) + pairs
    return apply_one("pad", data, pads=pairs, mode=mode, value=value)


def repeat_interleave(data: Tensor, repeats: int, dim: int | None = None) -> Tensor:
    """Every row along a dim repeated; None: every element, as one dim."""
    x, axis = (flatten(data), 0) if dim is None else (data, dim)
    return apply_one("repeat_interleave", x, repeats=repeats, axis=axis)


def roll(x: Tensor, shifts: Numbers, dims: Numbers | None = None) -> Tensor:
    """x moved along dims, what leaves at one end enters at the other; None: all elements as one dim."""
    if dims is None:
        return reshape(apply_one("roll", flatten(x), shifts=listed(shifts), axes=[0]), x.shape)
    return apply_one("roll", x, shifts=listed(shifts), axes=listed(dims))


def listed(dims: Numbers) -> list[int]:
    """Dims, of which a single one may stand for itself."""
    return [dims] if isinstance(dims, int) else list(dims)
