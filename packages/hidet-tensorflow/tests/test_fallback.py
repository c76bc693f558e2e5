"""Nodes that TensorFlow runs, because hidet has no other way to compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
from hidet.errors import ArtifactError, FallbackWarning, UnsupportedOp

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

OPEN = tf.TensorSpec((None, 4, 4), tf.float32)


def inverted(x: Any) -> Any:
    return tf.linalg.inv(x * 2) + tf.reduce_sum(x)


def matrices() -> Any:
    return (np.random.default_rng(0).random((3, 4, 4)) + 2 * np.eye(4)).astype(np.float32)


def test_an_unknown_operator_runs_in_tensorflow_between_compiled_ones() -> None:
    with pytest.warns(FallbackWarning, match="1 node of the model run in TensorFlow"):
        compiled = hidet.compile(tf.function(inverted), OPEN)
    nodes = compiled.report().nodes
    assert nodes.eager == 1 and ("eager", "tensorflow:MatrixInverse") in nodes.names
    x = matrices()
    np.testing.assert_allclose(compiled(x), inverted(x), rtol=1e-5)
    made = compiled(tf.constant(x))
    assert isinstance(made, tf.Tensor) and np.allclose(made, inverted(x), rtol=1e-5)
    with pytest.raises(ArtifactError, match="MatrixInverse"):
        compiled.save("model.hidet")


def test_strict_compilation_refuses_what_would_run_in_tensorflow() -> None:
    with pytest.raises(UnsupportedOp, match="MatrixInverse"):
        hidet.compile(tf.function(inverted), OPEN, options={"strict": True})


def test_sizes_that_only_tensorflow_tells_are_read_from_its_results() -> None:
    def function(x: Any) -> Any:
        differing, places = tf.raw_ops.ListDiff(x=x, y=tf.constant([2, 3]))
        return differing * 2, tf.gather(x, places)

    with pytest.warns(FallbackWarning):
        compiled = hidet.compile(tf.function(function), tf.TensorSpec((None,), tf.int32))
    for given in ([1, 2, 3, 4], [2, 5]):
        x = np.array(given, np.int32)
        assert [part.tolist() for part in compiled(x)] == [part.numpy().tolist() for part in function(tf.constant(x))]


def test_strings_go_to_tensorflow_and_back() -> None:
    function = tf.function(lambda x: tf.strings.upper(tf.strings.strip(x)) == "NO")
    with pytest.warns(FallbackWarning, match="2 nodes"):
        compiled = hidet.compile(function, tf.TensorSpec((None,), tf.string))
    assert compiled(np.array([" no", "yes "], dtype=object)).tolist() == [True, False]


def test_a_refused_case_of_a_known_operator_runs_in_tensorflow() -> None:
    def function(boxes: Any, scores: Any) -> Any:
        return tf.raw_ops.NonMaxSuppressionV5(
            boxes=boxes,
            scores=scores,
            max_output_size=3,
            iou_threshold=0.5,
            score_threshold=0.0,
            soft_nms_sigma=0.5,
            pad_to_max_output_size=True,
        )

    with pytest.warns(FallbackWarning, match="soft_nms_sigma above 0"):
        compiled = hidet.compile(tf.function(function), [tf.TensorSpec((None, 4)), tf.TensorSpec((None,))])
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]], np.float32)
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    for ours, theirs in zip(compiled(boxes, scores), function(boxes, scores), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_an_unknown_operator_in_a_loop_runs_there() -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 20, lambda n, x: (n + 1, tf.linalg.inv(x)), (0, x))[1]

    with pytest.warns(FallbackWarning):
        compiled = hidet.compile(tf.function(function), OPEN)
    x = matrices()
    np.testing.assert_allclose(compiled(x), x, rtol=1e-4)
