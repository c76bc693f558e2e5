"""Writing at computed places of a copy of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import Operand, TorchEmitter
from hidet.torch.layout import inverse
from hidet.torch.mapping.move import positions
from hidet.torch.mapping.view import eager_places, from_front, slice_attributes


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.scatter.src": _scatter,
        "aten.scatter.value": _scatter,
        "aten.scatter.reduce": _scatter_with_reduce,
        "aten.scatter.value_reduce": _scatter_with_reduce,
        "aten.scatter_add.default": _scatter_add,
        "aten.scatter_reduce.two": _scatter_reduce,
        "aten.index_put.default": _index_put,
        "aten._unsafe_index_put.default": _index_put,
        "flex_lib.zeros_and_scatter.default": _sums_at,
        "aten.slice_scatter.default": _slice_scatter,
        "aten.select_scatter.default": _select_scatter,
        "aten.diagonal_scatter.default": _diagonal_scatter,
        "aten.as_strided_scatter.default": _as_strided_scatter,
        "aten.masked_scatter.default": _masked_scatter,
    }


def _written(
    e: TorchEmitter, x: Value, dim: int, index: Value, src: Operand, reduce: str | None, include_self: bool = True
) -> Value:
    update = e.operand(src, x.tensor.dtype)
    if update.tensor.rank != index.tensor.rank:
        update = e.expand(update, index.tensor.shape)
    return e.emit("scatter", x, index, update, axis=dim, reduce=reduce, include_self=include_self, wraps=False)


def _scatter(e: TorchEmitter, x: Value, dim: int, index: Value, src: Operand) -> Value:
    return _written(e, x, dim, index, src, None)


def _scatter_with_reduce(e: TorchEmitter, x: Value, dim: int, index: Value, src: Operand, *, reduce: str) -> Value:
    return _written(e, x, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _scatter_add(e: TorchEmitter, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _written(e, x, dim, index, src, "sum")


def _scatter_reduce(
    e: TorchEmitter, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    return _written(e, x, dim, index, src, reduce, include_self)


def _sums_at(e: TorchEmitter, shape: Sequence[Dim], indices: Sequence[Value | None], values: Value) -> Value:
    """Gradient of reading at places, as functions of attention do."""
    zeros = e.emit("full", shape=tuple(shape), value=0, dtype=values.tensor.dtype)
    return _index_put(e, zeros, indices, values, accumulate=True)


def _index_put(
    e: TorchEmitter, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    update = e.cast(values, x.tensor.dtype)
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.tensor.dtype.is_bool and not accumulate:
        return _masked_fill(e, x, mask, update)
    return e.emit("index_put", x, update, *positions(indices), accumulate=accumulate)


def _masked_fill(e: TorchEmitter, x: Value, mask: Value, update: Value) -> Value:
    """`x[mask] = update` for one element; more would go to a number of places that depends on data."""
    if any(extent != 1 for extent in update.tensor.shape):
        raise UnsupportedOp("writing several values through a mask")
    missing = x.tensor.rank - mask.tensor.rank
    wide = e.unsqueeze(mask, tuple(range(mask.tensor.rank, mask.tensor.rank + missing)))
    return e.emit("where", wide, e.reshape(update, ()), x)


def _slice_scatter(
    e: TorchEmitter,
    x: Value,
    src: Value,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Value:
    extent = x.tensor.shape[dim]
    first, last = from_front(extent, start), from_front(extent, end)
    attrs = slice_attributes(x.tensor.rank, dim % x.tensor.rank, first, last, step)
    return e.emit("slice_scatter", x, e.cast(src, x.tensor.dtype), **attrs)


def _select_scatter(e: TorchEmitter, x: Value, src: Value, dim: int, index: Dim) -> Value:
    position = from_front(x.tensor.shape[dim], index)
    return e.emit("select_scatter", x, e.cast(src, x.tensor.dtype), axis=dim, index=position)


def _diagonal_scatter(e: TorchEmitter, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return e.emit("diagonal_scatter", x, e.cast(src, x.tensor.dtype), offset=offset, axis1=dim1, axis2=dim2)


def _as_strided_scatter(
    e: TorchEmitter,
    x: Value,
    src: Value,
    size: Sequence[Dim],
    stride: Sequence[Dim],
    storage_offset: Dim | None = None,
) -> Value:
    if 0 in size:
        return x
    place = eager_places(e, size, stride, storage_offset, through_views=False)
    stored = e.transpose(x, place.order)
    written = e.emit("as_strided_scatter", stored, src, shape=tuple(size), strides=tuple(stride), offset=place.start)
    return e.transpose(written, inverse(place.order))


def _masked_scatter(e: TorchEmitter, x: Value, mask: Value, source: Value) -> Value:
    shape = e.result.shape
    return e.emit("masked_scatter", e.expand(x, shape), e.expand(mask, shape), source)
