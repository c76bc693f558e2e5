"""Quantised weights stay what they are: what is computed from them is not kept between calls."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from hidet.onnx import OnnxRunner


@pytest.mark.parametrize("operator", ("MatMul", "Conv"))
def test_dequantised_weights_are_not_kept(operator: str) -> None:
    random = np.random.default_rng(0)
    shape = (256, 512) if operator == "MatMul" else (64, 32, 3, 3)
    codes = random.integers(-128, 128, shape).astype(np.int8)
    scale = np.float32(0.01)
    x = random.standard_normal((3, 256) if operator == "MatMul" else (1, 32, 9, 9)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["codes", "scale"], ["weight"]),
            helper.make_node(operator, ["x", "weight"], ["y"]),
        ],
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(np.array(scale), "scale")],
    )
    runner = OnnxRunner(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    (compiled,) = runner.compiled
    report = compiled.report()
    assert report.prepared_bytes == 0
    assert report.weight_bytes < codes.nbytes + 100
    held = sum(array.nbytes for array in (*compiled.bundle.constants, *compiled.bundle.prepare_constants))
    assert held < codes.nbytes + 100
    (y,) = runner({"x": x})
    weight = codes.astype(np.float64) * scale
    if operator == "MatMul":
        expected = x.astype(np.float64) @ weight
    else:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
        expected = np.einsum("nchwij,kcij->nkhw", windows, weight)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)
    assert report.nodes.fallback == 0
