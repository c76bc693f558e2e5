"""Labels of speech from what a network says of each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")


def spoken(rng: np.random.Generator) -> list[Any]:
    """Scores of 5 classes in 12 steps of 3 utterances, and how long these are."""
    scores = rng.standard_normal((12, 3, 5)).astype(np.float32)
    # The same class in steps that follow each other, which count once.
    return [np.repeat(scores, 2, axis=0), np.array([24, 7, 0], np.int32)]


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("blank", [None, 1])
def test_the_best_label_of_each_step_is_taken_without_blanks(merges: bool, blank: int | None, check) -> None:
    def function(scores: Any, lengths: Any) -> Any:
        (labels,), sums = tf.nn.ctc_greedy_decoder(scores, lengths, merge_repeated=merges, blank_index=blank)
        return labels.indices, labels.values, labels.dense_shape, sums

    compiled = check(function, spoken, in_float64=False, strict=False)
    assert compiled.report().nodes.eager == 0


def test_labels_are_made_dense(check) -> None:
    def function(scores: Any, lengths: Any) -> Any:
        (labels,), _ = tf.nn.ctc_greedy_decoder(scores, lengths)
        return tf.sparse.to_dense(labels, default_value=-1)

    check(function, spoken, in_float64=False, strict=False)


def test_a_beam_search_runs_in_tensorflow_and_is_named() -> None:
    def function(scores: Any, lengths: Any) -> Any:
        (labels,), _ = tf.nn.ctc_beam_search_decoder(scores, lengths, beam_width=8)
        return labels.values

    arrays = spoken(np.random.default_rng(0))
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    assert [entry.operator for entry in hidet.tensorflow.check(tf.function(function), specs)] == [
        "CTCBeamSearchDecoder"
    ]
    with pytest.warns(hidet.errors.FallbackWarning, match="CTCBeamSearchDecoder"):
        compiled = hidet.compile(tf.function(function), specs)
    assert compiled(*arrays).tolist() == function(*map(tf.constant, arrays)).numpy().tolist()
