"""Shapes, axes and constants: what moves no element, or makes some of nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet import dtypes
from hidet.dims import Dim, prove_equal
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Complex, Item


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "broadcast": _broadcast,
        "broadcast_in_dim": _broadcast_in_dim,
        "constant": _constant,
        "dynamic_broadcast_in_dim": _dynamic_broadcast_in_dim,
        "dynamic_iota": _dynamic_iota,
        "dynamic_reshape": _dynamic_reshape,
        "get_dimension_size": _dimension_size,
        "iota": lambda e, iota_dimension, **_: _iota(e, e.result_shape, iota_dimension),
        "reshape": lambda e, x, **_: e.reshape(x, e.result_shape),
        "transpose": _transpose,
    }


def _constant(e: Emitter, value: Any = None, **_: Any) -> Item:
    if not isinstance(value, numpy.ndarray):
        raise UnsupportedOp(f"a constant of type {', '.join(map(str, e.types))}")
    return constant_item(e, value)


def constant_item(e: Emitter, value: Any) -> Item:
    """An array as a constant."""
    if value.dtype.kind == "c":
        real, imaginary = (numpy.ascontiguousarray(part).reshape(value.shape) for part in (value.real, value.imag))
        return Complex(e.array(real), e.array(imaginary))
    if value.size > 1 and not any(value.strides):
        # One element for all: written out, it might be anything in size.
        one = e.array(value.reshape(-1)[:1].reshape(()))
        return e.expand(one, value.shape)
    return e.array(value)


def _iota(e: Emitter, shape: Sequence[Dim], axis: Any) -> Value:
    dtype = e.result.dtype
    place = e.axis(axis, len(shape), "the dimension")
    row = e.emit("arange", start=0, stop=shape[place], dtype=dtype)
    row = e.reshape(row, [extent if n == place else 1 for n, extent in enumerate(shape)])
    return e.expand(row, shape)


def _transpose(e: Emitter, x: Value, permutation: Any, **_: Any) -> Value:
    order = e.axes(permutation, x.tensor.rank, "the permutation")
    if len(order) != x.tensor.rank:
        raise ImportFailed(f"{e.operator} by {list(order)} of a tensor of rank {x.tensor.rank}")
    return e.transpose(x, order)


def _broadcast(e: Emitter, x: Value, broadcast_sizes: Any, **_: Any) -> Value:
    return e.expand(x, (*e.whole(broadcast_sizes, "the sizes"), *x.tensor.shape))


def _broadcast_in_dim(e: Emitter, x: Value, broadcast_dimensions: Any, **_: Any) -> Value:
    return broadcast(e, x, e.whole(broadcast_dimensions, "the dimensions"), e.result_shape)


def broadcast(e: Emitter, x: Value, places: Sequence[int], shape: Sequence[Dim]) -> Value:
    """`x` with axis n at `places[n]` of a tensor of that shape; axes of extent 1 are repeated, others are new."""
    if len(places) != x.tensor.rank or len(set(places)) != len(places):
        raise ImportFailed(f"{e.operator} to the dimensions {list(places)} of a tensor of rank {x.tensor.rank}")
    if any(not 0 <= place < len(shape) for place in places):
        raise ImportFailed(f"{e.operator} to the dimensions {list(places)} of a result of rank {len(shape)}")
    ordered = e.transpose(x, sorted(range(len(places)), key=places.__getitem__))
    if len(places) < len(shape) and not places:
        return e.expand(ordered, shape)
    spread = e.unsqueeze(ordered, [n for n in range(len(shape)) if n not in places])
    extents = list(shape)
    for axis, extent in enumerate(spread.tensor.shape):
        # Sizes that are computed differently and are the same, because nothing else would fit.
        if extent != 1 and axis in places and prove_equal(extent, extents[axis]) is None:
            extents[axis] = extent
    return e.expand(spread, extents)


def _sizes(e: Emitter, shape: Value) -> tuple[Dim, ...]:
    """The extents that a tensor holds; those that the file states as numbers are these."""
    found = e.sizes(shape, "the shape")
    stated = e.result.shape
    if len(found) != len(stated):
        raise ImportFailed(f"{e.operator} makes {e.result} of {len(found)} extents")
    return tuple(size if extent is None else extent for size, extent in zip(found, stated, strict=True))


def _dynamic_broadcast_in_dim(e: Emitter, x: Value, shape: Value, broadcast_dimensions: Any, **_: Any) -> Value:
    return broadcast(e, x, e.whole(broadcast_dimensions, "the dimensions"), _sizes(e, shape))


def _dynamic_reshape(e: Emitter, x: Value, shape: Value, **_: Any) -> Value:
    return e.reshape(x, _sizes(e, shape))


def _dynamic_iota(e: Emitter, shape: Value, iota_dimension: Any, **_: Any) -> Value:
    return _iota(e, _sizes(e, shape), iota_dimension)


def _dimension_size(e: Emitter, x: Value, dimension: Any, **_: Any) -> Value:
    extent = x.tensor.shape[e.axis(dimension, x.tensor.rank, "the dimension")]
    return e.size(extent, dtypes.i32)
