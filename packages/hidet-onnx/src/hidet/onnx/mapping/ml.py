"""Operators of domain ai.onnx.ml on tensors of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("ai.onnx.ml.ArrayFeatureExtractor", 1): _extract_features,
        ("ai.onnx.ml.Binarizer", 1): _binarize,
        ("ai.onnx.ml.LabelEncoder", 2): _encode_labels,
        ("ai.onnx.ml.Scaler", 1): _scale,
        ("ai.onnx.ml.LinearRegressor", 1): _linear_regressor,
    }


def _extract_features(e: Emitter, x: Value, index: Value) -> Value:
    """Elements of the last axis; a result of one axis gets a leading one."""
    chosen = e.emit("index_select", x, e.emit("reshape", index, shape=(-1,)), axis=-1, wraps=False)
    return e.unsqueeze(chosen, (0,)) if x.tensor.rank == 1 else chosen


def _binarize(e: Emitter, x: Value, *, threshold: float = 0.0) -> Value:
    dtype = x.tensor.dtype
    return e.cast(e.emit("greater", x, e.constant(threshold, dtype)), dtype)


# Attributes of LabelEncoder: ending, and the numpy type of keys or values of that kind.
_KINDS = {"int64s": "int64", "floats": "float32", "strings": "object"}


def _column(what: str, attributes: Mapping[str, Any]) -> Any:
    """The keys or values of LabelEncoder as an array."""
    found = [name for name in attributes if name.startswith(f"{what}_") and len(attributes[name])]
    if len(found) != 1:
        raise ImportFailed(f"LabelEncoder has {len(found)} attributes of {what}: expected one")
    name = found[0]
    if name.endswith("tensor"):
        return attributes[name].reshape(-1)
    return numpy.asarray(attributes[name], dtype=_KINDS[name.removeprefix(f"{what}_")])


# What elements get that are no key, where the node does not say.
_DEFAULTS: dict[str, Any] = {"default_int64": -1, "default_float": -0.0, "default_string": "_Unused"}


def _text_or_number(item: Any) -> Any:
    return item.decode() if isinstance(item, bytes) else item


def _encode_labels(e: Emitter, x: Value, **attributes: Any) -> Value:
    """The value of the key that an element equals, or the default. NaN is a key that NaN finds."""
    keys = _column("keys", {k: v for k, v in attributes.items() if k.startswith("keys")})
    values = _column("values", {k: v for k, v in attributes.items() if k.startswith("values")})
    if len(keys) != len(values):
        raise ImportFailed(f"LabelEncoder has {len(keys)} keys and {len(values)} values")
    default = attributes.get("default_tensor")
    if default is None:
        name = {"i": "default_int64", "f": "default_float"}.get(values.dtype.kind, "default_string")
        default = numpy.asarray(attributes.get(name, _DEFAULTS[name]), values.dtype)
    dtype = x.tensor.dtype
    if keys.dtype == object or values.dtype == object:
        return e.emit(
            "lookup",
            x,
            keys=tuple(map(_text_or_number, keys.tolist())),
            values=tuple(map(_text_or_number, values.tolist())),
            default=_text_or_number(default.reshape(-1).tolist()[0]),
            dtype=dtypes.from_numpy(values.dtype),
        )
    # Of equal keys the last counts: sorting is stable, and the first of equals is found.
    keys, values = keys.astype(dtype.numpy())[::-1], values[::-1]
    order = numpy.argsort(keys, kind="stable")
    is_nan = numpy.isnan(keys[order].astype(float))
    plain = order[~is_nan]
    result = e.expand(e.array(default.reshape(()).astype(values.dtype)), x.tensor.shape)
    if len(plain):
        place = e.emit("searchsorted", e.array(keys[plain]), x)
        place = e.emit("minimum", place, e.constant(len(plain) - 1, dtypes.i64))
        found = e.emit("index_select", e.array(keys[plain]), place, axis=0)
        chosen = e.emit("index_select", e.array(values[plain]), place, axis=0)
        result = e.emit("where", e.emit("equal", found, x), chosen, result)
    if is_nan.any():
        value = e.array(values[order[is_nan][0]].reshape(()))
        result = e.emit("where", e.emit("isnan", x), value, result)
    return result


def _scale(e: Emitter, x: Value, *, offset: Any = (), scale: Any = ()) -> Value:
    """(x - offset) * scale, one number or one a feature; f32."""
    shift, factor = (e.array(numpy.asarray(numbers, numpy.float32)) for numbers in (offset, scale))
    return e.emit("mul", e.emit("sub", e.cast(x, dtypes.f32), shift), factor)


def _linear_regressor(
    e: Emitter,
    x: Value,
    *,
    coefficients: Any = (),
    intercepts: Any = (),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Value:
    """x[n, features] @ coefficients[targets, features] transposed + intercepts; f32."""
    if post_transform != "NONE":
        raise UnsupportedOp(f"LinearRegressor with post_transform {post_transform!r}")
    weights = e.array(numpy.asarray(coefficients, numpy.float32).reshape(targets, -1))
    bias = e.array(numpy.asarray(intercepts, numpy.float32)) if len(intercepts) else None
    return e.emit("linear", e.cast(x, dtypes.f32), weights, bias)
