"""hidet's tensors and functions beside torch's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hidet
from hidet.errors import DTypeError

SYMBOLS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul]
SYMBOLS += [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.__name__)
def test_arithmetic_takes_a_tensor_of_each_library(symbol: Callable[[Any, Any], Any]) -> None:
    """user-walk.md section 6, row 2."""
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[4.0, 2.0], [1.0, 2.0]])
    ours, theirs = hidet.from_torch(a), hidet.from_torch(b)
    for mixed in (symbol(ours, b), symbol(a, theirs)):
        assert isinstance(mixed, hidet.Tensor)
        assert torch.equal(mixed.torch(), symbol(a, b))


def test_operators_take_tensors_of_torch() -> None:
    """user-walk.md section 6, row 2."""
    a = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert torch.equal(hidet.ops.matmul(a, a).torch(), a @ a)
    assert torch.equal(hidet.ops.add(hidet.from_torch(a), a).torch(), a + a)
    with pytest.raises(DTypeError, match="an operator got a str"):
        hidet.ops.add(a, "1")


def test_a_gradient_is_not_dropped_without_a_word() -> None:
    with pytest.raises(RuntimeError, match=r"requires grad.*detach"):
        hidet.ones([2]) + torch.ones(2, requires_grad=True)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a tensor of hidet leaves": lambda x: hidet.from_torch(x * 2) + 1,
    "torch goes on with it": lambda x: (hidet.from_torch(x * 2) + 1).torch() * 3,
    "an operator of hidet": lambda x: hidet.ops.relu(hidet.asarray(x) - 2.0).torch() + x,
    "both libraries at once": lambda x: hidet.ones([3]) + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_hidet_are_called_inside_of_what_torch_compiles(name: str) -> None:
    """user-walk.md section 6, row 13: it ended in an AssertionError of torch's tracer."""
    function, x = FUNCTIONS[name], torch.tensor([1.0, 2.0, 3.0])
    got, right = torch.compile(function, backend="hidet")(x), function(x)
    assert type(got) is type(right)
    assert got.tolist() == right.tolist()
