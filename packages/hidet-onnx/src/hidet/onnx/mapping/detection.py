"""Object detection: which boxes are kept."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.operators.selection import nonzero


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {("NonMaxSuppression", 10): _non_max_suppression}


def _non_max_suppression(
    e: Emitter,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    threshold: Value | None = None,
    least: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """Rows (image, class, box) of what is kept, i64[count, 3]: by image and class, best score first.

    Without a limit nothing is kept (ONNX operator specification, NonMaxSuppression).
    """
    dtype = scores.tensor.dtype
    limit = e.constant(0, dtypes.i64) if most is None else e.cast(e.reshape(most, ()), dtypes.i64)
    overlap = e.constant(0, dtype) if threshold is None else e.reshape(threshold, ())
    lowest = e.constant(dtype.min, dtype) if least is None else e.reshape(least, ())
    kept = e.emit("suppress_overlaps", boxes, scores, limit, overlap, lowest, centred=bool(center_point_box))
    found = nonzero(e.builder, e.emit("greater_equal", kept, e.constant(0, dtypes.i64)))
    count = found.tensor.shape[0]
    places = e.emit("slice", found, starts=(0, 0), stops=(count, 2), steps=(1, 1))
    chosen = e.emit("gather_nd", kept, found)
    return e.emit("concat", places, e.unsqueeze(chosen, (1,)), axis=1)
