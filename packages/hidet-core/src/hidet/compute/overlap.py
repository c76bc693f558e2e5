"""Greedy suppression of overlapping boxes on numpy arrays: the reference of the routine `suppress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def suppress(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """For every image and class the boxes kept, best score first, then -1; i64 of the shape of the scores."""
    boxes, scores, most, threshold, least = arrays
    corners = _corners(boxes, attributes["centred"])
    kept = np.full(scores.shape, -1, np.int64)
    for image, kind in np.ndindex(scores.shape[:2]):
        row = scores[image, kind]
        found: list[int] = []
        for candidate in np.argsort(-row, kind="stable"):
            if len(found) >= int(most) or not row[candidate] > least:
                break
            box = corners[image, candidate]
            if not any(_overlap(box, corners[image, other]) > threshold for other in found):
                found.append(int(candidate))
        kept[image, kind, : len(found)] = found
    return [kept]


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as their lowest and highest coordinates."""
    if centred:
        return np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], axis=-1)
    low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    return np.concatenate([low, high], axis=-1)


def _overlap(a: Array, b: Array) -> Any:
    """Intersection over union; 0 for boxes that do not meet."""
    shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return shared / union if shared > 0 else shared
