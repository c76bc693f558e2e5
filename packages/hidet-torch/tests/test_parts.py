"""Graphs in parts: what goes from one to the next, in place, through views and backwards. No GPU is needed here.

Functions stand for devices: `sin` and `exp` are on two of them, and `relu` is between. All are compiled for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from hidet.context import CompileContext, Options, make_context
from hidet.errors import FallbackWarning
from hidet.torch import backend, devices

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")

ONE, OTHER = torch.device("cpu"), torch.device("cpu", 0)
DEVICES = {
    **dict.fromkeys(("sin", "cos", "linear", "batch_norm"), frozenset([ONE])),
    **dict.fromkeys(("exp", "mul", "imul", "iadd", "add_", "mul_"), frozenset([OTHER])),
    **dict.fromkeys(("relu", "softmax"), frozenset([ONE, OTHER])),
}


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that are compiled for, in order."""
    compiled: list[str] = []

    def on(node: fx.Node) -> frozenset[torch.device]:
        return DEVICES.get(getattr(node.target, "__name__", str(node.target)), frozenset())

    def context(target: str, options: Options) -> CompileContext:
        compiled.append(target)
        return make_context("cpu", options)

    monkeypatch.setattr(devices, "_devices_of_node", on)
    monkeypatch.setattr(backend, "devices_of", lambda gm, inputs: {ONE: "argument 0", OTHER: "argument 1"})
    monkeypatch.setattr(backend, "make_context", context)
    torch._dynamo.reset()
    return compiled


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin()
    return y.exp(), y.t().cos(), y[1:].relu()


def in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin()
    part = y[1:]
    part.add_(1)
    w = y.relu()
    y.mul_(2)
    return y, w, part.softmax(0)


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.sin().exp()
    return y * x.cos().relu()


def mixed_precision(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(x, x).sin().exp()
    return y.float() * 2


def sizes(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x.sin().reshape(-1).exp() * x.shape[0], x.shape[1]


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "chain": lambda x: x.sin().exp().relu().cos().log1p(),
    "independent": lambda x: (x.sin(), x.exp(), x.cos()),
    "views": views,
    "in place": in_place,
    "no_grad": without_gradient,
    "autocast": mixed_precision,
    "sizes": sizes,
}


def require_equal(function: Callable[..., Any], run: Callable[..., Any], x: torch.Tensor, has_gradient: bool) -> None:
    """Results, and gradients of the input, of two functions."""
    found = []
    for call in (function, run):
        given = x.clone().requires_grad_(has_gradient)
        results = call(given)
        tensors = [item for item in torch.utils._pytree.tree_leaves(results) if isinstance(item, torch.Tensor)]
        if has_gradient:
            torch.stack([item.sum() for item in tensors if item.requires_grad]).sum().backward()
        found.append((results, given.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_gradient", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.thorough(every=4)
def test_parts_give_what_the_whole_gives(name: str, has_gradient: bool, parts: list[str]) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend="hidet", dynamic=name == "sizes")
    for rows in (4, 4, 7):
        require_equal(function, compiled, torch.rand(rows, 6) + 0.5, has_gradient)
    assert {"cpu", "cpu:0"} <= set(parts)


def test_parts_train_a_module() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.BatchNorm1d(6))
    compiled = torch.compile(lambda x: module(x).exp(), backend="hidet")
    require_equal(lambda x: module(x).exp(), compiled, torch.rand(4, 6), has_gradient=True)


def test_parts_of_a_module_in_eval_mode_have_gradients_when_they_are_asked_for() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    compiled = torch.compile(lambda x: module(x).exp(), backend="hidet")
    x = torch.rand(4, 6)
    gradients = []
    for run in (lambda x: module(x).exp(), compiled, compiled):
        module.zero_grad()
        run(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-4, atol=1e-5)


def test_parts_write_to_inputs() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        z = x.sin()
        y.mul_(z)
        return z.relu(), y

    compiled = torch.compile(write, backend="hidet")
    for _ in range(2):
        given, expected = (torch.ones(3), torch.full((3,), 2.0)), (torch.ones(3), torch.full((3,), 2.0))
        torch.testing.assert_close(compiled(*given), write(*expected))
        torch.testing.assert_close(given, expected)


def test_what_is_between_devices_is_named() -> None:
    with pytest.warns(FallbackWarning, match=r"relu \(1x\) at .*test_parts\.py:\d+: it is between cpu and cpu:0"):
        torch.compile(lambda x: x.sin().relu().exp(), backend="hidet")(torch.rand(3))
