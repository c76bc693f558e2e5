"""Forms of models that exporters write and ONNX's own suite does not test, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hidet
from hidet.errors import ImportFailed, ShapeError
from hidet.loc import Loc
from hidet.onnx import OnnxRunner, from_onnx

Make = Callable[..., onnx.ModelProto]
F32 = np.float32


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, "-" is an absent input."""
    return helper.make_node(operator, [n if n != "-" else "" for n in inputs.split()], outputs.split(), **attributes)


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


TRACE = """File "/home/me/train.py", line 40, in forward
    return self.model(x)
  File "/home/me/model.py", line 12, in forward
    return self.fc(x)
  File "/home/me/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
"""


def place(make_model: Make, **told: str) -> Loc:
    relu = node("Relu", "x", "y", name="node_relu")
    for key, value in told.items():
        relu.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    (found,) = from_onnx(make_model([relu], {"x": (F32, [4])}, ["y"])).nodes
    assert found.loc is not None and found.loc.name == "Relu 'node_relu'"
    return found.loc


def test_nodes_that_torch_exported_know_the_line_of_the_program(make_model: Make) -> None:
    loc = place(make_model, stack_trace=TRACE, name_scopes="['', 'model', 'model.fc', 'linear']")
    assert loc.parent == Loc("/home/me/model.py", 12, None, "model.fc")
    assert place(make_model, stack_trace=TRACE).parent == Loc("/home/me/model.py", 12)


@pytest.mark.parametrize(
    "trace", ("", "line 3", 'File "torch/fx/passes/a.py", line 2, in b', 'File "/dev/zero", line 1, in f')
)
def test_what_is_no_line_of_a_program_is_left_out(make_model: Make, trace: str) -> None:
    assert place(make_model, stack_trace=trace, name_scopes="[").parent is None


@pytest.mark.parametrize("mark", ("?", "-1", "_", "*"))
def test_a_mark_of_unknown_extents_is_no_name(make_model: Make, mark: str) -> None:
    """defects.md C8."""
    runner = OnnxRunner(make_model([node("Relu", "x", "y")], {"x": (F32, [None, 3, mark, mark])}, ["y"]))
    assert runner({"x": np.ones((1, 3, 4, 6), F32)})[0].shape == (1, 3, 4, 6)


def test_equal_names_of_extents_are_one_size(make_model: Make) -> None:
    runner = OnnxRunner(make_model([node("Relu", "x", "y")], {"x": (F32, ["side", "side"])}, ["y"]))
    with pytest.raises(ShapeError, match="side"):
        runner({"x": np.ones((4, 6), F32)})


