"""Suppression of overlapping boxes."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import DTypeError, ShapeError

torch = pytest.importorskip("torch")


def kept(apply: Any, boxes: Any, scores: Any, most: int, threshold: float, least: float, **attrs: Any) -> Any:
    limits = (torch.tensor(most), torch.tensor(threshold), torch.tensor(least))
    return apply("suppress_overlaps", torch.tensor(boxes), torch.tensor(scores), *limits, **attrs).tolist()


ROW = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [0.0, 5.0, 1.0, 6.0], [0.0, 5.1, 1.0, 6.1], [0.0, 9.0, 1.0, 10.0]]
SCORES = [0.9, 0.75, 0.6, 0.95, 0.3]


def test_of_overlapping_boxes_the_best_is_kept(apply: Any) -> None:
    assert kept(apply, [ROW], [[SCORES]], 5, 0.5, 0.0) == [[[3, 0, 4, -1, -1]]]


def test_a_looser_threshold_keeps_more(apply: Any) -> None:
    assert kept(apply, [ROW], [[SCORES]], 5, 0.9, 0.0) == [[[3, 0, 1, 2, 4]]]


def test_low_scores_nan_and_boxes_beyond_the_limit_are_left_out(apply: Any) -> None:
    assert kept(apply, [ROW], [[SCORES]], 5, 0.5, 0.3) == [[[3, 0, -1, -1, -1]]]
    assert kept(apply, [ROW], [[SCORES]], 1, 0.5, 0.0) == [[[3, -1, -1, -1, -1]]]
    assert kept(apply, [ROW], [[[float("nan"), *SCORES[1:]]]], 5, 0.5, 0.0) == [[[3, 1, 4, -1, -1]]]


def test_corners_may_be_given_in_either_order(apply: Any) -> None:
    turned = [[*box[2:], *box[:2]] for box in ROW]
    assert kept(apply, [turned], [[SCORES]], 5, 0.5, 0.0) == [[[3, 0, 4, -1, -1]]]


def test_centred_boxes_have_sizes(apply: Any) -> None:
    centred = [[(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0] for x0, y0, x1, y1 in ROW]
    assert kept(apply, [centred], [[SCORES]], 5, 0.5, 0.0, centred=True) == [[[3, 0, 4, -1, -1]]]


def test_every_image_and_class_is_a_problem_of_its_own(apply: Any) -> None:
    found = kept(apply, [ROW, ROW], [[SCORES, SCORES[::-1]]] * 2, 2, 0.5, 0.0)
    assert found == [[[3, 0, -1, -1, -1], [1, 4, -1, -1, -1]]] * 2


def test_other_shapes_and_types_are_refused(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match=r"expected \[images, boxes, 4\]"):
        kept(apply, [[[0.0, 0.0, 1.0]]], [[[1.0]]], 1, 0.5, 0.0)
    with pytest.raises(DTypeError, match="i64 count"):
        limits = (torch.tensor(1, dtype=torch.int32), torch.tensor(0.5), torch.tensor(0.5))
        apply("suppress_overlaps", make((1, 2, 4)), make((1, 1, 2)), *limits)
