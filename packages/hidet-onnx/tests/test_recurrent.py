"""Recurrent layers against loops in numpy, for short sequences (written out) and long ones (a loop)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from hidet.errors import ImportFailed, UnsupportedOp

Make = Callable[..., onnx.ModelProto]
Run = Callable[..., Any]
F32 = np.float32
BATCH, WIDTH, HIDDEN = 3, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(x: Any, state: Any, w: Any, r: Any, b: Any, p: Any) -> Any:
    h, c = state
    i, o, f, g = np.split(x @ w.T + h @ r.T + b[:20] + b[20:], 4, axis=1)
    c_new = sigmoid(f + p[10:] * c) * c + sigmoid(i + p[:5] * c) * np.tanh(g)
    return sigmoid(o + p[5:10] * c_new) * np.tanh(c_new), c_new


def gru(before_reset: bool) -> Any:
    def step(x: Any, state: Any, w: Any, r: Any, b: Any, p: Any) -> Any:
        (h,) = state
        own, again = np.split(x @ w.T + b[:15], 3, 1), np.split(h @ r.T + b[15:], 3, 1)
        z, reset = sigmoid(own[0] + again[0]), sigmoid(own[1] + again[1])
        inner = reset * again[2] if before_reset else (reset * h) @ r[10:].T + b[25:]
        return ((1 - z) * np.tanh(own[2] + inner) + z * h,)

    return step


def rnn(x: Any, state: Any, w: Any, r: Any, b: Any, p: Any) -> Any:
    return (np.tanh(x @ w.T + state[0] @ r.T + b[:5] + b[5:]),)


def expected(step: Any, x: Any, arrays: Any, lengths: Any, directions: int, is_reverse: bool) -> Any:
    """Y and the last states of every direction."""
    outputs, finals = [], []
    for d in range(directions):
        state = tuple(s[d].astype(np.float64) for s in arrays["states"])
        y = np.zeros((len(x), BATCH, HIDDEN))
        for t in range(len(x))[:: -1 if is_reverse or d == 1 else 1]:
            new = step(x[t], state, *(arrays[key][d] for key in "WRBP"))
            is_on = (t < lengths)[:, None]
            state = tuple(np.where(is_on, a, b) for a, b in zip(new, state, strict=True))
            y[t] = np.where(is_on, new[0], 0)
        outputs.append(y)
        finals.append(state)
    return np.stack(outputs, 1), [np.stack(states) for states in zip(*finals, strict=True)]


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "LSTM": ("LSTM", lstm, {}),
    "reverse LSTM": ("LSTM", lstm, {"direction": "reverse"}),
    "bidirectional LSTM": ("LSTM", lstm, {"direction": "bidirectional"}),
    "GRU": ("GRU", gru(False), {}),
    "GRU that resets late": ("GRU", gru(True), {"linear_before_reset": 1, "direction": "bidirectional"}),
    "RNN": ("RNN", rnn, {"direction": "reverse"}),
}


@pytest.mark.parametrize("steps", (3, 12))
@pytest.mark.parametrize("is_batch_first", (False, True))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.thorough(every=6)
def test_a_layer_computes_its_equations(
    case: str, is_batch_first: bool, steps: int, make_model: Make, run: Run
) -> None:
    operator, step, attributes = CASES[case]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    generator, gates = np.random.default_rng(0), GATES[operator]
    count = 2 if operator == "LSTM" else 1
    arrays: dict[str, Any] = {
        "W": generator.standard_normal((directions, gates * HIDDEN, WIDTH)).astype(F32) / 2,
        "R": generator.standard_normal((directions, gates * HIDDEN, HIDDEN)).astype(F32) / 2,
        "B": generator.standard_normal((directions, 2 * gates * HIDDEN)).astype(F32) / 2,
        "P": generator.standard_normal((directions, 3 * HIDDEN)).astype(F32) / 2,
        "states": [generator.standard_normal((directions, BATCH, HIDDEN)).astype(F32) for _ in range(count)],
    }
    x = generator.standard_normal((steps, BATCH, WIDTH)).astype(F32)
    lengths = np.array([steps, 1, steps - 1], np.int32)
    y, finals = expected(step, x, arrays, lengths, directions, attributes.get("direction") == "reverse")

    def laid_out(state: Any) -> Any:
        return state.transpose(1, 0, 2) if is_batch_first else state

    given = {"x": laid_out(x), "lengths": lengths, **{f"s{n}": laid_out(s) for n, s in enumerate(arrays["states"])}}
    names = ["x", "W", "R", "B", "lengths", *(["s0", "s1", "P"] if count == 2 else ["s0"])]
    results = ["y", *(f"last{n}" for n in range(count))]
    node = helper.make_node(operator, names, results, hidden_size=HIDDEN, layout=int(is_batch_first), **attributes)
    declared = {name: (array.dtype, array.shape) for name, array in given.items()}
    weights = {name: arrays[name] for name in names if name in "WRBP"}
    got = run(make_model([node], declared, results, weights), **given)
    np.testing.assert_allclose(got[0], y.transpose(2, 0, 1, 3) if is_batch_first else y, rtol=1e-4, atol=1e-5)
    for ours, final in zip(got[1:], finals, strict=True):
        np.testing.assert_allclose(ours, laid_out(final), rtol=1e-4, atol=1e-5)


def test_one_import_runs_sequences_of_any_length(make_model: Make, run: Run) -> None:
    generator = np.random.default_rng(0)
    weights = {"W": generator.random((1, 5, 4), F32), "R": generator.random((1, 5, 5), F32) / 4}
    model = make_model(
        [helper.make_node("RNN", ["x", "W", "R"], ["y", "last"], hidden_size=5)],
        {"x": (F32, ["t", 1, 4])},
        ["y"],
        weights,
    )
    for steps in (1, 7):
        x = generator.random((steps, 1, 4), F32)
        h, outputs = np.zeros((1, 5)), []
        for now in x:
            h = np.tanh(now @ weights["W"][0].T + h @ weights["R"][0].T)
            outputs.append(h)
        np.testing.assert_allclose(run(model, x=x)[:, 0], np.stack(outputs), rtol=1e-4, atol=1e-5)


ACTIVATIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "Affine": ({"activation_alpha": [0.5], "activation_beta": [0.25]}, lambda x: 0.5 * x + 0.25),
    "HardSigmoid": ({}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "ScaledTanh": ({"activation_alpha": [2.0], "activation_beta": [0.5]}, lambda x: 2 * np.tanh(0.5 * x)),
    "ThresholdedRelu": ({}, lambda x: np.where(x > 1, x, 0)),
    "LeakyRelu": ({}, lambda x: np.where(x > 0, x, 0.01 * x)),
    "Softplus": ({"clip": 0.5}, lambda x: np.log1p(np.exp(np.clip(x, -0.5, 0.5)))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_take_their_numbers_and_the_clip(name: str, make_model: Make, run: Run) -> None:
    attributes, function = ACTIVATIONS[name]
    x = np.linspace(-3, 3, 5, dtype=F32).reshape(1, 5, 1)
    weights = {"W": np.ones((1, 1, 1), F32), "R": np.zeros((1, 1, 1), F32)}
    node = helper.make_node("RNN", ["x", "W", "R"], ["y"], hidden_size=1, activations=[name], **attributes)
    got = run(make_model([node], {"x": (F32, x.shape)}, ["y"], weights), x=x)
    np.testing.assert_allclose(got[0, 0], function(x[0]), rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_refused(make_model: Make, run: Run) -> None:
    weights = {"W": np.ones((1, 1, 1), F32), "R": np.zeros((1, 1, 1), F32)}
    for attributes, kind, text in (
        ({"activations": ["Tan"]}, UnsupportedOp, "activation 'Tan'"),
        ({"hidden_size": 2}, ImportFailed, "hidden_size is 2"),
        ({"direction": "bidirectional"}, ImportFailed, "direction is 'bidirectional'"),
    ):
        node = helper.make_node("RNN", ["x", "W", "R"], ["y"], **attributes)
        with pytest.raises(kind, match=text):
            run(make_model([node], {"x": (F32, (1, 1, 1))}, ["y"], weights), x=np.ones((1, 1, 1), F32))


def test_an_input_of_another_shape_is_refused(make_model: Make, run: Run) -> None:
    weights = {"W": np.ones((1, 4, 1), F32), "R": np.zeros((1, 4, 1), F32), "P": np.zeros((7, 9), F32)}
    node = helper.make_node("LSTM", ["x", "W", "R", "", "", "", "", "P"], ["y"])
    with pytest.raises(ImportFailed, match=r"P is f32\[7, 9\], expected shape \[1, 3\]"):
        run(make_model([node], {"x": (F32, (1, 1, 1))}, ["y"], weights), x=np.ones((1, 1, 1), F32))
