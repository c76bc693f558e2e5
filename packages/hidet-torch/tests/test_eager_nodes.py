"""Nodes that run in torch get what torch's operators rely on, and give what the graph around them reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._higher_order_ops.while_loop import while_loop

from hidet.errors import FallbackWarning, LaunchError
from hidet.torch.mapping import table

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=dtype)


def test_a_node_gets_its_tensors_laid_out_as_torch_traced_them() -> None:
    # The row-major copy before _pdist_forward is no work for a graph that knows no layouts.
    x = _random(7, 5).t()
    torch.testing.assert_close(torch.compile(torch.pdist, backend="hidet", fullgraph=True)(x), torch.pdist(x))


def test_results_that_nobody_reads_may_have_other_shapes_than_traced() -> None:
    # Some of torch's kernels leave results empty that shape inference gives elements.
    @torch.library.custom_op("hidet_tests::double_and_more", mutates_args=())
    def double_and_more(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.new_empty(0)

    double_and_more.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))

    def function(x: torch.Tensor) -> torch.Tensor:
        doubled: torch.Tensor = double_and_more(x)[0]
        return doubled

    x = _random(4)
    assert torch.equal(torch.compile(function, backend="hidet")(x), function(x))


@pytest.mark.parametrize("name", ["inv", "cholesky"])
def test_functions_that_check_their_result_work_and_still_fail(name: str) -> None:
    """defects.md, left to torch: linear algebra. It may stay there."""
    function = getattr(torch.linalg, name)
    compiled = torch.compile(function, backend="hidet", fullgraph=True)
    x = torch.eye(3) * 2 + 0.1
    torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(torch.zeros(3, 3))


def test_a_check_takes_part_in_a_graph_with_other_work() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.linalg.solve(x + 1, y) * 2).sum(0)

    x, y = torch.eye(4) * 3, _random(4, 2)
    torch.testing.assert_close(torch.compile(function, backend="hidet", fullgraph=True)(x, y), function(x, y))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers_to_a_negative_power_fail_as_in_torch(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        torch.compile(lambda n: n**-2, backend="hidet")(torch.ones(3, dtype=dtype))


def test_integers_to_a_power_that_may_be_negative_fail_only_where_it_is() -> None:
    compiled = torch.compile(lambda n, k: n**k, backend="hidet", dynamic=True)
    n = torch.tensor([2, 3])
    assert [compiled(n, k).tolist() for k in (3, 4, 5)] == [[8, 27], [16, 81], [32, 243]]
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        compiled(n, -1)


@pytest.fixture
def halved() -> Iterator[torch.library.Library]:
    """A custom operator whose shape for tracing is not the one that it returns."""
    library = torch.library.Library("hidet_test_eager", "DEF")
    library.define("halved(Tensor x) -> Tensor")
    library.impl("halved", lambda x: x[: len(x) // 2].clone(), "CPU")
    library._register_fake("halved", torch.empty_like)
    yield library
    library._destroy()


def test_a_result_of_another_shape_than_traced_is_an_error_that_names_the_node(halved: torch.library.Library) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.hidet_test_eager.halved(x) * 2

    with pytest.raises(LaunchError, match=r"hidet_test_eager\.halved.*shape \[1, 3\], expected \[2, 3\]"):
        torch.compile(function, backend="hidet")(_random(2, 3))


def test_what_torch_refuses_is_refused() -> None:
    """defects.md D2."""
    with pytest.raises(NotImplementedError, match="adaptive_max_pool2d"):
        torch.compile(nn.AdaptiveMaxPool2d(5), backend="hidet")(torch.ones(1, 3, 4, dtype=torch.long))


def test_numbers_among_the_results_of_a_node_in_torch() -> None:
    """A loop that carries a number returned None for it."""

    def function(start: int, x: torch.Tensor) -> Any:
        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (start, x))

    def used(start: int, x: torch.Tensor) -> torch.Tensor:
        count, y = function(start, x)
        return y * count + count

    for each in (function, used):
        torch._dynamo.reset()
        compiled = torch.compile(each, backend="hidet", dynamic=True)
        for start, size in ((0, 3), (1, 5), (2, 4)):
            made, expected = compiled(start, _random(size)), each(start, _random(size))
            torch.testing.assert_close(made, expected)


STRIDED: dict[str, Callable[..., Any]] = {
    "as many elements": lambda n: torch.ones(_strided(n).stride(0)) * _strided(n).sum(),
    "a number": lambda n: _strided(n) + _strided(n).stride(0),
    "the result": lambda n: (_strided(n), n + 1),
}


@torch.library.custom_op("hidet_tests::strided", mutates_args={})
def _strided(n: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided((3, 2), (int(n.item()), 1)).fill_(3)


@_strided.register_fake
def _(n: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided((3, 2), (torch.library.get_ctx().new_dynamic_size(), 1))


@pytest.mark.parametrize("function", STRIDED.values(), ids=STRIDED)
def test_strides_of_a_result_that_depend_on_data(function: Callable[..., Any]) -> None:
    """defects.md C5: test_dynamic_stride_nobreak of PyTorch."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend="hidet", fullgraph=True)
        for n in (torch.tensor(2), torch.tensor(5)):
            torch.testing.assert_close(compiled(n), function(n))


def _fail(*arguments: object, **named: object) -> object:
    raise AttributeError("a mistake")


def test_a_handler_that_fails_is_named_and_its_node_runs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """red-team.md finding 6: an error of the compiler's own making does not end the program."""
    monkeypatch.setitem(dict_of_handlers(), "aten.sin.default", _fail)
    x = _random(3)
    with pytest.warns(
        FallbackWarning, match=r"aten.sin.default .*bug of hidet.*AttributeError: a mistake \(test_eager"
    ):
        made = torch.compile(lambda x: x.sin() + 1, backend="hidet")(x)
    assert torch.equal(made, x.sin() + 1)


def test_a_handler_that_fails_is_an_error_under_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """red-team.md finding 6."""
    monkeypatch.setitem(dict_of_handlers(), "aten.sin.default", _fail)
    with pytest.raises(BackendCompilerFailed, match=r"bug of hidet.*AttributeError: a mistake"):
        torch.compile(lambda x: x.sin() + 1, backend="hidet", options={"strict": True})(_random(3))


def dict_of_handlers() -> dict[str, Any]:
    found = table()
    assert isinstance(found, dict)
    return found
