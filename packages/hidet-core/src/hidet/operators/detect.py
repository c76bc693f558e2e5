"""Operators of object detection whose results depend on how boxes lie to each other."""

from __future__ import annotations

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, Routine, single
from hidet.compute.routines import SUPPRESS
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.operators.rules import require_dtype, require_rank, require_same_dtype, same_extent, shape_text


def _suppress(
    boxes: Operand, scores: Operand, most: Operand, threshold: Operand, least: Operand, *, centred: bool
) -> Definition:
    name = "suppress_overlaps"
    require_dtype(name, boxes, "float")
    require_same_dtype(name, (boxes, scores, threshold, least))
    for operand, rank in ((boxes, 3), (scores, 3), (most, 0), (threshold, 0), (least, 0)):
        require_rank(name, operand, at_least=rank, at_most=rank)
    if most.dtype != dtypes.i64:
        raise DTypeError(f"operator {name} takes an i64 count of boxes, got {most.dtype}")
    if boxes.shape[2] != 4:
        raise ShapeError(f"operator {name}: boxes of shape {shape_text(boxes.shape)}, expected [images, boxes, 4]")
    same_extent(boxes.shape[0], scores.shape[0], f"operator {name}: images of boxes against those of scores")
    same_extent(boxes.shape[1], scores.shape[2], f"operator {name}: boxes against scores")
    operands = (boxes, scores, most, threshold, least)
    kept = Operand("kept", dtypes.i64, scores.shape)
    return single(operands, Routine(SUPPRESS, operands, (kept,), (("centred", centred),)))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="suppress_overlaps",
        inputs=("boxes", "scores", "most", "threshold", "least"),
        attributes=(Attribute("centred", False, "boxes are (x, y, width, height), else two opposite corners"),),
        kind="routine",
        define=_suppress,
        doc="For scores[image, class, box] positions of the boxes kept, i64, best score first, then -1: at most `most` "
        "whose score is above `least` and that overlap no better kept box by more than `threshold` (intersection over "
        "union). boxes[image, box, 4]. The greedy part of ONNX NonMaxSuppression and torchvision nms.",
    ),
)
