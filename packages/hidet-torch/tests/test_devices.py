"""Which device a graph is compiled for, what is refused, and what `mode` asks for. No GPU is needed here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses import FakeTensorMode

from hidet.context import MODES, CompileContext
from hidet.errors import ImportFailed
from hidet.torch import backend
from hidet.torch.backend import compile_fx, target_of


def graph_of(given: torch.Tensor | None = None, made: torch.Tensor | None = None) -> fx.GraphModule:
    """A graph that makes a tensor of an input, or of nothing, and returns the input."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = given
    if made is not None:
        graph.call_function(torch.neg, (x,)).meta["example_value"] = made
    graph.output(x)
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
def test_the_device_of_the_tensors_is_the_target(device: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, device=device)
        assert target_of(graph_of(x, x), [x, 3]) == device


def test_numbers_on_the_cpu_go_with_every_device() -> None:
    with FakeTensorMode():
        x, number = torch.empty(2, device="cuda:0"), torch.empty(())
        assert target_of(graph_of(), [number, x]) == "cuda:0"


def test_a_graph_of_several_devices_is_refused_with_a_tensor_of_each() -> None:
    with FakeTensorMode():
        here, there = torch.empty(2, device="cuda:0"), torch.empty(2, device="cuda:1")
        with pytest.raises(ImportFailed, match=r"several devices: cuda:0 \(argument 0\), cuda:1 \(argument 1\)"):
            target_of(graph_of(), [here, there])
        with pytest.raises(ImportFailed, match=r"cpu \(the result of neg\), cuda:0 \(argument 0\)"):
            target_of(graph_of(here, torch.empty(3)), [here])


def test_what_is_computed_from_no_input_goes_with_every_device() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0]) * torch.tensor([2, 1])
        return x + rows.to(x.device)

    targets: list[str] = []

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        targets.append(target_of(gm, example_inputs))
        return gm.forward

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=keep, dynamic=dynamic)
        # The only other device that every torch has holds no data.
        with pytest.raises(ImportFailed, match="hidet compiles for cpu and cuda"):
            unwrapped(compiled, torch.empty(2, device="meta"))
        compiled(torch.zeros(2))
    assert targets == ["cpu", "cpu"]


def unwrapped(function: Any, *inputs: Any) -> Any:
    """Call a compiled function; an error of its backend as it was raised."""
    try:
        return function(*inputs)
    except BackendCompilerFailed as error:
        raise error.inner_exception from None


def test_the_place_of_a_tensor_elsewhere_is_named() -> None:
    compiled = torch.compile(lambda x: x.to("meta"), backend="hidet")
    with pytest.raises(ImportFailed, match=r"cpu \(argument 0\), meta \(the result of to at .*test_devices\.py:\d+"):
        unwrapped(compiled, torch.zeros(3))


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mode of every graph that is compiled."""
    asked: list[str] = []
    compile_graph = backend.compile_graph

    def noted(graph: Any, ctx: CompileContext) -> Any:
        asked.append(ctx.options.mode)
        return compile_graph(graph, ctx)

    monkeypatch.setattr(backend, "compile_graph", noted)
    return asked


@pytest.mark.parametrize("mode", [None, *MODES])
def test_the_mode_decides_when_calls_become_cuda_graphs(mode: str | None, modes: list[str]) -> None:
    compiled = torch.compile(lambda x: x + 1, backend=compile_fx, mode=mode)
    with torch.no_grad():
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
    assert modes == [mode or "default"]


def test_training_makes_no_cuda_graphs(modes: list[str]) -> None:
    x = torch.zeros(2, requires_grad=True)
    torch.compile(lambda x: x.sin().sum(), backend=compile_fx, mode="reduce-overhead")(x).backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1]
    assert set(modes[-2:]) == {"max-autotune-no-cudagraphs"}


def test_another_default_device_changes_nothing() -> None:
    x = torch.arange(3.0)
    function = torch.compile(lambda x: x * 2 + 1, backend="hidet")
    with torch.device("meta"):
        assert function(x).tolist() == [1, 3, 5]
