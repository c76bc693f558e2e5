"""Operators whose number of results depends on data: NonZero, Compress, Unique."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.operators import selection


def handlers() -> Mapping[Key, Handler]:
    """The rows of this family."""
    return {
        ("NonZero", 9): _nonzero,
        ("Compress", 9): _compress,
        ("Unique", 11): _unique,
    }


def _nonzero(e: Emitter, x: Value) -> Value:
    if x.tensor.rank == 0:
        # A number counts as a tensor of one element.
        x = e.reshape(x, (1,))
    places = selection.nonzero(e.builder, x)
    return e.transpose(places, (1, 0))


def _compress(e: Emitter, x: Value, condition: Value, axis: int | None = None) -> Value:
    kept: Value = selection.compress(e.builder, x, e.cast(condition, dtypes.boolean), axis)
    return kept


def _unique(e: Emitter, x: Value, axis: int | None = None, sorted: int = 1) -> tuple[Value, Value, Value, Value]:
    values, first, inverse, counts = selection.unique(e.builder, x, axis, is_sorted=bool(sorted))
    return values, first, inverse, counts
