"""Views: other shapes and strides for the same elements. Shapes come from torch's own inference, with no -1 in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hidet.dims import Dim, bounds, last_place, maximum, minimum, product, prove_le, prove_lt
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.graph.types import same_shape
from hidet.torch.eager_nodes import NeedsTorch
from hidet.torch.emitter import TorchEmitter
from hidet.torch.layout import inverse, memory_order
from hidet.torch.tensors import dtype_of

# Ends of slices beyond this mean "to the end".
_END = 2**62


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.view.default": _view,
        "aten._unsafe_view.default": _view,
        "aten.reshape.default": _view,
        "aten._reshape_alias.default": _view,
        "aten.flatten.using_ints": _view,
        "aten.unflatten.int": _view,
        "aten.view_copy.default": _view,
        "aten.view.dtype": _view_as_type,
        "aten.narrow_copy.default": _narrow,
        "aten.permute_copy.default": _permute,
        "aten.as_strided_copy.default": _as_strided,
        "aten.unbind_copy.int": _unbind,
        "aten.permute.default": _permute,
        "aten.t.default": _t,
        "aten.transpose.int": _transpose,
        "aten.expand.default": _expand,
        "aten.squeeze.default": _squeeze,
        "aten.squeeze.dim": _squeeze,
        "aten.squeeze.dims": _squeeze,
        "aten.unsqueeze.default": _unsqueeze,
        "aten.slice.Tensor": _slice,
        "aten.select.int": _select,
        "aten.diagonal.default": _diagonal,
        "aten.unfold.default": _unfold,
        "aten.as_strided.default": _as_strided,
        "aten.split_with_sizes.default": _split_with_sizes,
        "aten.split.Tensor": _split,
        "aten.unbind.int": _unbind,
    }


def _view(e: TorchEmitter, x: Value, *shape: object, **more: object) -> Value:
    return e.reshape(x, e.result.shape)


def _view_as_type(e: TorchEmitter, x: Value, dtype: torch.dtype) -> Value:
    target = dtype_of(dtype)
    return x if target == x.tensor.dtype else e.emit("bitcast", x, dtype=target)


def _permute(e: TorchEmitter, x: Value, dims: Sequence[int]) -> Value:
    return e.transpose(x, dims) if dims else x


def _t(e: TorchEmitter, x: Value) -> Value:
    return e.transpose(x, (1, 0)) if x.tensor.rank == 2 else x


def _transpose(e: TorchEmitter, x: Value, dim0: int, dim1: int) -> Value:
    if x.tensor.rank == 0:
        return x
    perm = list(range(x.tensor.rank))
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return e.transpose(x, perm)


def _expand(e: TorchEmitter, x: Value, size: Sequence[Dim], *, implicit: bool = False) -> Value:
    return e.expand(x, e.result.shape)


def _squeeze(e: TorchEmitter, x: Value, dim: Sequence[int] | int | None = None) -> Value:
    axes = range(x.tensor.rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    return e.squeeze(x, tuple(axes))


def _unsqueeze(e: TorchEmitter, x: Value, dim: int) -> Value:
    return e.unsqueeze(x, (dim % (x.tensor.rank + 1),))


def _slice(
    e: TorchEmitter, x: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    axis = dim % x.tensor.rank
    if step == 1 and same_shape(x.tensor.shape, e.result.shape):
        return x
    extent = x.tensor.shape[axis]
    return cut(e, x, axis, from_front(extent, start), from_front(extent, end), step)


def from_front(extent: Dim, position: Dim | None) -> Dim | None:
    """A position on an axis as Python takes it, counted from the front: a negative one has the extent added.

    Core knows the sign of numbers; of those that are read from data only the running graph does.
    """
    if position is None or isinstance(position, int):
        return position
    lower, upper = bounds(position)
    if (lower is not None and lower >= 0) or (upper is not None and upper < 0):
        return position
    is_negative = -maximum(minimum(position, 0), -1)
    return position + extent * is_negative


def cut(e: TorchEmitter, x: Value, axis: int, start: Dim | None, stop: Dim | None, step: int = 1) -> Value:
    """x[start:stop:step] on one axis."""
    return e.emit("slice", x, **slice_attributes(x.tensor.rank, axis, start, stop, step))


def slice_attributes(rank: int, axis: int, start: Dim | None, stop: Dim | None, step: int) -> dict[str, Any]:
    """Attributes of core's `slice` and `slice_scatter` that leave all axes but one whole."""
    starts: list[Dim | None] = [None] * rank
    stops: list[Dim | None] = [None] * rank
    steps = [1] * rank
    starts[axis], steps[axis] = start, step
    stops[axis] = None if isinstance(stop, int) and stop >= _END else stop
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": None if step == 1 else tuple(steps)}


