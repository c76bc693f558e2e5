"""Boxes: non-maximum suppression, and the custom operator that ends models of TensorFlow's detection API."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.mapping import table as tensorflow_table
from hidet.tensorflow.mapping.vision import boxes_of_classes
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.flexbuffer import read_numbers
from hidet.tensorflow.tflite.mapping.codes import on_numbers


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "NON_MAX_SUPPRESSION_V4": _suppressed,
        "NON_MAX_SUPPRESSION_V5": _suppressed_with_scores,
        "TFLite_Detection_PostProcess": on_numbers(_detections),
    }


def _suppressed(e: LiteEmitter, boxes: Value, scores: Value, *limits: Value) -> tuple[Value, Value]:
    """As many positions as there may be, those behind the boxes that are kept 0; and how many are kept."""
    places, count = tensorflow_table()["NonMaxSuppressionV4"](e, boxes, scores, *limits, pad_to_max_output_size=True)
    assert isinstance(places, Value) and isinstance(count, Value)
    return places, count


def _suppressed_with_scores(e: LiteEmitter, boxes: Value, scores: Value, *limits: Value) -> tuple[Value, Value, Value]:
    """Scores of those behind the boxes that are kept are 0."""
    *others, sigma = limits
    if e.number(sigma, "soft_nms_sigma") != 0:
        raise UnsupportedOp(f"{e.operator} with soft_nms_sigma above 0")
    places, count = _suppressed(e, boxes, scores, *others)
    steps = e.emit("arange", start=0, stop=places.tensor.shape[0], dtype=dtypes.i32)
    is_kept = e.emit("less", steps, count)
    chosen = e.emit("index_select", scores, places, axis=0)
    return places, e.emit("where", is_kept, chosen, e.constant(0, scores.tensor.dtype)), count


# --- detections ------------------------------------------------------------------------------------------------------


def _detections(
    e: LiteEmitter, encodings: Value, scores: Value, anchors: Value, custom: bytes = b""
) -> tuple[Value, ...]:
    """encodings[1, n, 4] relative to anchors[n, 4], scores[1, n, classes] -> boxes, classes, scores, their number.

    Classes that are scored beyond `num_classes` come first, and are background.
    """
    options = read_numbers(custom)
    needed = ("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold")
    missing = [name for name in (*needed, *_SCALES) if name not in options]
    if missing:
        raise ImportFailed(f"{e.operator} has no option {', '.join(missing)}")
    most, classes = int(options["max_detections"]), int(options["num_classes"])
    boxes = _decoded(e, encodings, anchors, [float(options[name]) for name in _SCALES])
    scored = scores.tensor.shape[2]
    if not isinstance(scored, int) or not 0 < classes <= scored:
        raise ImportFailed(f"{e.operator} of {classes} classes takes {scores.type}")
    first = scored - classes
    scores = e.emit("slice", scores, starts=(0, 0, first), stops=(None, None, None)) if first else scores
    threshold = e.constant(float(options["nms_iou_threshold"]), dtypes.f32)
    least = e.constant(float(options["nms_score_threshold"]), dtypes.f32)
    if options.get("use_regular_nms", False):
        each, total = (e.constant(n, dtypes.i32) for n in (int(options.get("detections_per_class", 100)), most))
        chosen, best, kinds, count = boxes_of_classes(
            e, e.unsqueeze(boxes, (2,)), scores, each, total, threshold, least, clip_boxes=False
        )
    else:
        each_box = int(options.get("max_classes_per_detection", 1))
        chosen, best, kinds, count = _best_classes(e, boxes, scores, most, each_box, threshold, least)
    return chosen, kinds, best, e.cast(count, dtypes.f32)


_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")


def _decoded(e: LiteEmitter, encodings: Value, anchors: Value, scales: list[float]) -> Value:
    """Corners [1, n, 4] (y1, x1, y2, x2) of boxes that are encoded as centres and extents."""
    f32 = dtypes.f32

    def column(x: Value, number: int) -> Value:
        return e.emit("select", x, axis=x.tensor.rank - 1, index=number)

    centres, halves = [], []
    for axis in range(2):
        extent, centre = column(anchors, axis + 2), column(anchors, axis)
        shift = e.emit("div", column(encodings, axis), e.constant(scales[axis], f32))
        centres.append(e.emit("add", e.emit("mul", shift, extent), centre))
        growth = e.emit("exp", e.emit("div", column(encodings, axis + 2), e.constant(scales[axis + 2], f32)))
        halves.append(e.emit("mul", e.emit("mul", growth, extent), e.constant(0.5, f32)))
    pairs = list(zip(centres, halves, strict=True))
    low = [e.emit("sub", centre, half) for centre, half in pairs]
    high = [e.emit("add", centre, half) for centre, half in pairs]
    return e.emit("stack", *low, *high, axis=-1)


def _best_classes(
    e: LiteEmitter, boxes: Value, scores: Value, most: int, each: int, threshold: Value, least: Value
) -> tuple[Value, Value, Value, Value]:
    """Boxes are suppressed by the best score of each, whatever its class; `each` classes of a box are told."""
    i64 = dtypes.i64
    batch, count, classes = scores.tensor.shape
    if not isinstance(count, int) or not isinstance(classes, int):
        raise UnsupportedOp(f"{e.operator} of an open number of boxes or classes, {scores.type}")
    each = min(each, classes)
    highest = e.emit("amax", scores, axes=(2,))
    places = e.emit("suppress_overlaps", boxes, e.unsqueeze(highest, (1,)), e.constant(most, i64), threshold, least)
    places = e.reshape(places, (batch, count))
    taken = min(most, count)
    places = e.emit("slice", places, starts=(0, 0), stops=(None, taken))
    is_kept = e.emit("greater_equal", places, e.constant(0, i64))
    row = e.unsqueeze(e.emit("maximum", places, e.constant(0, i64)), (2,))
    chosen = e.emit("gather_nd", boxes, row, batch=1)
    found, kinds = e.emit_all("topk", (e.emit("gather_nd", scores, row, batch=1),), {"k": each, "axis": -1})
    mask, zero = e.unsqueeze(is_kept, (2,)), e.constant(0.0, dtypes.f32)
    repeated = e.expand(e.unsqueeze(e.emit("where", mask, chosen, zero), (2,)), (batch, taken, each, 4))
    missing = ((0, 0), (0, (most - taken) * each))

    def filled(x: Value, *rest: int) -> Value:
        flat = e.reshape(x, (batch, taken * each, *rest))
        pads = (*missing, *((0, 0) for _ in rest))
        return e.emit("pad", flat, pads=pads, mode="constant", value=0) if most > taken else flat

    number = e.emit("sum", e.cast(is_kept, i64), axes=(1,))
    named = e.emit("where", mask, e.cast(kinds, dtypes.f32), zero)
    return filled(repeated, 4), filled(e.emit("where", mask, found, zero)), filled(named), number