def frames_of(signal: Any, window: Any, step: int, is_onesided: bool) -> Any:
    """The transforms of a signal's frames, real and imaginary parts along the last axis."""
    size = len(window)
    frames = np.stack([signal[:, s : s + size] for s in range(0, signal.shape[1] - size + 1, step)], 1) * window
    found = np.fft.fft(frames)[..., : size // 2 + 1 if is_onesided else size]
    return np.stack([found.real, found.imag], -1)


@pytest.mark.parametrize("opset", (17, 20))
@pytest.mark.parametrize("shape", (["b", "n"], [2, 50], ["b", "n", 1], [2, 50, 2]))
@pytest.mark.parametrize("is_onesided", (True, False))
@pytest.mark.parametrize("has_window", (True, False))
@pytest.mark.thorough(every=3)
def test_a_short_time_transform_takes_signals_of_any_legal_rank(
    make_model: Make, opset: int, shape: Sequence[Any], is_onesided: bool, has_window: bool
) -> None:
    """defects.md C9."""
    window = np.hanning(16).astype(F32)
    given = {"step": np.array([8]), "n": np.array(16)} | ({"w": window} if has_window else {})
    stft = node("STFT", f"x step {'w' if has_window else '-'} n", "y", onesided=int(is_onesided))
    runner = OnnxRunner(make_model([stft], {"x": (F32, shape)}, ["y"], given, opset=opset))
    x = random(2, 50, *(shape[2:]))
    signal = x if x.ndim == 2 else x[..., 0] + (1j * x[..., 1] if x.shape[2] == 2 else 0)
    expected = frames_of(signal, window if has_window else np.ones(16), 8, is_onesided)
    np.testing.assert_allclose(runner({"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", ([50], [1, 2, 50, 1]))
def test_a_signal_of_another_rank_is_refused(make_model: Make, shape: Sequence[int]) -> None:
    model = make_model(
        [node("STFT", "x step - n", "y")], {"x": (F32, shape)}, ["y"], {"step": np.array(8), "n": np.array(16)}
    )
    with pytest.raises(ImportFailed, match=r"STFT takes a signal \[batch, length\]"):
        from_onnx(model)


@pytest.mark.parametrize("opset", (17, 20))
@pytest.mark.parametrize("shape", ([16, 1], [16, 2], [3, 16, 2], [2, 3, 16, 1], [2, 3, 4, 16, 2]))
@pytest.mark.parametrize("is_inverse", (True, False))
@pytest.mark.thorough(every=2)
def test_a_transform_takes_tensors_of_any_rank(
    make_model: Make, opset: int, shape: Sequence[int], is_inverse: bool
) -> None:
    """defects.md C9."""
    axis = len(shape) - 2
    place = {"axis": axis} if opset == 17 else {}
    dft = node("DFT", "x" if opset == 17 else "x - axis", "y", inverse=int(is_inverse), **place)
    held = {} if opset == 17 else {"axis": np.array(axis)}
    x = random(*shape)
    (y,) = OnnxRunner(make_model([dft], {"x": (F32, shape)}, ["y"], held, opset=opset))({"x": x})
    signal = x[..., 0] + (1j * x[..., 1] if shape[-1] == 2 else 0)
    found = (np.fft.ifft if is_inverse else np.fft.fft)(signal, axis=axis)
    np.testing.assert_allclose(y, np.stack([found.real, found.imag], -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", (1, 7, 72))
def test_the_one_sided_inverse_takes_one_signal_without_a_batch(make_model: Make, length: int) -> None:
    x = random(length // 2 + 1, 2)
    model = make_model(
        [node("DFT", "x n axis", "y", inverse=1, onesided=1)],
        {"x": (F32, x.shape)},
        ["y"],
        {"axis": np.array(0), "n": np.array(length)},
        opset=20,
    )
    expected = np.fft.irfft(x[:, 0] + 1j * x[:, 1], length)
    np.testing.assert_allclose(OnnxRunner(model)({"x": x})[0][:, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ("HannWindow", "HammingWindow", "BlackmanWindow"))
def test_a_window_is_as_long_as_the_data_say(make_model: Make, operator: str) -> None:
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape zero", "n"), node(operator, "n", "w")]
    runner = OnnxRunner(make_model(nodes, {"x": (F32, ["n"])}, ["w"], {"zero": np.array(0)}, opset=17))
    assert [runner({"x": np.ones(n, F32)})[0].shape for n in (5, 8)] == [(5,), (8,)]
    assert len(runner.compiled) == 1


def best_rows(make_model: Make, nodes: Sequence[onnx.NodeProto], **inputs: Any) -> onnx.ModelProto:
    top = node("TopK", "x k", "values places", axis=0)
    held = {"zero": np.array([0]), "three": np.array([3])}
    return make_model([*nodes, top], {"x": (F32, ["n", "m"]), **inputs}, ["values", "places"], held)


def test_the_number_of_best_elements_may_be_a_size(make_model: Make) -> None:
    """defects.md C10."""
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape zero", "n"), node("Min", "n three", "k")]
    runner = OnnxRunner(best_rows(make_model, nodes))
    for rows in (2, 3, 7):
        x = random(rows, 4)
        values, places = runner({"x": x})
        np.testing.assert_array_equal(values, -np.sort(-x, axis=0)[:3])
        np.testing.assert_array_equal(np.take_along_axis(x, places, 0), values)
    assert len(runner.compiled) == 1


def test_more_best_elements_than_there_are_are_refused_at_the_call(make_model: Make) -> None:
    compiled = hidet.compile(best_rows(make_model, [node("Identity", "wanted", "k")], wanted=(np.int64, [1])))
    x = random(5, 4)
    assert compiled(x, np.array([4]))[0].shape == (4, 4)
    with pytest.raises(ShapeError, match="topk"):
        compiled(x, np.array([6]))
    with pytest.raises(ShapeError, match="a size computed from data is -1"):
        compiled(x, np.array([-1]))


def rest_of_reshape(make_model: Make, taken: str) -> OnnxRunner:
    """x[batch, frames, 512] without its first six frames, as [batch * frames, -1]."""
    nodes = [
        node("Shape", "x", "before"),
        node("Gather", "before zero", "batch"),
        node("Gather", "before one", "frames"),
        node("Sub", "frames six", "left"),
        node("Mul", "batch left", "rows"),
        node("Concat", "rows rest", "shape", axis=0),
        node("Slice", f"x six {taken} one", "late"),
        node("Reshape", "late shape", "y"),
    ]
    numbers = {"zero": 0, "one": 1, "six": 6, "rest": -1, "all": 2**40}
    held = {name: np.array([number]) for name, number in numbers.items()}
    return OnnxRunner(make_model(nodes, {"x": (F32, ["b", "f", 512])}, ["y"], held))


def test_what_is_left_of_a_reshape_may_be_a_quotient_of_sizes(make_model: Make) -> None:
    """defects.md C11."""
    runner = rest_of_reshape(make_model, "all")
    x = random(2, 9, 512)
    np.testing.assert_array_equal(runner({"x": x})[0], x[:, 6:].reshape(6, 512))
    for frames in (6, 5):
        with pytest.raises(ShapeError):
            runner({"x": random(2, frames, 512)})


def test_external_data_without_a_length_are_as_long_as_their_shape_says(make_model: Make, tmp_path: Path) -> None:
    """red-team.md finding 9b."""
    arrays = {"a": random(4), "b": np.arange(3, dtype=np.int64), "c": random(2, 2)}
    model = make_model([node("Identity", name, f"y_{name}") for name in arrays], {}, [f"y_{name}" for name in arrays])
    offset = 0
    for name, array in arrays.items():
        tensor = model.graph.initializer.add(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.dims.extend(array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "weights.bin", "offset": str(offset)}.items():
            tensor.external_data.add(key=key, value=value)
        offset += 64
    (tmp_path / "weights.bin").write_bytes(b"".join(array.tobytes().ljust(64, b"\0") for array in arrays.values()))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for mine, array in zip(OnnxRunner(tmp_path / "model.onnx")({}), arrays.values(), strict=True):
        np.testing.assert_array_equal(mine, array)
    model.graph.initializer[2].external_data[1].value = str(offset - 8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ImportFailed, match=r"tensor 'c' lies at bytes 184 to 200 of .*, which has 192 bytes"):
        from_onnx(tmp_path / "model.onnx")
