"""Operators of domain com.microsoft against ONNX Runtime, which defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

Make = Callable[..., onnx.ModelProto]
Run = Callable[..., Any]
F32 = np.float32
ort = pytest.importorskip("onnxruntime")


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F32)


def codes(*shape: int, dtype: Any = np.uint8) -> Any:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max + 1, shape, dtype)


def number(value: float, dtype: Any = F32) -> Any:
    return np.array(value, dtype)


X, W = random(2, 3, 8), random(8)
# Weights have 7 bits: ONNX Runtime adds pairs of products in 16 bits on processors without VNNI, which 8 bits overflow.
U, S, Z = codes(2, 3, 4, 4), number(0.0531), number(120, np.uint8)

# operator, inputs, attributes
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "Gelu": ("Gelu", [X], {}),
    "BiasGelu": ("BiasGelu", [X, W], {}),
    "FastGelu": ("FastGelu", [X], {}),
    "FastGelu with a bias": ("FastGelu", [X, W], {}),
    "QuickGelu": ("QuickGelu", [X], {"alpha": 1.5}),
    "FusedMatMul": ("FusedMatMul", [random(2, 8, 3), random(2, 8, 5)], {"transA": 1, "alpha": 0.5}),
    "SkipLayerNormalization": ("SkipLayerNormalization", [X, random(2, 3, 8, seed=1), W, W, W], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", [X, X, W], {"epsilon": 1e-5}),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [codes(3, 8), codes(8, 5, dtype=np.int8) // 2, S, random(5), Z, number(3, np.int8), random(5)],
        {},
    ),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", [random(3, 8), codes(8, 5, dtype=np.int8) // 2, S], {}),
    "QLinearAdd": ("QLinearAdd", [U, S, Z, U[:, :1], number(0.1173), Z, number(0.2031), Z], {}),
    "QLinearMul": ("QLinearMul", [U, S, Z, U, S, Z, number(0.3), Z], {}),
    "QLinearSigmoid": ("QLinearSigmoid", [U, S, Z, number(1 / 256), number(0, np.uint8)], {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [U, S, Z, number(0.04), Z], {"alpha": 0.2}),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", [U, S, Z, number(0.0117), Z], {}),
    "QLinearConcat": ("QLinearConcat", [S, Z, U, S, Z, U, number(0.1), Z], {"axis": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_gives_what_onnx_runtime_gives(case: str, make_model: Make, run: Run) -> None:
    operator, arrays, attributes = CASES[case]
    given = {f"x{n}": array for n, array in enumerate(arrays)}
    node = helper.make_node(operator, list(given), ["y"], domain="com.microsoft", **attributes)
    scalars = {name: array for name, array in given.items() if array.ndim == 0}
    declared = {name: (array.dtype, array.shape) for name, array in given.items() if name not in scalars}
    model = make_model([node], declared, ["y"], scalars, opset=17, domains={"com.microsoft": 1})
    model.ir_version = 10
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(U.dtype if operator.startswith("QLinear") else F32))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, None))
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arguments = {name: given[name] for name in declared}
    (expected,) = session.run(None, arguments)
    got = run(model, **arguments)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype == np.uint8:
        # What lies between two codes may be rounded either way.
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
        assert (got != expected).mean() < 0.02
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_simplified_layer_normalization_has_no_domain(make_model: Make, run: Run) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["y"], axis=-1, epsilon=1e-5)
    expected = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5) * W
    np.testing.assert_allclose(
        run(make_model([node], {"x": (F32, X.shape)}, ["y"], {"w": W}), x=X), expected, rtol=1e-5
    )
