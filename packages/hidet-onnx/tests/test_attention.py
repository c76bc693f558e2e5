"""Attention with sizes that are open, and cache updates out of range; ONNX's suite has the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from hidet.errors import ImportFailed, PositionError
from hidet.onnx import from_onnx

Make = Callable[..., onnx.ModelProto]
Run = Callable[..., Any]
F32 = np.float32
CACHED = {
    name: (F32, [1, 2, length, 4]) for name, length in (("q", "s"), ("k", "s"), ("v", "s"), ("pk", "p"), ("pv", "p"))
}


def causal(q: Any, k: Any, v: Any, past: int) -> Any:
    scores = q @ k.swapaxes(2, 3) / 2
    rows, length = scores.shape[2:]
    hidden = np.arange(length) > np.arange(rows)[:, None] + past
    weights = np.exp(np.where(hidden, -np.inf, scores))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_one_import_attends_to_a_cache_of_any_length(make_model: Make, run: Run) -> None:
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], is_causal=1)
    model = make_model([node], CACHED, ["y", "nk"], opset=24)
    generator = np.random.default_rng(0)
    for rows, past in ((1, 5), (3, 2)):
        given = {n: generator.random((1, 2, past if n[0] == "p" else rows, 4), F32) for n in CACHED}
        y, keys = run(model, **given)
        k, v = (np.concatenate([given[f"p{n}"], given[n]], axis=2) for n in "kv")
        np.testing.assert_array_equal(keys, k)
        np.testing.assert_allclose(y, causal(given["q"], k, v, past), rtol=1e-4, atol=1e-5)


def test_causal_attention_is_one_operator(make_model: Make) -> None:
    inputs = {name: (F32, [1, 3, 8]) for name in "qkv"}
    node = helper.make_node("Attention", list(inputs), ["y"], is_causal=1, q_num_heads=2, kv_num_heads=2)
    names = [n.op.name for n in from_onnx(make_model([node], inputs, ["y"], opset=23)).nodes]
    assert "attention" in names and "softmax" not in names


def test_a_past_key_without_values_is_refused(make_model: Make) -> None:
    inputs = {name: CACHED[name] for name in ("q", "k", "v", "pk")}
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk"], ["y"])
    with pytest.raises(ImportFailed, match="together"):
        from_onnx(make_model([node], inputs, ["y"], opset=24))


def test_a_cache_update_beyond_the_end_is_an_error(make_model: Make, run: Run) -> None:
    cache, update = np.zeros((2, 4, 3), F32), np.ones((2, 2, 3), F32)
    declared = {"c": (F32, cache.shape), "u": (F32, update.shape), "i": (np.int64, [2])}
    node = helper.make_node("TensorScatter", ["c", "u", "i"], ["y"])
    model = make_model([node], declared, ["y"], opset=24)
    y = run(model, c=cache, u=update, i=np.array([0, 2]))
    assert y[:, :, 0].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    with pytest.raises(PositionError):
        run(model, c=cache, u=update, i=np.array([0, 3]))
