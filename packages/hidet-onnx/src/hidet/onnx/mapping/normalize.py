"""Softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet import dims, dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.graph.types import same_shape
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.shape import normal_axis
from hidet.onnx.value_types import dtype_of


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    rows: dict[Key, Handler] = {}
    for name, function in (("Softmax", _soft("softmax")), ("LogSoftmax", _soft("log_softmax")), ("Hardmax", _hardmax)):
        rows[name, 1] = _over_trailing_axes(function)
        rows[name, 13] = _over_axis(function)
    return {
        **rows,
        ("BatchNormalization", 1): _batch_norm_before_7,
        ("BatchNormalization", 7): _batch_norm_before_14,
        ("BatchNormalization", 14): _batch_norm,
        ("InstanceNormalization", 1): lambda e, x, scale, bias, epsilon: e.emit(
            "instance_norm", x, scale, bias, eps=epsilon
        ),
        ("LayerNormalization", 17): _layer_norm,
        ("GroupNormalization", 18): _group_norm_by_group,
        ("GroupNormalization", 21): _group_norm,
        ("RMSNormalization", 23): _rms_norm,
        ("LpNormalization", 1): _lp_norm,
        ("LRN", 1): _local_response,
    }


AxisFunction = Callable[[Emitter, Value, int], Value]


def _soft(core: str) -> AxisFunction:
    return lambda e, x, axis: e.emit(core, x, axis=axis)


def _hardmax(e: Emitter, x: Value, axis: int) -> Value:
    """1 at the first of the largest elements along an axis, else 0."""
    best = e.emit("argmax", x, axes=(axis,), keepdim=True)
    extent = x.tensor.shape[axis]
    positions = e.emit("arange", start=0, stop=extent, dtype=dtypes.i64)
    row = e.reshape(positions, tuple(extent if place == axis else 1 for place in range(x.tensor.rank)))
    return e.cast(e.emit("equal", row, best), x.tensor.dtype)


def _over_axis(function: AxisFunction) -> Handler:
    return lambda e, x, axis: function(e, x, normal_axis(e, axis, x.tensor.rank))


def _over_trailing_axes(function: AxisFunction) -> Handler:
    """Before version 13: over all axes from `axis` on together."""

    def handler(e: Emitter, x: Value, axis: int) -> Value:
        place = normal_axis(e, axis, x.tensor.rank)
        shape = x.tensor.shape
        if place == x.tensor.rank - 1:
            return function(e, x, place)
        flat = e.reshape(x, (*shape[:place], dims.product(shape[place:])))
        return e.reshape(function(e, flat, place), shape)

    return handler


def _batch_norm_before_7(
    e: Emitter,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    is_test: int = 0,
    **attributes: Any,
) -> Value:
    """Training unless `is_test`."""
    if not is_test:
        raise UnsupportedOp("BatchNormalization before version 7 in training mode (is_test is 0)")
    return _batch_norm_before_14(e, x, scale, bias, mean, variance, **attributes)


def _batch_norm_before_14(
    e: Emitter,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    epsilon: float,
    momentum: float,
    spatial: int = 1,
) -> Value:
    """Training is what further outputs ask for."""
    if any(e.facts.read[1:]):
        raise UnsupportedOp("BatchNormalization before version 14 with outputs for training")
    if not spatial:
        raise UnsupportedOp("BatchNormalization with spatial 0, which normalises every element on its own")
    return e.emit("batch_norm", x, mean, variance, scale, bias, eps=epsilon)


def _batch_norm(
    e: Emitter,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> tuple[Value, ...]:
    """In training mode, by the statistics of the batch; the running ones move towards them by 1 - momentum."""
    if not training_mode:
        return (e.emit("batch_norm", x, mean, variance, scale, bias, eps=epsilon),)
    axes = (0, *range(2, x.tensor.rank))
    centre, rest, own_variance, _ = e.emit_all("moments", (x,), {"axes": axes, "keepdim": False})
    factor = e.emit("batch_norm_scale", own_variance, scale, eps=epsilon)
    # What the rounded mean lacks.
    shift = e.emit("batch_norm_shift", rest, factor, None, bias, dtype=factor.tensor.dtype)

    def moved(old: Value, new: Value) -> Value:
        dtype = old.tensor.dtype
        kept = e.emit("mul", old, e.constant(momentum, dtype))
        return e.emit("add", kept, e.emit("mul", e.cast(new, dtype), e.constant(1 - momentum, dtype)))

    result = e.emit("apply_batch_norm", x, factor, shift, centre)
    return result, moved(mean, e.emit("add", centre, rest)), moved(variance, own_variance)


def _stash(x: Value, stash_type: int) -> DType:
    """The type in which statistics are formed; core forms those of 16-bit floats in f32 anyway."""
    stash = dtype_of(stash_type)
    return stash if stash.is_float and stash.bits > max(x.tensor.dtype.bits, 32) else x.tensor.dtype


def _layer_norm(
    e: Emitter,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    place = normal_axis(e, axis, x.tensor.rank)
    rank = x.tensor.rank - place
    last = x.tensor.shape[place:]
    stash = _stash(x, stash_type)
    wide = e.cast(x, stash)
    attrs = {"rank": rank, "eps": epsilon}
    fits = stash == x.tensor.dtype and all(v is None or same_shape(v.tensor.shape, last) for v in (scale, bias))
    inputs = (wide, scale, bias) if fits else (wide, None, None)
    statistics: tuple[Value, ...] = ()
    if any(e.facts.read[1:]):
        value, *rest = e.emit_all("layer_norm_with_statistics", inputs, attrs)
        shape = (*x.tensor.shape[:place], *(1 for _ in range(rank)))
        statistics = tuple(e.cast(e.reshape(part, shape), dtype_of(stash_type)) for part in rest)
    else:
        value = e.emit("layer_norm", *inputs, **attrs)
    if not fits:
        value = e.emit("mul", e.cast(value, x.tensor.dtype), scale)
        value = value if bias is None else e.emit("add", value, bias)
    return value, *statistics


def _group_norm(
    e: Emitter, x: Value, scale: Value, bias: Value, epsilon: float, num_groups: int, stash_type: int = 1
) -> Value:
    """Scale and bias for each channel."""
    if dtype_of(stash_type).bits > max(x.tensor.dtype.bits, 32):
        wide = dtype_of(stash_type)
        parts = [e.cast(value, wide) for value in (x, scale, bias)]
        return e.cast(e.emit("group_norm", *parts, groups=num_groups, eps=epsilon), x.tensor.dtype)
    return e.emit("group_norm", x, scale, bias, groups=num_groups, eps=epsilon)


def _group_norm_by_group(e: Emitter, x: Value, scale: Value, bias: Value, epsilon: float, num_groups: int) -> Value:
    """Version 18: scale and bias for each group."""
    channels = x.tensor.shape[1]
    if not isinstance(channels, int) or channels % num_groups:
        raise ImportFailed(f"GroupNormalization: {channels} channels do not divide into {num_groups} groups")
    spread = [e.emit("repeat_interleave", part, repeats=channels // num_groups, axis=0) for part in (scale, bias)]
    return e.emit("group_norm", x, *spread, groups=num_groups, eps=epsilon)


def _rms_norm(e: Emitter, x: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Value:
    place = normal_axis(e, axis, x.tensor.rank)
    stash = _stash(x, stash_type)
    attrs = {"rank": x.tensor.rank - place, "eps": epsilon}
    if stash == x.tensor.dtype and same_shape(scale.tensor.shape, x.tensor.shape[place:]):
        return e.emit("rms_norm", x, scale, **attrs)
    return e.emit("mul", e.cast(e.emit("rms_norm", e.cast(x, stash), None, **attrs), scale.tensor.dtype), scale)


def _lp_norm(e: Emitter, x: Value, axis: int, p: int) -> Value:
    """x / its p-norm along an axis, 0 where the norm is."""
    if p not in (1, 2):
        raise ImportFailed(f"LpNormalization: p is {p}, expected 1 or 2")
    dtype = x.tensor.dtype
    length = e.emit("norm", x, p=p, axes=(normal_axis(e, axis, x.tensor.rank),), keepdim=True)
    is_zero = e.emit("equal", length, e.constant(0, dtype))
    return e.emit("div", x, e.emit("where", is_zero, e.constant(1, dtype), length))


def _local_response(e: Emitter, x: Value, size: int, alpha: float, beta: float, bias: float) -> Value:
    """x / (bias + alpha * mean of squares over `size` neighbouring channels) ** beta (Krizhevsky et al., 2012)."""
    dtype = x.tensor.dtype
    n, c, *space = x.tensor.shape
    if size < 1:
        raise ImportFailed(f"LRN: size is {size}, expected 1 or more")
    squares = e.reshape(e.emit("square", x), (n, c, dims.product(space)))
    before = (size - 1) // 2
    mean = e.emit(
        "avg_pool",
        squares,
        kernel=(size, 1),
        stride=(1, 1),
        padding=((before, size - 1 - before), (0, 0)),
        count_include_pad=True,
    )
    scaled = e.emit("add", e.emit("mul", mean, e.constant(alpha, dtype)), e.constant(bias, dtype))
    divisor = e.emit("pow", e.reshape(scaled, x.tensor.shape), e.constant(beta, dtype))
    return e.emit("div", x, divisor)
