"""The rest of neural networks: operators that only training makes something of."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.errors import UnsupportedOp
from hidet.graph import Value
from hidet.onnx.emitter import Emitter
from hidet.onnx.mapping import Handler, Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Dropout", 7): lambda e, x, ratio: _kept(e, x),
        ("Dropout", 12): _dropout,
    }


def _kept(e: Emitter, x: Value) -> tuple[Value, ...]:
    """The input, and a mask that is true everywhere."""
    if not e.node.is_wanted(1):
        return (x,)
    return x, e.emit("full", shape=x.tensor.shape, value=True, dtype=dtypes.boolean)


def _dropout(
    e: Emitter, x: Value, ratio: Value | None = None, training_mode: Value | None = None, seed: int | None = None
) -> tuple[Value, ...]:
    """Nothing is dropped outside of training, or with a ratio of 0."""
    if training_mode is None or not e.number(training_mode, "training_mode"):
        return _kept(e, x)
    if ratio is not None and e.number(ratio, "the ratio") == 0:
        return _kept(e, x)
    raise UnsupportedOp("Dropout in training mode", hint="export the model for inference")
