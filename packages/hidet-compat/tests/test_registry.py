"""`hidet.graph.frontend.torch.registry`: what users say of functions of torch."""

from __future__ import annotations

import pytest
import torch

import hidet
from hidet.errors import OptionError
from hidet.graph.frontend.torch import from_torch
from hidet.graph.frontend.torch.dynamo_backends import hidet_backend, register_dynamo_backends
from hidet.graph.frontend.torch.register_functions import register_function
from hidet.graph.frontend.torch.registry import HidetModule, Registry, register_module


@pytest.fixture(autouse=True)
def _as_before():
    torch.compiler.reset()
    yield
    for table in (Registry.registered_functions, Registry.registered_methods, Registry.registered_modules):
        table.clear()
    torch.compiler.reset()


def test_the_function_that_the_arguments_fit_is_taken() -> None:
    @register_function(torch.clamp)
    def from_below(x, min):
        return hidet.ops.maximum(x, min)

    @register_function("torch.clamp")
    def to_both(x, min, max):
        return hidet.ops.clamp(x, min, max) * 2.0

    clamp = Registry.registered_functions[torch.clamp]
    x = hidet.asarray([-1.0, 0.5, 3.0])
    assert clamp(x, 0.0).tolist() == [0.0, 0.5, 3.0]
    assert clamp(x, 0.0, max=1.0).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError, match=r"takes \(Tensor\)"):
        clamp(x)
    given = torch.tensor([-1.0, 3.0])
    found = torch.compile(lambda x: torch.clamp(x, 0.0, 1.0), backend="hidet")(given)
    assert found.tolist() == [0.0, 2.0]


def test_what_is_deleted_is_gone_and_comes_back() -> None:
    functions = Registry.registered_functions
    assert torch.tanh in functions
    del functions[torch.tanh]
    assert torch.tanh not in functions
    with pytest.raises(KeyError):
        del functions[torch.tanh]
    with pytest.raises(RuntimeError, match=r"torch\.tanh"):
        torch.compile(lambda x: torch.tanh(x), backend="hidet")(torch.ones(2))
    functions.clear()
    torch.compiler.reset()
    assert torch.compile(lambda x: torch.tanh(x), backend="hidet")(torch.zeros(2)).tolist() == [0.0, 0.0]


def test_a_function_is_found_by_its_name() -> None:
    with pytest.raises(OptionError, match=r"torch\.nothing is no function"):
        register_function("torch.nothing")


def test_a_class_stands_for_modules_and_has_their_parameters() -> None:
    @register_module(torch.nn.Linear)
    class Linear(HidetModule):
        def __call__(self, x):
            assert self.param("nothing", optional=True) is None
            return hidet.ops.matmul_nt(x, self.param("weight")) * float(self.mod.out_features)

    assert dict(Registry.registered_modules) == {torch.nn.Linear: Linear}
    model, x = torch.nn.Linear(2, 3, bias=False), torch.randn(1, 2)
    with torch.no_grad():
        torch.testing.assert_close(from_torch(model)(hidet.from_torch(x)).torch(), 3 * model(x))
    with pytest.raises(KeyError, match="Linear has no parameter bias"):
        Linear(model).param("bias")
    del Registry.registered_modules[torch.nn.Linear]
    assert not Registry.registered_modules


def test_torch_compiles_by_the_old_place_of_the_backend() -> None:
    register_dynamo_backends()
    assert torch.compile(lambda x: x * 2, backend=hidet_backend)(torch.ones(2)).tolist() == [2.0, 2.0]
