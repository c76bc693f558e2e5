"""Operators on lists of tensors, and the optimisers that call them, are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hidet.torch import collect_reports

XS = [torch.linspace(-2, 3, 7), torch.ones(2, 3) * 0.5, torch.tensor(1.5)]
YS = [torch.linspace(1, 2, 7), torch.full((2, 3), 3.0), torch.tensor(-2.0)]
NUMBERS = [2.0, 3.0, 0.5]

CASES: dict[str, Callable[[list[torch.Tensor], list[torch.Tensor]], Any]] = {
    "number": lambda x, y: torch._foreach_add(x, 2.0),
    "lists": lambda x, y: torch._foreach_add(x, y, alpha=3),
    "numbers": lambda x, y: torch._foreach_mul(x, NUMBERS),
    "one tensor": lambda x, y: torch._foreach_mul(x, y[2]),
    "addcdiv": lambda x, y: torch._foreach_addcdiv(x, x, y, 0.5),
    "addcdiv by numbers": lambda x, y: torch._foreach_addcdiv(x, x, y, NUMBERS),
    "addcmul by a number": lambda x, y: torch._foreach_addcmul(x, x, y, 0.5),
    "power of a number": lambda x, y: torch._foreach_pow(2.0, x),
    "at least": lambda x, y: torch._foreach_maximum(x, 1.0),
    "at most": lambda x, y: torch._foreach_minimum(x, y),
    "lerp": lambda x, y: torch._foreach_lerp(x, y, 0.25),
    "norms": lambda x, y: torch._foreach_norm(x, 1.0),
    "in place": lambda x, y: (torch._foreach_mul_(x, 2.0), torch._foreach_copy_(y, x), torch._foreach_zero_(x)),
    "unary": lambda x, y: torch._foreach_exp(torch._foreach_neg(x)),
}


@pytest.mark.parametrize("name", CASES)
def test_lists_are_computed_tensor_by_tensor(name: str, check_compiled: Callable[..., Any]) -> None:
    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        xs, ys = list(tensors[:3]), list(tensors[3:])
        result = CASES[name](xs, ys)
        return [*(result if isinstance(result, list) else ()), *[x + 0 for x in (*xs, *ys)]]

    check_compiled(function, *XS, *YS, strict=True)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_an_optimiser_of_lists_leaves_nothing_to_torch(kind: type[torch.optim.Optimizer]) -> None:
    def steps(compiled: bool) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(x.clone()) for x in XS]
        optimizer = kind(parameters, lr=0.1, foreach=True, weight_decay=0.1)
        for parameter, gradient in zip(parameters, YS, strict=True):
            parameter.grad = gradient.clone()
        step = torch.compile(optimizer.step, backend="hidet") if compiled else optimizer.step
        for _ in range(3):
            step()
        return [parameter.detach() for parameter in parameters]

    with collect_reports() as reports:
        ours = steps(True)
    assert reports
    assert not [report.nodes.names for report in reports if report.nodes.eager]
    for a, b in zip(ours, steps(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
