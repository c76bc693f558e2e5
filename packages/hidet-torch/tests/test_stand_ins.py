"""What stands for functions, methods and modules of torch, in operators of hidet."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import hidet
from hidet.torch import stand_ins


@pytest.fixture(autouse=True)
def _as_before():
    torch.compiler.reset()
    yield
    for table in (stand_ins.FUNCTIONS, stand_ins.MODULES, stand_ins.REFUSED):
        table.clear()
    torch.compiler.reset()


def compiled(function, *given):
    with torch.no_grad():
        return torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True})(*given)


def test_a_function_is_what_stands_for_it() -> None:
    stand_ins.FUNCTIONS[functional.softmax] = lambda x, dim, **more: hidet.ops.softmax(x, dim) + 1.0
    x = torch.randn(2, 3)
    found = compiled(lambda x: functional.softmax(x * 2, dim=-1) * 3, x)
    torch.testing.assert_close(found, (functional.softmax(x * 2, dim=-1) + 1) * 3)


def test_a_method_and_an_operator_are_what_stands_for_them() -> None:
    import operator

    stand_ins.FUNCTIONS[torch.Tensor.relu] = lambda x: hidet.ops.maximum(x, 0.5)
    stand_ins.FUNCTIONS[operator.add] = hidet.ops.subtract
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(compiled(lambda x, y: x.relu() + y, x, y), x.clamp(min=0.5) - y)


def test_several_results_and_lists_of_tensors_are_passed() -> None:
    stand_ins.FUNCTIONS[torch.cat] = lambda tensors, dim=0: hidet.ops.concat(tensors, dim) * 2.0
    stand_ins.FUNCTIONS[torch.chunk] = lambda x, chunks, dim=0: hidet.ops.split(x, chunks, dim)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    a, b = compiled(lambda x, y: torch.chunk(torch.cat([x, y], dim=1), 2, 1), x, y)
    torch.testing.assert_close((a, b), (2 * x, 2 * y))


def test_gradients_are_those_of_torch() -> None:
    calls = []
    stand_ins.FUNCTIONS[torch.tanh] = lambda x: calls.append(x) or hidet.ops.tanh(x)
    x = torch.randn(3, requires_grad=True)
    torch.compile(lambda x: torch.tanh(x) * 2, backend="hidet")(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * (1 - torch.tanh(x.detach()) ** 2))


def test_what_is_refused_is_named() -> None:
    stand_ins.REFUSED.update([torch.tanh, torch.Tensor.relu])
    with pytest.raises(RuntimeError, match=r"not supported: torch\.tanh, torch\.Tensor\.relu"):
        compiled(lambda x: torch.tanh(x).relu(), torch.randn(3))


def test_a_module_is_what_stands_for_it_and_the_model_stays_as_it_was() -> None:
    class Twice:
        def __init__(self, module):
            self.weight = hidet.from_torch(module.weight.detach())

        def __call__(self, x):
            return hidet.ops.matmul_nt(x, self.weight) * 2.0

    stand_ins.MODULES[torch.nn.Linear] = Twice
    model = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3)
    with torch.no_grad():
        found = hidet.frontend.from_torch(model)(hidet.from_torch(x)).torch()
        torch.testing.assert_close(found, 2 * model(x))
    assert type(model[0]) is torch.nn.Linear


def test_a_call_runs_in_torch_where_it_is_not_compiled() -> None:
    x = torch.randn(3)
    found = stand_ins.call_in_torch(lambda x, factor: x * factor, torch.mul, x, 3.0)
    torch.testing.assert_close(found, 3 * x)


def test_a_call_that_was_seen_before_is_kept_once() -> None:
    def scaled(x, factor):
        return x * factor

    x, before = torch.ones(2), len(stand_ins._CALLS)
    found = [stand_ins.call_in_torch(scaled, torch.mul, x, factor).tolist() for factor in (2.0, 2.0, 3.0, 2)]
    assert found == [[2.0, 2.0], [2.0, 2.0], [3.0, 3.0], [2.0, 2.0]]
    assert len(stand_ins._CALLS) == before + 3
