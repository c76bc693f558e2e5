"""The search for labels of speech as an operator: the program against its meaning in numpy. Needs no TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import DTypeError, ShapeError
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]


def graph(shape: tuple[int, int, int], dtype: dtypes.DType = dtypes.f32, **attrs: int) -> Graph:
    builder = GraphBuilder(make_context("cpu").registry.operators, name="search")
    scores = builder.input(TensorType(dtype, shape), "scores")
    lengths = builder.input(TensorType(dtypes.i64, shape[1:2]), "lengths")
    return builder.build(builder.emit_all("tensorflow.ctc_beam_search", (scores, lengths), attrs))


def compared(scores: Array, lengths: list[int], **attrs: int) -> tuple[Array, Array]:
    """Labels and logarithms that the program gives, after they were compared with the reference."""
    time, batch, classes = scores.shape
    searched = graph((time, batch, classes), dtypes.from_numpy(scores.dtype), **attrs)
    given = (scores, np.array(lengths, np.int64))
    labels, probable = compile_graph(searched, make_context("cpu"))(*given)
    expected = interpret(searched, list(given))
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(probable, expected[1], rtol=1e-5)
    return labels, probable


def log_softmax(scores: Array) -> Array:
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("width", "paths", "classes"), [(1, 1, 4), (3, 3, 3), (30, 4, 6)])
def test_the_program_finds_what_its_meaning_says(width: int, paths: int, classes: int, dtype: str) -> None:
    scores = log_softmax(2 * np.random.default_rng(0).standard_normal((25, 4, classes))).astype(dtype)
    compared(scores, [25, 25, 25, 25], width=width, paths=paths)


def test_steps_beyond_an_utterance_do_not_count_and_lengths_end_at_the_last_step() -> None:
    scores = log_softmax(np.random.default_rng(0).standard_normal((6, 4, 4))).astype(np.float32)
    labels, probable = compared(scores, [0, -5, 2, 99], width=4, paths=2)
    assert labels[:2].max() == -1 and probable[:2].tolist() == [[0.0, -math.inf]] * 2
    assert labels[2, :, 2:].max() == -1


def test_certain_steps_have_one_path() -> None:
    """Labels that are impossible are never kept, not even while there is room."""
    scores = np.full((5, 1, 4), -math.inf, np.float32)
    scores[np.arange(5), 0, [2, 2, 3, 2, 1]] = 0.0  # class 3 is the blank
    labels, probable = compared(scores, [5], width=3, paths=2)
    assert labels.tolist() == [[[2, 2, 1, -1, -1], [-1] * 5]]
    assert probable.tolist() == [[0.0, -math.inf]]


def test_scores_that_are_no_numbers_end_in_no_labels() -> None:
    labels, probable = compared(np.full((4, 1, 3), math.nan, np.float32), [4], width=3, paths=1)
    assert labels.max() == -1 and probable.tolist() == [[-math.inf]]


def test_a_blank_alone_is_never_a_label() -> None:
    labels, _ = compared(np.zeros((3, 2, 1), np.float32), [3, 1], width=2, paths=2)
    assert labels.max() == -1


def test_it_is_a_routine_and_saved_with_the_model(tmp_path: Any) -> None:
    compiled = compile_graph(graph((6, 2, 4), width=4, paths=2), make_context("cpu"))
    assert compiled.report().nodes.names == (("routine", "tensorflow.ctc_beam_search"),)
    compiled.save(tmp_path / "search.hidet")
    scores = log_softmax(np.random.default_rng(0).standard_normal((6, 2, 4))).astype(np.float32)
    given = (scores, np.array([6, 6], np.int64))
    with hidet.plugins.without("tensorflow"):
        loaded = hidet.load(tmp_path / "search.hidet")
        assert loaded(*given)[0].tolist() == compiled(*given)[0].tolist()


def test_other_types_shapes_and_counts_are_refused() -> None:
    with pytest.raises(DTypeError, match="f32 or f64 scores"):
        graph((6, 2, 4), dtypes.f16, width=4, paths=2)
    with pytest.raises(ShapeError, match="5 paths of 4 beams"):
        graph((6, 2, 4), width=4, paths=5)
    builder = GraphBuilder(make_context("cpu").registry.operators, name="search")
    with pytest.raises(ShapeError, match=r"scores\[time, batch, classes\]"):
        builder.emit_all(
            "tensorflow.ctc_beam_search",
            (builder.input(TensorType(dtypes.f32, (6, 4))), builder.input(TensorType(dtypes.i64, (4,)))),
            {"width": 4, "paths": 2},
        )
