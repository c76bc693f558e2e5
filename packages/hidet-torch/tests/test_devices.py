"""Which device a graph is compiled for, what is refused, and what `mode` asks for. No GPU is needed here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses import FakeTensorMode

from hidet.context import MODES, CompileContext
from hidet.cpu.target import CpuTarget
from hidet.errors import ImportFailed, OptionError
from hidet.plugins import TargetSpec, use
from hidet.torch import running
from hidet.torch.backend import compile_fx
from hidet.torch.devices import devices_of, split_by_device, targets_of_devices


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
def test_the_device_of_the_tensors_is_the_graph_s(device: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, device=device)
        assert devices_of(graph_of(x, x), [x, 3]) == {torch.device(device): "argument 0"}


def test_numbers_on_the_cpu_go_with_every_device() -> None:
    with FakeTensorMode():
        x, number = torch.empty(2, device="cuda:0"), torch.empty(())
        assert devices_of(graph_of(), [number, x]) == {torch.device("cuda:0"): "argument 1"}


def test_a_tensor_of_each_device_is_named() -> None:
    with FakeTensorMode():
        here, there = torch.empty(2, device="cuda:0"), torch.empty(2, device="cuda:1")
        expected = {torch.device("cuda:0"): "argument 0", torch.device("cuda:1"): "argument 1"}
        assert devices_of(graph_of(), [here, there]) == expected
        for copied in (torch.empty(3), torch.empty(())):
            expected = {torch.device("cuda:0"): "argument 0", torch.device("cpu"): "the result of neg"}
            assert devices_of(graph_of(here, copied), [here]) == expected


def test_a_number_that_is_computed_on_the_cpu_and_returned_needs_it() -> None:
    with FakeTensorMode():
        number = torch.empty(())
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["example_value"] = number
        graph.output(value_of(graph, torch.neg, x, number))
        gm = fx.GraphModule(torch.nn.Module(), graph)
        assert devices_of(gm, [number]) == {torch.device("cpu"): "the result of neg"}


def test_what_is_computed_from_no_input_goes_with_every_device() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0]) * torch.tensor([2, 1])
        return x + rows.to(x.device)

    found: list[list[str]] = []

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.append(list(map(str, devices_of(gm, example_inputs))))
        return gm.forward

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=keep, dynamic=dynamic)
        # The only other device that every torch has holds no data.
        compiled(torch.empty(2, device="meta"))
        compiled(torch.zeros(2))
    assert found == [["meta"], ["cpu"], ["meta"], ["cpu"]]


def value_of(graph: fx.Graph, function: Any, *inputs: Any) -> fx.Node:
    """A node whose value is the last of `inputs`."""
    node = graph.call_function(function, inputs[:-1])
    node.meta["example_value"] = inputs[-1]
    return node


def test_a_graph_of_several_devices_is_cut_where_it_goes_from_one_to_another() -> None:
    graph = fx.Graph()
    with FakeTensorMode():
        here, there, number = torch.empty(2, device="cuda:0"), torch.empty(2), torch.empty(())
        x, y = graph.placeholder("x"), graph.placeholder("y")
        x.meta["example_value"], y.meta["example_value"] = here, number
        doubled = value_of(graph, torch.mul, x, y, here)
        summed = value_of(graph, torch.add, doubled, x, here)
        moved = value_of(graph, torch.Tensor.cpu, summed, there)
        chosen = value_of(graph, torch.take, x, moved, here)
        rounded = value_of(graph, torch.round, moved, there)
        graph.output((chosen, rounded, doubled))
        split = split_by_device(fx.GraphModule(torch.nn.Module(), graph))
    functions = [
        (str(part.device), [node.name for node in part.gm.graph.nodes if node.op == "call_function"])
        for part in split.parts
    ]
    assert functions == [("cuda:0", ["mul", "add"]), ("None", ["cpu", "take"]), ("cpu", ["round_1"])]
    assert [(node.name, node.reason) for node in split.between] == [
        ("cpu", "it is between cpu and cuda:0"),
        ("take", "it is between cpu and cuda:0"),
    ]
    assert split.parts[0].example_inputs == [here, number]


def unwrapped(function: Any, *inputs: Any) -> Any:
    """Call a compiled function; an error of its backend as it was raised."""
    try:
        return function(*inputs)
    except BackendCompilerFailed as error:
        raise error.inner_exception from None


def test_the_place_of_a_tensor_elsewhere_is_named() -> None:
    compiled = torch.compile(lambda x: x.to("meta"), backend="hidet")
    with pytest.raises(ImportFailed, match=r"the result of to at .*test_devices\.py:\d+ on device meta"):
        unwrapped(compiled, torch.zeros(3))


class Another:
    """A plug-in with another target for the CPU."""

    HIDET_API = 1

    def hidet_targets(self) -> list[TargetSpec]:
        return [TargetSpec(name="another", kind="cpu", devices=("cpu",), load="another_target:AnotherTarget")]


def note_contexts(monkeypatch: pytest.MonkeyPatch, note: Callable[[CompileContext], None]) -> None:
    """Tell of each graph that is compiled, or found compiled."""
    compile_graph, recall_graph = running.compile_graph, running.recall_graph

    def compiled(graph: Any, ctx: CompileContext) -> Any:
        note(ctx)
        return compile_graph(graph, ctx)

    def recalled(key: Any, graph: Any, ctx: CompileContext) -> Any:
        found = recall_graph(key, graph, ctx)
        if found is not None:
            note(ctx)
        return found

    monkeypatch.setattr(running, "compile_graph", compiled)
    monkeypatch.setattr(running, "recall_graph", recalled)


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Has target "another"; gives the names of targets that graphs are compiled for."""
    module: Any = ModuleType("another_target")
    module.AnotherTarget = type("AnotherTarget", (CpuTarget,), {"name": "another"})
    monkeypatch.setitem(sys.modules, "another_target", module)
    asked: list[str] = []
    note_contexts(monkeypatch, lambda ctx: asked.append(ctx.target.name))
    with use(Another):
        yield asked


def test_the_target_may_be_chosen(another: list[str]) -> None:
    for options in ({"target": "another"}, {"target": "another", "threads": 1}, {}):
        torch.compiler.reset()
        compiled = torch.compile(lambda x: x + 1, backend="hidet", options=options)
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
    assert another == ["another", "another", "cpu"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("anothr", "target 'anothr' is unknown.*\nhint: did you mean 'another'"),
        ("cuda", "target 'cuda' is for tensors on cuda, the graph has argument 0 on cpu"),
        (7, "option target takes the name of a target, got 7"),
    ],
)
def test_a_target_that_does_not_fit_is_refused(another: list[str], target: object, message: str) -> None:
    with pytest.raises((OptionError, ImportFailed), match=message):
        unwrapped(torch.compile(lambda x: x + 1, backend="hidet", options={"target": target}), torch.zeros(2))


def test_a_chosen_target_is_for_its_own_device_alone(another: list[str]) -> None:
    here, there = torch.device("cpu"), torch.device("cuda:1")
    found = {here: "argument 0", there: "argument 1"}
    assert targets_of_devices(found, "another") == {here: "another", there: "cuda:1"}
    assert targets_of_devices(found, "cuda") == {here: "cpu", there: "cuda:1"}
    assert targets_of_devices(found, "cuda:sm_90a") == {here: "cpu", there: "cuda:sm_90a"}


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mode of every graph that is compiled."""
    asked: list[str] = []
    note_contexts(monkeypatch, lambda ctx: asked.append(ctx.options.mode))
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
