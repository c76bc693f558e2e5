"""What autograd learns of Hidet Script operators that write to their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hidet
import hidet.torch
from hidet.errors import LaunchError
from hidet.lang import f32

N = hidet.dims.symbol("n")

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


@hidet.script
def scale(x: f32[N], factors: f32[N]):
    for i in range(N):
        x[i] = x[i] * factors[i]


@hidet.script
def scale_and_sum(x: f32[N], factors: f32[N], total: f32[1]):
    total[0] = 0.0
    for i in range(N):
        x[i] = x[i] * factors[i]
        total[0] += x[i]


@pytest.fixture
def change() -> Callable[..., Any]:
    return hidet.torch.register_op("hidet_test::scale", scale)


FACTORS = torch.full((4,), 3.0)


def leaf() -> torch.Tensor:
    return torch.ones(4, requires_grad=True)


def test_a_change_raises_the_version_of_its_tensor_and_of_no_other(change: Callable[..., Any]) -> None:
    x, strided = torch.ones(4), torch.ones(8)
    change(x, FACTORS)
    change(strided[::2], FACTORS)
    assert x._version > 0 and strided._version > 0 and FACTORS._version == 0


def test_a_gradient_that_needs_the_former_value_is_refused(change: Callable[..., Any]) -> None:
    x = leaf() * 1
    square = x * x
    change(x, FACTORS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_a_gradient_that_needs_no_former_value_is_right(change: Callable[..., Any]) -> None:
    x = leaf()
    copied = x * 2
    shifted = copied + 1
    change(copied, FACTORS)
    shifted.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0] * 4


def test_a_gradient_through_the_change_is_refused(change: Callable[..., Any]) -> None:
    x, total = leaf() * 1, torch.ones(4)
    change(x, FACTORS)
    change(total, leaf())
    for changed in (x, total):
        with pytest.raises(LaunchError, match="hidet_test::scale changes x, and has no gradient"):
            changed.sum().backward()


def test_results_of_a_change_have_no_gradient_either() -> None:
    operator = hidet.torch.register_op("hidet_test::scale_and_sum", scale_and_sum, outputs=["total"])
    x = leaf() * 1
    total = operator(x, FACTORS)
    assert total.item() == 12.0
    with pytest.raises(LaunchError, match="hidet_test::scale_and_sum changes x"):
        total.backward()


def test_a_view_is_changed_by_operators_that_give_nothing_else(change: Callable[..., Any]) -> None:
    total = torch.ones(4)
    change(total[:2], leaf()[:2] * 3)
    assert total.tolist() == [3.0, 3.0, 1.0, 1.0] and total.requires_grad
    operator = hidet.torch.register_op("hidet_test::scale_and_sum", scale_and_sum, outputs=["total"])
    with pytest.raises(LaunchError, match=r"argument x of .* is a view of a tensor"):
        operator(torch.ones(4)[:2], leaf()[:2])


@pytest.mark.parametrize("part", [slice(None), slice(1, 3)], ids=["whole", "view"])
def test_a_leaf_that_requires_a_gradient_is_refused_unchanged(change: Callable[..., Any], part: slice) -> None:
    x = leaf()
    with pytest.raises(LaunchError, match=r"argument x of operator hidet_test::scale is .*requires a gradient"):
        change(x if part == slice(None) else x[part], FACTORS[part])
    assert x.tolist() == [1.0] * 4


def test_a_leaf_is_changed_where_no_gradients_are_recorded(change: Callable[..., Any]) -> None:
    x = leaf()
    with torch.no_grad():
        change(x, FACTORS)
    assert x.tolist() == [3.0] * 4 and x._version > 0 and x.is_leaf
    with torch.inference_mode():
        made = torch.ones(4)
        change(made, FACTORS)
    assert made.tolist() == [3.0] * 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "hidet"])
def test_compiled_changes_leave_other_gradients_as_they_are(change: Callable[..., Any], backend: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = x.detach() + 1
        change(total, FACTORS)
        return (x * total).sum()

    x = leaf()
    torch.compile(function, backend=backend, fullgraph=True)(x).backward()
    assert x.grad is not None and x.grad.tolist() == [6.0] * 4


def test_opcheck_passes(change: Callable[..., Any]) -> None:
    torch.library.opcheck(change, (torch.ones(4), FACTORS))
    torch.library.opcheck(change, (torch.ones(8)[::2], FACTORS))