def _narrow(e: TorchEmitter, x: Value, dim: int, start: Dim, length: Dim) -> Value:
    axis = dim % x.tensor.rank
    first = from_front(x.tensor.shape[axis], start)
    assert first is not None
    return cut(e, x, axis, first, first + length)


def _select(e: TorchEmitter, x: Value, dim: int, index: Dim) -> Value:
    return e.emit("select", x, axis=dim, index=from_front(x.tensor.shape[dim], index))


def _diagonal(e: TorchEmitter, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return e.emit("diagonal", x, offset=offset, axis1=dim1, axis2=dim2)


def _unfold(e: TorchEmitter, x: Value, dimension: int, size: int, step: int) -> Value:
    if x.tensor.rank == 0:
        return e.reshape(x, e.result.shape)
    return e.emit("unfold", x, axis=dimension, size=size, step=step)


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it lies in its storage in eager mode. order: of its axes there, outermost first. start: where in it
    the elements that an operator takes begin."""

    tensor: Value
    order: tuple[int, ...]
    start: Dim


def eager_places(
    e: TorchEmitter, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None, through_views: bool = True
) -> Stored:
    """The tensor with all elements that an as_strided takes: the node's first argument or, through views, what this is
    a view of; at least one element. NeedsTorch for elements of the storage that are in no tensor of the graph."""
    offset: Dim | None = storage_offset
    found: list[Stored] = []
    for x, (layout, begin) in e.facts.stored():
        offset = begin if offset is None else offset
        order, start = memory_order(x.tensor.shape, layout), offset - begin
        last, extent = start + last_place(size, stride), product(x.tensor.shape)
        is_inside = prove_le(0, start) is True and prove_lt(last, extent)
        if order is not None and is_inside is not False and _may_be_inside(e, start, last, extent):
            found.append(Stored(x, order, start))
            if is_inside:
                return found[-1]
        if not through_views:
            break
    if found:
        # What all the others are views of; a call checks that the elements are in it.
        return found[-1]
    raise NeedsTorch(
        "as_strided takes elements of a storage that may lie outside of the tensor it is called on",
        loc=e.builder.loc,
        hint="call it on the whole tensor, or leave it out of the compiled function (torch.compiler.disable)",
    )


def _may_be_inside(e: TorchEmitter, start: Dim, last: Dim, extent: Dim) -> bool:
    """False where a tensor of so many elements has not all from `start` to `last` for the sizes that were traced,
    whatever holds for others."""
    first, end, count = map(e.facts.traced, (start, last, extent))
    return first is None or end is None or count is None or (first >= 0 and end < count)


def _as_strided(
    e: TorchEmitter, x: Value, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> Value:
    """The strides are those of eager mode, where `x` may be a permutation of its storage; that is undone first."""
    if 0 in size:
        return e.emit("full", shape=tuple(size), value=0, dtype=x.tensor.dtype)
    place = eager_places(e, size, stride, storage_offset)
    stored = e.transpose(place.tensor, place.order)
    if place.start == 0 and len(size) == stored.tensor.rank:
        wanted = memory_order(size, stride)
        if wanted is not None and same_shape([size[axis] for axis in wanted], stored.tensor.shape):
            return e.transpose(stored, inverse(wanted))
    return e.emit("as_strided", stored, shape=tuple(size), strides=tuple(stride), offset=place.start)


def _split_with_sizes(e: TorchEmitter, x: Value, split_sizes: Sequence[Dim], dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.tensor.rank
    parts: list[Value] = []
    start: Dim = 0
    for extent in split_sizes:
        parts.append(cut(e, x, axis, start, start + extent))
        start = start + extent
    return tuple(parts)


def _split(e: TorchEmitter, x: Value, split_size: Dim, dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.tensor.rank
    return _split_with_sizes(e, x, [result.shape[axis] for result in e.results if result is not None], dim)


def _unbind(e: TorchEmitter, x: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(e.emit("select", x, axis=dim, index=number) for number in range(len(e.results)))
