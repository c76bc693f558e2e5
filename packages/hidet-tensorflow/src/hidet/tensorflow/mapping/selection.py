"""Operators whose number of results depends on data: Where, Unique, NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.operators import selection


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "NonMaxSuppression": lambda e, boxes, scores, most, iou_threshold=0.5: _suppressed(
            e, boxes, scores, most, e.constant(iou_threshold, scores.tensor.dtype)
        )[0],
        "NonMaxSuppressionV2": lambda e, *operands: _suppressed(e, *operands)[0],
        "NonMaxSuppressionV3": lambda e, *operands: _suppressed(e, *operands)[0],
        "NonMaxSuppressionV4": _padded,
        "NonMaxSuppressionV5": _with_scores,
        "Unique": lambda e, x, out_idx=dtypes.i32: _unique(e, x, out_idx)[:2],
        "UniqueWithCounts": _unique,
        "Where": lambda e, x: selection.nonzero(e.builder, x),
    }


def _unique(e: Emitter, x: Value, out_idx: DType = dtypes.i32) -> tuple[Value, Value, Value]:
    """Values in the order of their first occurrence, for each element its value's number, how often each occurs."""
    values, _, inverse, counts = selection.unique(e.builder, x, None, is_sorted=False)
    return values, e.cast(inverse, out_idx), e.cast(counts, out_idx)


def _kept(
    e: Emitter, boxes: Value, scores: Value, most: Value, threshold: Value, least: Value | None
) -> tuple[Value, Value]:
    """Positions of the boxes that are kept, best score first, then -1, i64[n]; and how many there are, i64[]."""
    dtype = scores.tensor.dtype
    limit = e.cast(most, dtypes.i64)
    lowest = e.constant(float("-inf"), dtype) if least is None else e.cast(least, dtype)
    found = e.emit(
        "suppress_overlaps",
        e.unsqueeze(boxes, (0,)),
        e.unsqueeze(scores, (0, 1)),
        limit,
        e.cast(threshold, dtype),
        lowest,
    )
    places = e.reshape(found, found.tensor.shape[2:])
    is_kept = e.emit("greater_equal", places, e.constant(0, dtypes.i64))
    return places, e.cast(e.emit("sum", is_kept), dtypes.i64)


def _suppressed(
    e: Emitter, boxes: Value, scores: Value, most: Value, threshold: Value, least: Value | None = None
) -> tuple[Value, Value]:
    places, count = _kept(e, boxes, scores, most, threshold, least)
    number = e.one_size(count, "the number of boxes")
    return e.cast(e.emit("slice", places, starts=(0,), stops=(number,)), dtypes.i32), count


def _padded(
    e: Emitter,
    boxes: Value,
    scores: Value,
    most: Value,
    threshold: Value,
    least: Value,
    pad_to_max_output_size: bool = False,
) -> tuple[Value, Value]:
    if not pad_to_max_output_size:
        made, count = _suppressed(e, boxes, scores, most, threshold, least)
        return made, e.cast(count, dtypes.i32)
    places, count = _kept(e, boxes, scores, most, threshold, least)
    filled = e.emit("maximum", places, e.constant(0, dtypes.i64))
    size = e.one_size(most, "the number of boxes")
    n = places.tensor.shape[0]
    wide = e.emit("pad", filled, pads=((0, size),), mode="constant", value=0) if n != size else filled
    row = e.emit("slice", wide, starts=(0,), stops=(size,))
    return e.cast(row, dtypes.i32), e.cast(count, dtypes.i32)


def _with_scores(
    e: Emitter,
    boxes: Value,
    scores: Value,
    most: Value,
    threshold: Value,
    least: Value,
    sigma: Value,
    pad_to_max_output_size: bool = False,
    **_: Any,
) -> tuple[Value, Value, Value]:
    """Scores that neighbours lower (sigma above 0) are not imported."""
    if e.number(sigma, "soft_nms_sigma") != 0:
        raise UnsupportedOp(f"{e.operator} with soft_nms_sigma above 0")
    places, count = _padded(e, boxes, scores, most, threshold, least, pad_to_max_output_size)
    return places, e.emit("index_select", scores, places, axis=0), count
