"""Random operators: other numbers at every call, the same ones with a seed of the model or of numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hidet
from hidet.onnx import from_onnx

Make = Callable[..., onnx.ModelProto]


def _noise(make_model: Make, **attributes: Any) -> onnx.ModelProto:
    """Two operators that draw 64 numbers each, added to the input."""
    drawn = [helper.make_node("RandomUniform", [], [name], shape=[64], **attributes) for name in ("a", "b")]
    sums = [helper.make_node("Add", ["x", "a"], ["y"]), helper.make_node("Add", ["x", "b"], ["z"])]
    return make_model([*drawn, *sums], {"x": (np.float32, [64])}, ["y", "z"])


X = np.zeros(64, np.float32)


def test_every_call_draws_other_numbers(make_model: Make) -> None:
    compiled = hidet.compile(_noise(make_model))
    (first, other), (again, _) = compiled(X), compiled(X)
    assert (first != other).mean() > 0.9 and (first != again).mean() > 0.9
    assert first.min() >= 0 and first.max() < 1


def test_a_seed_of_numpy_makes_calls_reproducible(make_model: Make) -> None:
    compiled = hidet.compile(_noise(make_model))
    np.random.seed(3)
    first = [compiled(X)[0] for _ in range(2)]
    np.random.seed(3)
    again = [compiled(X)[0] for _ in range(2)]
    np.testing.assert_array_equal(first, again)


def test_a_seed_of_the_model_gives_the_same_numbers_at_every_call(make_model: Make) -> None:
    compiled = hidet.compile(_noise(make_model, seed=2.0))
    np.testing.assert_array_equal(compiled(X), compiled(X))


def test_a_loop_draws_other_numbers_in_every_iteration(make_model: Make) -> None:
    body = helper.make_graph(
        [
            helper.make_node("RandomNormal", [], ["row"], shape=[16]),
            helper.make_node("Identity", ["keep"], ["kept"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("keep", onnx.TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("kept", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [16]),
        ],
    )
    loop = helper.make_node("Loop", ["count", ""], ["rows"], body=body)
    rows = hidet.compile(make_model([loop], {"count": (np.int64, [])}, ["rows"]))(np.array(5))
    assert rows.shape == (5, 16) and len(np.unique(rows)) > 70


def test_a_saved_model_draws_too(make_model: Make, tmp_path: Path) -> None:
    hidet.compile(from_onnx(_noise(make_model))).save(tmp_path / "noise.hidet")
    loaded = hidet.load(tmp_path / "noise.hidet")
    assert (loaded(X)[0] != loaded(X)[0]).mean() > 0.9


@pytest.mark.parametrize("operator", ["Bernoulli", "RandomNormalLike", "RandomUniformLike"])
def test_operators_in_the_shape_of_their_input_draw_anew(make_model: Make, operator: str) -> None:
    given = {} if operator == "Bernoulli" else {"dtype": 1}
    compiled = hidet.compile(
        make_model([helper.make_node(operator, ["x"], ["y"], **given)], {"x": (np.float32, [64])}, ["y"])
    )
    half = np.full(64, 0.5, np.float32)
    assert (compiled(half) != compiled(half)).any()
