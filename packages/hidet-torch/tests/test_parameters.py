"""Parameters are recognised, prepared once, and never stale."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import fx, nn

import hidet.torch
from hidet.runtime.prepared import ParameterSets
from hidet.torch import compat
from hidet.torch.runner import Runner


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 4)).eval()


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(2))


def _assert_follows(compiled: Any, model: nn.Module) -> None:
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))


def test_an_update_in_place_shows_in_the_next_call(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="hidet")
    _assert_follows(compiled, model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    _assert_follows(compiled, model)


def test_loaded_weights_show_in_the_next_call(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="hidet")
    _assert_follows(compiled, model)
    other = {name: value + 0.25 for name, value in model.state_dict().items() if value.is_floating_point()}
    model.load_state_dict(other, strict=False)
    _assert_follows(compiled, model)


def test_replaced_data_shows_in_the_next_call(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="hidet")
    _assert_follows(compiled, model)
    linear = model[0]
    assert isinstance(linear, nn.Linear)
    linear.weight.data = linear.weight.data + 1
    _assert_follows(compiled, model)


def test_a_changed_buffer_shows_in_the_next_call(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="hidet")
    _assert_follows(compiled, model)
    norm = model[2]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    norm.running_var.fill_(4.0)
    _assert_follows(compiled, model)


def test_weights_made_in_inference_mode_are_not_stale_either(model: nn.Module) -> None:
    with torch.inference_mode():
        fresh = copy.deepcopy(model)
        for parameter in fresh.parameters():
            parameter.data = parameter.data.clone()
        compiled = torch.compile(fresh, backend="hidet")
        torch.testing.assert_close(compiled(X), fresh(X))
        fresh[0].weight.mul_(2)
        torch.testing.assert_close(compiled(X), fresh(X))


def test_parameters_are_told_from_inputs(model: nn.Module) -> None:
    seen: list[bool] = []

    def look(gm: fx.GraphModule, inputs: Any) -> fx.GraphModule:
        seen.extend(compat.is_static_placeholder(node) for node in gm.graph.nodes if node.op == "placeholder")
        return gm

    with torch.no_grad():
        torch.compile(model, backend=look)(X)
    assert (seen.count(False), seen.count(True)) == (1, 8)


def test_identical_layers_share_one_compilation() -> None:
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)).eval()
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        step = torch.compile(lambda layer, x: layer(x).relu(), backend="hidet")
        for layer in layers:
            torch.testing.assert_close(step(layer, X), layer(X).relu())
    assert len(reports) == 1


def test_layers_that_share_a_compilation_are_prepared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    run = ParameterSets._make

    def counting(self: ParameterSets, *arguments: Any) -> Any:
        prepared.append(1)
        return run(self, *arguments)

    monkeypatch.setattr(ParameterSets, "_make", counting)
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)).eval()
    with torch.no_grad():
        step = torch.compile(lambda layer, x: layer(x).relu(), backend="hidet")
        for _ in range(3):
            for layer in layers:
                torch.testing.assert_close(step(layer, X), layer(X).relu())
    assert len(prepared) == 4


def test_memory_of_a_dropped_model_is_freed_although_its_code_is_kept(model: nn.Module) -> None:
    linear = model[0]
    assert isinstance(linear, nn.Linear)
    memory = weakref.ref(linear.weight)
    others = [item for item in gc.get_objects() if type(item) is Runner]
    compiled = torch.compile(lambda module, x: module(x), backend="hidet")
    with torch.no_grad():
        for layer in (linear, nn.Linear(8, 16)):
            torch.testing.assert_close(compiled(layer, X), layer(X))
    (runner,) = (item for item in gc.get_objects() if type(item) is Runner and not any(item is o for o in others))
    assert runner._compiled is not None and runner._compiled._parameters is not None
    assert len(runner._compiled._parameters.sets) == 2
    del layer, linear
    model[0] = nn.Identity()
    gc.collect()
    assert memory() is None
    assert runner._compiled._parameters.sets == ()


def test_values_written_behind_torchs_back_show_once_torch_is_told(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="hidet")
    _assert_follows(compiled, model)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    torch.autograd.graph.increment_version(tuple(model.parameters()))
    _assert_follows(compiled, model)


def test_frozen_parameters_are_baked_in_for_each_module() -> None:
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)).eval()
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        step = torch.compile(lambda layer, x: layer(x).relu(), backend="hidet", options={"freeze": True})
        for layer in (*layers, *layers):
            torch.testing.assert_close(step(layer, X), layer(X).relu())
        before = step(layers[0], X)
        next(layers[0].parameters()).zero_()
        assert torch.equal(step(layers[0], X), before)
    assert len(reports) == 2


def test_a_reset_of_dynamo_frees_compiled_graphs() -> None:
    before = _living_runners()
    compiled = torch.compile(lambda x: x * 3, backend="hidet")
    compiled(X)
    assert _living_runners() == before + 1
    del compiled
    torch._dynamo.reset()
    assert _living_runners() == before


def _living_runners() -> int:
    gc.collect()
    return sum(type(item) is Runner for item in gc.get_objects())
