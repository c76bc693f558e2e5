"""The rest of neural networks: what only training makes something of."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.random import seed_bits


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Dropout", 1): _dropout_before_7,
        ("Dropout", 7): lambda e, x, ratio: _kept(e, x),
        ("Dropout", 12): _dropout,
    }


def _kept(e: Emitter, x: Value) -> tuple[Value, ...]:
    """The input, and a mask that is true everywhere."""
    if not e.is_read(1):
        return (x,)
    return x, e.emit("full", shape=x.tensor.shape, value=True, dtype=dtypes.boolean)


def _dropout_before_7(e: Emitter, x: Value, ratio: float, is_test: int) -> tuple[Value, ...]:
    """Training unless `is_test`."""
    if is_test:
        return _kept(e, x)
    return _dropout(e, x, e.constant(ratio, dtypes.f32), e.constant(True, dtypes.boolean))


def _dropout(
    e: Emitter, x: Value, ratio: Value | None = None, training_mode: Value | None = None, seed: int | None = None
) -> tuple[Value, ...]:
    """Nothing is dropped outside of training. In training each element is, with probability `ratio` (0.5 by default),
    and the others are divided by 1 - ratio."""
    if training_mode is None or not e.number(training_mode, "training_mode"):
        return _kept(e, x)
    if ratio is not None and e.contents(ratio) is not None and e.number(ratio, "the ratio") == 0:
        return _kept(e, x)
    key, offset, stream = e.random_source(seed_bits(seed))
    wide = dtypes.f32 if x.tensor.dtype.bits < 32 else x.tensor.dtype
    share = e.constant(0.5, wide) if ratio is None else e.cast(ratio, wide)
    drawn = e.emit("rand", key, offset, shape=x.tensor.shape, dtype=wide, stream=stream)
    mask = e.emit("greater_equal", drawn, share)
    grown = e.cast(e.emit("div", e.cast(x, wide), e.emit("sub", e.constant(1.0, wide), share)), x.tensor.dtype)
    return e.emit("where", mask, grown, e.constant(0, x.tensor.dtype)), mask
