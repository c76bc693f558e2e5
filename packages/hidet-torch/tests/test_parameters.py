"""Parameters are recognised and shared; frozen ones are baked in. That they are never stale: test_weight_changes.py."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import fx, nn

import hidet.torch
from hidet.torch import compat
from hidet.torch.runner import Runner


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 4)).eval()


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(2))


def test_parameters_are_distinguished_from_inputs(model: nn.Module) -> None:
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
