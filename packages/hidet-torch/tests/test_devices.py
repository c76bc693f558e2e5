"""Which device a graph is compiled for, what is refused, and what `mode` asks for. No GPU is needed here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses import FakeTensorMode

from hidet.errors import ImportFailed
from hidet.torch import backend
from hidet.torch.backend import compile_fx, target_of


def graph_of(*values: torch.Tensor) -> fx.GraphModule:
    """A graph whose nodes have made tensors like these."""
    graph = fx.Graph()
    for value in values:
        graph.call_function(torch.arange, (1,)).meta["example_value"] = value
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
def test_the_device_of_the_tensors_is_the_target(device: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, device=device)
        assert target_of(graph_of(x), [x, 3]) == device


def test_numbers_on_the_cpu_go_with_every_device() -> None:
    with FakeTensorMode():
        x, number = torch.empty(2, device="cuda:0"), torch.empty(())
        assert target_of(graph_of(), [number, x]) == "cuda:0"


def test_a_graph_of_several_devices_is_refused_with_a_tensor_of_each() -> None:
    with FakeTensorMode():
        here, there = torch.empty(2, device="cuda:0"), torch.empty(2, device="cuda:1")
        with pytest.raises(ImportFailed, match=r"several devices: cuda:0 \(argument 0\), cuda:1 \(argument 1\)"):
            target_of(graph_of(), [here, there])
        with pytest.raises(ImportFailed, match=r"cpu \(the result of arange\), cuda:0 \(argument 0\)"):
            target_of(graph_of(torch.empty(3)), [here])


def test_the_place_of_a_tensor_elsewhere_is_named() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.empty(3, device="meta").to(x.device)

    with pytest.raises(BackendCompilerFailed, match=r"meta \(the result of empty at .*test_devices\.py:\d+"):
        torch.compile(function, backend="hidet")(torch.zeros(3))


@pytest.mark.parametrize(
    ("mode", "captures"),
    [
        (None, False),
        ("default", False),
        ("reduce-overhead", True),
        ("max-autotune", True),
        ("max-autotune-no-cudagraphs", False),
    ],
)
def test_modes_decide_whether_calls_become_cuda_graphs(
    mode: str | None, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def make_runner(*arguments: Any, **options: Any) -> Any:
        asked.append(options["captures"])
        return Runner(*arguments, **options)

    Runner = backend.Runner
    monkeypatch.setattr(backend, "Runner", make_runner)
    compiled = torch.compile(lambda x: x + 1, backend=compile_fx, mode=mode)
    with torch.no_grad():
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
    assert asked == [captures]
