"""Random numbers: the same at every call where the model gives a seed, else other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from hidet import dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.value_types import dtype_of


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("RandomUniform", 1): _uniform,
        ("RandomUniformLike", 1): _uniform_like,
        ("RandomNormal", 1): _normal,
        ("RandomNormalLike", 1): _normal_like,
        ("Bernoulli", 15): _bernoulli,
        ("Multinomial", 7): _multinomial,
    }


def seed_bits(seed: float | None) -> int | None:
    """A seed of ONNX, which is a float, as the whole number with its bits; None for none."""
    return None if seed is None else int(numpy.float32(seed).view(numpy.int32))


def drawn(e: Emitter, operator: str, shape: Sequence[Dim], dtype: DType, seed: float | None) -> Value:
    """`rand` or `randn` of a shape."""
    key, offset, stream = e.random_source(seed_bits(seed))
    return e.emit(operator, key, offset, shape=tuple(shape), dtype=dtype, stream=stream)


def _scaled(e: Emitter, x: Value, factor: float, shift: float) -> Value:
    dtype = x.tensor.dtype
    return e.emit("add", e.emit("mul", x, e.constant(factor, dtype)), e.constant(shift, dtype))


def _uniform(
    e: Emitter, *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Value:
    return _scaled(e, drawn(e, "rand", shape, dtype_of(dtype), seed), high - low, low)


def _uniform_like(
    e: Emitter, x: Value, *, low: float, high: float, dtype: int | None = None, seed: float | None = None
) -> Value:
    kind = x.tensor.dtype if dtype is None else dtype_of(dtype)
    return _scaled(e, drawn(e, "rand", x.tensor.shape, kind, seed), high - low, low)


def _normal(
    e: Emitter,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    return _scaled(e, drawn(e, "randn", shape, dtype_of(dtype), seed), scale, mean)


def _normal_like(
    e: Emitter, x: Value, *, mean: float, scale: float, dtype: int | None = None, seed: float | None = None
) -> Value:
    kind = x.tensor.dtype if dtype is None else dtype_of(dtype)
    return _scaled(e, drawn(e, "randn", x.tensor.shape, kind, seed), scale, mean)


def _bernoulli(e: Emitter, x: Value, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """1 with probability x[...]."""
    key, offset, stream = e.random_source(seed_bits(seed))
    return e.emit("bernoulli", x, key, offset, dtype=None if dtype is None else dtype_of(dtype), stream=stream)


def _multinomial(e: Emitter, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Value:
    """Classes drawn by logarithms of their weights x[batch, classes] -> [batch, samples]: where a uniform number falls
    among the running sums of the probabilities."""
    batch, classes = x.tensor.shape
    wide = e.cast(x, dtypes.f64 if x.tensor.dtype == dtypes.f64 else dtypes.f32)
    sums = e.emit("cumsum", e.emit("softmax", wide, axis=1), axis=1)
    places = drawn(e, "rand", (batch, sample_size), wide.tensor.dtype, seed)
    passed = e.emit("searchsorted", sums, places, right=True)
    # Rounding may leave the last sum below 1.
    return e.cast(e.emit("minimum", passed, e.size(classes - 1)), dtype_of(dtype))
