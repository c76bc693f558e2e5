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


def searched(scores: Any, lengths: Any, **options: Any) -> Any:
    labels, sums = tf.compat.v1.nn.ctc_beam_search_decoder(scores, lengths, **options)
    return [(entry.indices, entry.values, entry.dense_shape) for entry in labels], sums


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize(("width", "paths"), [(1, 1), (4, 3), (25, 5)])
def test_a_beam_search_finds_the_labels_that_tensorflow_finds(width: int, paths: int, merges: bool, check) -> None:
    def function(scores: Any, lengths: Any) -> Any:
        return searched(scores, lengths, beam_width=width, top_paths=paths, merge_repeated=merges)

    def make(rng: np.random.Generator) -> list[Any]:
        return [spoken(rng)[0], np.array([24, 7, 12], np.int32)]

    compiled = check(function, make, in_float64=False, strict=False)
    assert compiled.report().nodes.eager == 0


def test_a_prefix_that_was_given_up_is_found_again(check) -> None:
    """Many steps of few classes and few beams: prefixes leave and return while what they grew into is still there."""

    def make(rng: np.random.Generator) -> list[Any]:
        return [1.5 * rng.standard_normal((60, 8, 3)).astype(np.float32), np.full(8, 60, np.int32)]

    def function(scores: Any, lengths: Any) -> Any:
        return searched(scores, lengths, beam_width=6, top_paths=2, merge_repeated=False)

    check(function, make, in_float64=False, strict=False)


def test_an_utterance_of_no_steps_has_the_empty_label(check) -> None:
    def make(rng: np.random.Generator) -> list[Any]:
        return [spoken(rng)[0], np.array([24, 0, 1], np.int32)]

    check(lambda x, n: searched(x, n, beam_width=4), make, in_float64=False, strict=False)


def test_more_paths_than_beams_are_refused_by_name() -> None:
    def function(scores: Any, lengths: Any) -> Any:
        return searched(scores, lengths, beam_width=2, top_paths=3)[1]

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in spoken(np.random.default_rng(0))]
    with pytest.raises(hidet.errors.ImportFailed, match="CTCBeamSearchDecoder: 3 paths of 2 beams"):
        hidet.compile(tf.function(function), specs, options={"strict": True})
