"""A target of somebody else that serves devices of a type of its own: tensors, scripts and models find it by those."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import hidet
from hidet.compiler.modules import target_of
from hidet.errors import CompileError, ImportFailed, LaunchError
from hidet.ir import build
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch
from hidet.onnx.backend import supports_device
from hidet.torch.backend import compile_fx

PLUGIN = """
    from hidet.cpu.target import CpuTarget
    from hidet.errors import CompileError
    from hidet.plugins import TargetSpec

    HIDET_API = 1

    def hidet_targets():
        yield TargetSpec(
            name="loom", devices=("meta", "xpu", "loomcloth"), kind="gpu", load="{name}._plugin:Loom", doc="weaves"
        )

    class Memory:
        def __init__(self, device):
            self.device = device

        def place(self, array):
            return Cloth(array, self.device)

    class Cloth:
        def __init__(self, array, device):
            self.array, self.device, self.dtype, self.shape = array, device, array.dtype, array.shape

        def numpy(self):
            return self.array

    class Loom(CpuTarget):
        name, device = "loom", "meta"

        def __init__(self, machine=None):
            super().__init__()
            self.machine = machine or "0"
            self.memory = Memory(f"loomcloth:{{self.machine}}")

        def compile(self, jobs, progress=None):
            raise CompileError(f"loom {{self.machine}} was asked to weave")
"""


@pytest.fixture
def loom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A plug-in with one target, beside those of the project but hidet-cuda."""
    name = f"loom_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "_plugin.py").write_text(textwrap.dedent(PLUGIN).format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    own = [f"hidet.{wheel}._plugin" for wheel in ("cpu", "torch", "onnx")]
    monkeypatch.setenv("HIDET_PLUGINS", ",".join([*own, f"{name}._plugin"]))


@pytest.mark.usefixtures("loom")
def test_tensors_on_its_devices_lie_in_its_memory() -> None:
    tensor = hidet.asarray([1.0, 2.0]).to(device="loomcloth:2")
    assert (tensor.device, tensor.storage.device, tensor.numpy().tolist()) == ("loomcloth:2", "loomcloth:2", [1, 2])


@pytest.mark.usefixtures("loom")
def test_operators_on_its_tensors_are_compiled_for_it() -> None:
    x = hidet.symbol([4], device="loomcloth:1")
    with pytest.raises(CompileError, match="loom 1 was asked to weave"):
        hidet.trace_from(hidet.ops.relu(x), [x]).build()


@pytest.mark.usefixtures("loom")
def test_a_torch_graph_on_its_devices_is_compiled_for_it() -> None:
    with pytest.raises(CompileError, match="loom 0 was asked to weave"):
        compile_fx(*_on_meta())


def test_a_torch_graph_on_devices_of_no_target_is_refused_with_the_types_that_have_one() -> None:
    with pytest.raises(
        ImportFailed, match=r"argument 0 on device meta, which no target is for; there are targets for cpu, cuda"
    ):
        compile_fx(*_on_meta())


def test_a_tensor_on_a_device_of_no_target_is_refused_at_a_call() -> None:
    compiled = hidet.compile(torch.nn.ReLU(), torch.zeros(3))
    with pytest.raises(LaunchError, match="a tensor is on meta, for which no target is installed: expected cpu, cuda"):
        compiled(torch.empty(3, device="meta"))


@pytest.mark.parametrize(("device", "is_there"), [("XPU:1", True), ("CPU", True), ("CUDA:0", False), ("loom", False)])
@pytest.mark.usefixtures("loom")
def test_onnx_names_its_devices_in_capitals(device: str, is_there: bool) -> None:
    assert supports_device(device) is is_there


@pytest.mark.usefixtures("loom")
def test_a_module_that_launches_blocks_of_threads_is_for_the_gpu_that_is_there() -> None:
    kernel = Function("k", (), build.seq([]), "kernel")
    launch = Launch("k", (build.index(1),), (), block=(build.index(32),))
    module = Module((kernel, Function("main", (), launch, "host")), "main")
    assert target_of(module) == "loom"


def _on_meta():
    x = torch.empty(3, device="meta")
    return make_fx(lambda x: (x.relu(),))(x), [x]
