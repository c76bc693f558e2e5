"""`hidet.frontend.from_onnx`: models on tensors of hidet, and as parts of flow graphs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import hidet
from hidet.errors import ImportFailed

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)


def model(batch: int | str = "batch") -> ModelProto:
    """Two outputs of two inputs: relu(data @ weight.T) + shift, and the same doubled."""
    nodes = [
        helper.make_node("Gemm", ["data", "weight"], ["product"], transB=1),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Add", ["positive", "shift"], ["moved"]),
        helper.make_node("Add", ["moved", "moved"], ["twice"]),
    ]
    inputs = [
        helper.make_tensor_value_info("data", TensorProto.FLOAT, [batch, 3]),
        helper.make_tensor_value_info("shift", TensorProto.FLOAT, [4]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in ("moved", "twice")]
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [4, 3], WEIGHT.reshape(-1))
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(data: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    moved = np.maximum(data @ WEIGHT.T, 0) + shift
    return moved, 2 * moved


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_model_says_its_inputs_outputs_and_versions(tmp_path) -> None:
    (tmp_path / "m.onnx").write_bytes(model().SerializeToString())
    module = hidet.frontend.from_onnx(tmp_path / "m.onnx")
    assert (module.input_names, module.output_names) == (["data", "shift"], ["moved", "twice"])
    assert module.op_sets == {"": 17}
    assert repr(module) == "OnnxModule(data, shift) -> moved, twice"


def test_a_model_is_called_with_tensors_of_any_size_that_it_leaves_open() -> None:
    module = hidet.frontend.from_onnx(model())
    for batch in (1, 5):
        data, shift = drawn(batch, 3), drawn(4)
        results = module(hidet.asarray(data), hidet.asarray(shift))
        assert all(isinstance(result, hidet.Tensor) for result in results)
        for found, right in zip(results, expected(data, shift), strict=True):
            np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [2, "n"])
def test_symbols_give_symbols_that_make_a_graph(batch: int | str) -> None:
    data, shift = hidet.symbol([batch, 3]), hidet.symbol([4])
    moved, twice = hidet.frontend.from_onnx(model())(data, shift)
    assert moved.is_symbolic() and moved.shape[1] == 4
    graph = hidet.trace_from([moved, twice], inputs=[data, shift])
    assert [node.name for node in graph.nodes][-2:] == ["add", "add"]
    given = drawn(2, 3), drawn(4)
    for found, right in zip(graph(*map(hidet.asarray, given)), expected(*given), strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-6)


def test_a_model_is_a_part_of_a_larger_graph() -> None:
    data, shift = hidet.symbol([2, 3]), hidet.symbol([4])
    moved, _ = hidet.frontend.from_onnx(model())(hidet.ops.relu(data), shift)
    graph = hidet.trace_from(moved.sum(1), inputs=[data, shift])
    given = drawn(2, 3), drawn(4)
    right = expected(np.maximum(given[0], 0), given[1])[0].sum(1)
    np.testing.assert_allclose(graph(*map(hidet.asarray, given)).numpy(), right, rtol=1e-5, atol=1e-5)


def test_inputs_that_do_not_fit_are_refused_by_name() -> None:
    module = hidet.frontend.from_onnx(model())
    with pytest.raises(ImportFailed, match=r"takes 2 inputs \(data, shift\), got 1"):
        module(hidet.zeros([2, 3]))
    with pytest.raises(ImportFailed, match="input 'shift' has elements and others are symbolic"):
        module(hidet.symbol([2, 3]), hidet.zeros([4]))
