"""Compiling for a GPU that is not there: graphs, modules and ONNX models become files that are run elsewhere.

user-walk.md bug 5, plugin-friction.md bug 8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet import dtypes
from hidet.cli import main
from hidet.context import make_context
from hidet.errors import ArtifactError, LaunchError
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.runtime.compiled import CompiledGraph

GPU = "cuda:sm_90a"
X = np.ones((5, 16), np.float32)


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(index: int) -> None:
        raise LaunchError("no CUDA driver was found on this machine")

    monkeypatch.setattr("hidet.cuda.memory.device_at", absent)


def product() -> Graph:
    builder = GraphBuilder(make_context("cpu").registry.operators)
    x = builder.input(TensorType(dtypes.f32, (5, 16)), "x")
    weight = builder.constant(np.arange(128, dtype=np.float32).reshape(8, 16))
    return builder.build([builder.emit("relu", builder.emit("linear", x, weight))])


def check(compiled: CompiledGraph, path: Path) -> None:
    """It can be looked at and saved; calling and loading it say what is missing, not to do what was just done."""
    assert compiled.report().kernels >= 1
    assert all(isinstance(constant, np.ndarray) for constant in compiled.bundle.constants)
    with pytest.raises(LaunchError, match=f"compiled for {GPU}, and cannot run here: no CUDA driver") as caught:
        compiled(X)
    assert "hidet.load(path) runs on such a machine" in str(caught.value)
    compiled.save(path)
    with pytest.raises((LaunchError, ArtifactError), match="no CUDA driver"):
        hidet.load(path)


def test_a_graph_is_compiled_and_saved(tmp_path: Path) -> None:
    check(hidet.compile(product(), target=GPU), tmp_path / "graph.hidet")


def test_a_module_is_compiled_and_its_weights_stay_where_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    compiled = hidet.compile(model, (torch.ones(5, 16),), target=GPU)
    check(compiled, tmp_path / "module.hidet")
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def rules_of(compiled: CompiledGraph, operator: str) -> set[str]:
    """The rules that made the kernels of an operator. Nothing may be left to torch or to the fallback nest."""
    report = compiled.report()
    assert (report.nodes.eager, report.nodes.host, report.nodes.fallback) == (0, 0, 0), report.nodes.names
    return {use.rule for use in report.uses if any(task.startswith(f"{operator}(") for task in use.tasks)}


def test_convolutions_of_a_symbolic_number_of_images_are_tensor_core_products() -> None:
    """defects.md G3."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, 1, 1))
    images = torch.ones(4, 3, 64, 48, dtype=torch.float16)
    compiled = hidet.compile(
        model.half().eval(), (images,), target=GPU, dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    assert rules_of(compiled, "conv") == {"cuda.matmul"}


WINDOWS = {
    "three by three": (64, 64, 3, 1),
    "three by three, strided": (64, 128, 3, 2),
    "one pixel": (64, 256, 1, 1),
    "one pixel, strided": (256, 512, 1, 2),
}


@pytest.mark.parametrize(("channels", "filters", "taps", "stride"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.thorough(every=2)
def test_gradients_of_convolutions_are_tensor_core_products(
    channels: int, filters: int, taps: int, stride: int
) -> None:
    """defects.md G2: of images and of filters, as training a ResNet under autocast has them."""
    torch = pytest.importorskip("torch")

    def gradients(grad: Any, x: Any, weight: Any) -> Any:
        pads = [taps // 2] * 2
        window = ([stride] * 2, pads, [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *window, [True, True, False])[:2]

    shapes = [(64, filters, 56 // stride, 56 // stride), (64, channels, 56, 56), (filters, channels, taps, taps)]
    arguments = tuple(torch.ones(shape, dtype=torch.bfloat16) for shape in shapes)
    compiled = hidet.compile(gradients, arguments, target=GPU)
    assert rules_of(compiled, "conv") == {"cuda.matmul"}
    assert len([use for use in compiled.report().uses if use.rule == "cuda.matmul"]) == 2


def test_onnx_models_are_compiled_from_the_shell(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, 16])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [5, 16])],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "--target", GPU, "-o", str(tmp_path / "m.hidet")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "m.hidet").stat().st_size > 0


def test_a_target_of_this_machine_needs_its_device_at_once() -> None:
    with pytest.raises(LaunchError, match="no CUDA driver"):
        hidet.compile(product(), target="cuda")


def test_host_code_for_an_absent_gpu_runs_on_most_processors() -> None:
    arch = make_context(GPU).target.arch
    assert arch == f"sm_90a, host {make_context('cpu:common').target.arch}"
    assert make_context("cpu").target.refusal(arch.partition(", host ")[2]) is None
