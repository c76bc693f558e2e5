"""Shapes and positions that data decide: normalised while the model runs, then read back as sizes.

ONNX and TensorFlow write -1 for what is left and negative numbers for places counted from the end, ONNX 0 for the
input's extent. What
such a number means is computed from the tensor that holds it, so that what is read is a size.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed
from hidet.frontend.emitter import Emitter
from hidet.graph import Value

_I64 = dtypes.i64


def measured_shape(e: Emitter, x: Value, shape: Value, keeps_zero: bool) -> tuple[Dim, ...]:
    """The extents that Reshape gives `x`, from elements that are known only when the model runs."""
    count = shape.tensor.shape[0] if shape.tensor.rank == 1 else None
    if not isinstance(count, int):
        raise e.value_needed(shape, "the shape")
    wanted = e.cast(shape, _I64)
    if not keeps_zero:
        own = [*x.tensor.shape[:count], *[0] * max(0, count - x.tensor.rank)]
        is_zero = e.emit("equal", wanted, e.constant(0, _I64))
        wanted = e.emit("where", is_zero, e.size_vector(own), wanted)
    is_rest = e.emit("equal", wanted, e.constant(-1, _I64))
    stated = e.emit("where", is_rest, e.constant(1, _I64), wanted)
    product = e.emit("maximum", e.emit("prod", stated, axes=(0,)), e.constant(1, _I64))
    rest = e.emit("trunc_divide", e.size(dims.product(x.tensor.shape)), product)
    return e.sizes(e.emit("where", is_rest, rest, wanted), "the shape")


def measured_bounds(
    e: Emitter, x: Value, starts: Value, ends: Value, axes: Sequence[int]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """First and last positions of a slice with steps above 0 along `axes`, counted from the front and on the axis."""
    extents = e.size_vector([x.tensor.shape[axis] for axis in axes])
    found = []
    for value, what in ((starts, "the starts"), (ends, "the ends")):
        place = e.cast(value, _I64)
        is_negative = e.emit("less", place, e.constant(0, _I64))
        place = e.emit("where", is_negative, e.emit("add", place, extents), place)
        place = e.emit("minimum", e.emit("maximum", place, e.constant(0, _I64)), extents)
        found.append(e.sizes(place, what))
    return found[0], found[1]


def measured_range(e: Emitter, start: Value, limit: Value, delta: Value, dtype: DType) -> Value:
    """start, start + delta, … before limit: max(0, ceil((limit - start) / delta)) numbers."""
    if any(value.tensor.rank > 1 or value.tensor.shape not in ((), (1,)) for value in (start, limit, delta)):
        raise ImportFailed("Range: start, limit and delta are one number each")
    start, limit, delta = (e.reshape(value, ()) for value in (start, limit, delta))
    if dtype.is_float:
        wide = dtypes.f64
        first, step = e.cast(start, wide), e.cast(delta, wide)
        count = e.emit("ceil", e.emit("div", e.emit("sub", e.cast(limit, wide), first), step))
    else:
        wide = _I64
        first, step = e.cast(start, wide), e.cast(delta, wide)
        distance = e.emit("sub", first, e.cast(limit, wide))
        count = e.emit("neg", e.emit("floor_divide", distance, step))
    whole = e.emit("maximum", e.cast(count, _I64), e.constant(0, _I64))
    (length,) = e.sizes(whole, "the number of elements")
    steps = e.emit("arange", start=0, stop=length, dtype=wide)
    return e.cast(e.emit("add", e.emit("mul", steps, step), first), dtype)
