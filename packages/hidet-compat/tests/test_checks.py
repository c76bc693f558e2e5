"""`hidet.testing.check_*` passes what is right and fails what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hidet
from hidet import testing
from hidet.lang import attrs, printf

ONE = {
    "check_unary": (([3, 4],), np.exp, hidet.ops.exp),
    "check_unary_dynamic": (([("n", 3), 4],), np.exp, hidet.ops.exp),
    "check_binary": (([3, 4], [4]), np.subtract, hidet.ops.subtract),
    "check_binary_dynamic": (([("n", 3), 4], [4, ("m", 5)]), np.matmul, hidet.ops.matmul),
    "check_ternary": (
        ([3], [3], [3]),
        lambda a, b, c: np.where(a > 0, b, c),
        lambda a, b, c: hidet.ops.where(a > 0.0, b, c),
    ),
    "check_torch_unary": (([3, 4],), torch.tanh, hidet.ops.tanh),
    "check_torch_binary": (([3, 4], [4]), torch.sub, hidet.ops.subtract),
    "check_torch_binary_dynamic": (([("n", 3), 4], [("n", 3), 4]), torch.sub, hidet.ops.subtract),
    "check_torch_ternary": (([3], [3], [3]), lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("name", ONE)
def test_equal_functions_pass_and_others_fail(name) -> None:
    shapes, reference, function = ONE[name]
    check = getattr(testing, name)
    check(*shapes, reference, function, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError):
        check(*shapes, reference, lambda *given: function(*given) + 1.0, rtol=1e-4, atol=1e-5)


def test_tensors_of_torch_are_checked_as_they_are() -> None:
    a, b = torch.randn(3), torch.randn(3)
    testing.check_torch_binary_with_inputs(a, b, torch.sub, hidet.ops.subtract)
    with pytest.raises(AssertionError):
        testing.check_torch_binary_with_inputs(a, b, torch.add, hidet.ops.subtract)


def test_integers_are_checked_as_integers() -> None:
    testing.check_unary([4], np.negative, hidet.ops.negative, dtype="int32")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_of_torch_is_checked_compiled(dynamic) -> None:
    testing.check_module(torch.nn.Linear(3, 4), [torch.randn(2, 3)], dynamic=dynamic)


def test_a_model_that_compiles_to_something_else_fails() -> None:
    class Random(torch.nn.Module):
        def forward(self, x):
            return x + torch.randn(3)

    with pytest.raises(AssertionError):
        testing.check_module(Random(), [torch.zeros(3)], device="cpu")


def test_tensors_of_both_libraries_are_compared() -> None:
    testing.assert_torch_allclose(hidet.ones([2]), torch.ones(2))
    with pytest.raises(AssertionError):
        testing.assert_torch_allclose(hidet.ones([2]), torch.zeros(2))


def test_what_python_and_compiled_code_print_is_captured() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def launch():
            attrs.func_kind = "public"
            printf("compiled\n")

    built = module.build()
    with testing.capture_stdout() as captured:
        print("python")
        built()
    assert captured.getvalue() == "python\ncompiled\n"


def test_devices_have_the_names_that_torch_has() -> None:
    assert [testing.device_to_torch(device) for device in ("cpu", "cuda:1", "vcuda")] == ["cpu", "cuda:1", "cuda"]
