"""A model becomes a graph: inputs, constants, functions, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hidet
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.onnx import check, from_onnx

Make = Callable[..., onnx.ModelProto]
W = np.arange(4, dtype=np.float32)


def _affine(make_model: Make) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"], name="last")]
    return make_model(nodes, {"x": (np.float32, ["batch", 4])}, ["y"], {"w": W})


def test_a_named_size_is_a_symbol_and_an_initialiser_a_constant(make_model: Make) -> None:
    graph = from_onnx(_affine(make_model))
    assert str(graph.inputs[0].type) == "f32[batch, 4]"
    assert [constant.numpy().tolist() for constant in graph.constants.values()] == [W.tolist()]


def test_one_import_serves_several_sizes(make_model: Make) -> None:
    compiled = hidet.compile(_affine(make_model))
    for batch in (1, 3):
        x = np.full((batch, 4), -1, np.float32)
        np.testing.assert_array_equal(compiled(x), np.maximum(x + W, 0))


@pytest.mark.parametrize("given", [[np.zeros((3, 4), np.float32)], {"x": np.ones((3, 4), np.float32)}])
def test_example_inputs_fix_open_sizes(make_model: Make, given: Any) -> None:
    compiled = hidet.compile(_affine(make_model), given)
    x = np.full((3, 4), -1, np.float32)
    np.testing.assert_array_equal(compiled(x), np.maximum(x + W, 0))
    with pytest.raises(hidet.HidetError, match="x"):
        compiled(np.zeros((2, 4), np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([np.zeros((3, 5))], r"example input 'x' is \[3, 5\], the model declares \[\?, 4\]"),
        ([np.zeros(4)], r"example input 'x' is \[4\], the model declares \[\?, 4\]"),
        ([], "example inputs are 0, the model takes x"),
        ({"y": np.zeros((3, 4))}, "example inputs are y, the model takes x"),
    ],
)
def test_example_inputs_that_do_not_fit_are_refused(make_model: Make, given: Any, message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        hidet.compile(_affine(make_model), given)


def test_the_runner_takes_empty_tensors(make_model: Make, run: Callable[..., Any]) -> None:
    assert run(_affine(make_model), x=np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_a_path_is_a_model(make_model: Make, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_affine(make_model), path)
    assert hidet.compile(str(path))(np.zeros((1, 4), np.float32)).tolist() == [W.tolist()]


def test_bytes_are_a_model(make_model: Make) -> None:
    assert len(from_onnx(_affine(make_model).SerializeToString()).nodes) == 2


def test_a_function_of_the_model_is_written_out_with_its_attributes(make_model: Make, run: Callable[..., Any]) -> None:
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function("mine", "Leak", ["a"], ["b"], [body], [helper.make_opsetid("", 21)], ["slope"])
    node = helper.make_node("Leak", ["x"], ["y"], domain="mine", slope=0.5)
    model = make_model([node], {"x": (np.float32, [2])}, ["y"], functions=[function], domains={"mine": 1})
    assert run(model, x=np.array([-2, 2], np.float32)).tolist() == [-1, 2]


def test_every_unknown_operator_is_listed_with_its_nodes(make_model: Make) -> None:
    nodes = [
        helper.make_node("Nonsense", ["x"], ["a"], name="first"),
        helper.make_node("Nonsense", ["a"], ["b"]),
        helper.make_node("Odd", ["b"], ["y"], domain="theirs"),
    ]
    model = make_model(nodes, {"x": (np.float32, [2])}, ["y"], domains={"theirs": 3})
    assert [(entry.operator, entry.opset, entry.nodes) for entry in check(model)] == [
        ("Nonsense", 21, ("first", "b")),
        ("theirs.Odd", 3, ("y",)),
    ]
    with pytest.raises(UnsupportedOp, match=r"2 operators[\s\S]*Nonsense[\s\S]*theirs\.Odd"):
        from_onnx(model)


def test_an_error_names_the_node(make_model: Make) -> None:
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="sum")], {"x": (np.float32, [3])}, ["y"], {"w": W}
    )
    with pytest.raises(hidet.HidetError, match="Add 'sum'"):
        from_onnx(model)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff\x00 no model")
    with pytest.raises(ImportFailed, match="damaged"):
        from_onnx(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"absent\.onnx"):
        from_onnx(tmp_path / "absent.onnx")


def _with_external(make_model: Make, folder: Path, location: str, **entries: str) -> Path:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (np.float32, [4])}, ["y"])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_are_mapped(make_model: Make, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 8 + W.tobytes())
    path = _with_external(make_model, tmp_path, "weights.bin", offset="8", length="16")
    (constant,) = from_onnx(path).constants.values()
    base = constant.data
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert hidet.compile(str(path))(W).tolist() == (W + W).tolist()


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "", "a/../../secret.bin"])
def test_external_data_outside_the_folder_are_refused(make_model: Make, tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    (tmp_path / "inner").mkdir()
    path = _with_external(make_model, tmp_path / "inner", location)
    with pytest.raises(ImportFailed, match=r"tensor 'w'"):
        from_onnx(path)


def test_a_link_that_leaves_the_folder_is_refused(make_model: Make, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ImportFailed, match="outside the model's folder"):
        from_onnx(_with_external(make_model, tmp_path / "inner", "link.bin"))


@pytest.mark.parametrize(("entries", "message"), [({}, "exists"), ({"offset": "4"}, "exists")])
def test_missing_external_data_are_named(
    make_model: Make, tmp_path: Path, entries: dict[str, str], message: str
) -> None:
    with pytest.raises(ImportFailed, match=rf"weights\.bin.*{message}"):
        from_onnx(_with_external(make_model, tmp_path, "weights.bin", **entries))


def test_a_tensor_that_claims_terabytes_is_refused_without_memory(make_model: Make) -> None:
    model = make_model([helper.make_node("Relu", ["w"], ["y"])], {}, ["y"])
    model.graph.initializer.add(name="w", data_type=1, dims=[1 << 40, 10], raw_data=b"1234")
    with pytest.raises(ImportFailed, match="needs 43980465111040 bytes"):
        from_onnx(model)


def test_a_name_nobody_computes_is_named(make_model: Make) -> None:
    model = make_model([helper.make_node("Relu", ["t"], ["y"])], {"x": (np.float32, [2])}, ["y"])
    with pytest.raises(ImportFailed, match="'t'"):
        from_onnx(model)


def test_an_attribute_that_the_operator_lacks_is_refused(make_model: Make) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"], slope=1.0)], {"x": (np.float32, [2])}, ["y"])
    with pytest.raises(ImportFailed, match="no attribute 'slope'"):
        from_onnx(model)


def test_the_backend_runs_one_node() -> None:
    from hidet.onnx import backend

    (result,) = backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [W])
    assert result.tolist() == (-W).tolist()
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CPU:1")


@pytest.mark.parametrize(("device", "target"), [("CPU", "cpu"), ("CUDA", "cuda"), ("CUDA:1", "cuda:1")])
def test_a_backend_compiles_for_the_device_that_is_named(
    device: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hidet.onnx import backend

    asked: list[str] = []
    monkeypatch.setattr(backend, "OnnxRunner", lambda model, *, target, options: asked.append(target))
    backend.prepare(onnx.ModelProto(), device)
    assert asked == [target]
