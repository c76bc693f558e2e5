"""Subclasses of tensors and parameters: results have the class that eager mode gives, and no program ends."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import hidet.torch
from hidet.errors import FallbackWarning


class Plain(torch.Tensor):
    pass


class WithMember(torch.Tensor):
    extra = 3


class Tagged(nn.Parameter):
    tag: object

    def __new__(cls, data: torch.Tensor, tag: object = None, requires_grad: bool = True) -> Tagged:
        made = super().__new__(cls, data, requires_grad)
        made.tag = tag
        return made


class Untouched(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


X = torch.arange(9.0).view(3, 3)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: x * 2 + 1,
    "with a plain tensor": lambda x: x @ torch.ones(3, 3),
    "several results": lambda x: (x * 2, torch.ones(3) * 2, x.sum(0)),
    "in place": lambda x: x.clone().mul_(2),
}


def _classes(tree: Any) -> list[type]:
    return [type(leaf) for leaf in torch.utils._pytree.tree_leaves(tree)]


@pytest.mark.parametrize("kind", [Plain, WithMember])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_subclass_without_behaviour_does_not_end_the_program(name: str, kind: type[torch.Tensor]) -> None:
    """red-team.md finding 8."""
    function, x = FUNCTIONS[name], X.as_subclass(kind)
    want = function(x)
    with pytest.warns(FallbackWarning, match=f"argument 0 .*{kind.__qualname__}"):
        got = torch.compile(function, backend="hidet")(x)
    assert _classes(got) == _classes(want)
    torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
def test_gradients_go_through_a_subclass() -> None:
    x = X.clone().as_subclass(Plain).requires_grad_()
    torch.compile(lambda x: (x * x).sum(), backend="hidet")(x).backward()
    torch.testing.assert_close(x.grad, 2 * X, check_dtype=False)


def test_a_strict_compilation_names_the_class() -> None:
    with pytest.raises(BackendCompilerFailed, match=r"argument 0 .*Plain is a tensor subclass"):
        torch.compile(lambda x: x * 2, backend="hidet", options={"strict": True})(X.as_subclass(Plain))


def test_a_class_that_operators_do_not_see_is_compiled() -> None:
    with hidet.torch.collect_reports() as reports:
        result = torch.compile(lambda x: x * 2, backend="hidet")(X.as_subclass(Untouched))
    assert type(result) is torch.Tensor
    assert len(reports) == 1


def test_subclasses_of_parameters_are_compiled_and_trained() -> None:
    """red-team.md finding 8: parameters with members of their own, as libraries of models have them."""
    model = nn.Linear(3, 3)
    model.weight = Tagged(torch.randn(3, 3), tag="first")
    reference = copy.deepcopy(model)
    compiled = torch.compile(model, backend="hidet", options={"strict": True})
    with hidet.torch.collect_reports() as reports:
        for call in (compiled, reference):
            call(X).square().sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(compiled(X), reference(X))
            model.weight.mul_(2)
            torch.testing.assert_close(compiled(X), model(X))
    assert reports
    torch.testing.assert_close(model.weight.grad, reference.weight.grad)
    assert isinstance(model.weight, Tagged) and model.weight.tag == "first"
