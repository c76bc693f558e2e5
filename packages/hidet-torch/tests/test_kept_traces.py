"""Graphs of dynamo that were traced before: what was made of them comes out of the cache."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hidet
import hidet.torch
from hidet.torch import backend, compat


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each graph that AOTAutograd traces."""
    found: list[int] = []
    run = compat.run_aot

    def counted(*args: Any, **kwargs: Any) -> Any:
        found.append(len(found))
        return run(*args, **kwargs)

    monkeypatch.setattr(compat, "run_aot", counted)
    return found


class Block(nn.Module):
    """Attention, a norm, and layers that share nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.inner(self.norm(x)).view(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        y = self.outer(y.transpose(1, 2).reshape(2, 8, 16)) + x
        return nn.functional.gelu(y), y.mean(dim=-1)


def block() -> tuple[Block, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return Block().eval(), (torch.randn(2, 8, 16), torch.rand(2, 8) > 0.2)


def compiled_anew(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="hidet", options=options)


def test_a_model_that_was_compiled_before_is_not_traced_again(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        expected = model(*inputs)
        for _ in range(2):
            with hidet.torch.collect_reports() as reports:
                results = compiled_anew(model)(*inputs)
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(result, wanted)
    assert len(traces) == 1
    assert [report.is_kept for report in reports] == [True]


def test_weights_of_the_second_model_are_its_own(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.add_(0.5)
        compiled = compiled_anew(other)
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
        other.outer.weight.data = torch.randn(16, 16) / 16
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
        other.norm.bias.data.numpy()[:] = 3
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
    assert len(traces) == 1


def test_a_forward_that_waits_for_its_backward_is_kept_and_gives_gradients(traces: list[int]) -> None:
    model, inputs = block()
    compiled_anew(model)(*inputs)
    assert len(traces) == 1
    compiled = compiled_anew(model)
    result = compiled(*inputs)[0]
    assert len(traces) == 1
    result.sum().backward()
    found = model.outer.weight.grad
    model.zero_grad()
    model(*inputs)[0].sum().backward()
    torch.testing.assert_close(found, model.outer.weight.grad)


def test_what_is_called_with_other_arguments_is_traced(traces: list[int]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    x = torch.randn(4, 6)
    with torch.no_grad():
        for given in (x, x, torch.randn(6, 4).t(), x.double(), torch.randn(4, 5), torch.zeros(4, 12)[:, :6]):
            torch.testing.assert_close(compiled_anew(function)(given), function(given))
    assert len(traces) == 5


@pytest.mark.parametrize("number", [2, 2.0, -0.0, 0.0, True])
def test_numbers_in_a_graph_are_told_apart(number: float, traces: list[int]) -> None:
    x = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        for factor in (3, number):
            result = compiled_anew(lambda x, factor=factor: torch.relu(x) * factor)(x)
            assert torch.equal(result, torch.relu(x) * factor)
            assert torch.equal(result.signbit(), (torch.relu(x) * factor).signbit())
    assert len(traces) == 2


def test_settings_of_torch_are_told_apart(traces: list[int]) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad():
        compiled_anew(torch.mm)(x, x + 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert compiled_anew(torch.mm)(x, x + 1).dtype is torch.bfloat16
        compiled_anew(torch.mm, threads=1)(x, x + 1)
        compiled_anew(torch.mm)(x, x + 1)
    assert len(traces) == 3


def _overwrites(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


def _returns_its_argument(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x * 2


def _returns_a_view_of_its_argument(x: torch.Tensor) -> torch.Tensor:
    return (x.t() + 0) if x.dim() > 2 else x.t()


def _returns_a_result_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.relu(x)
    return y, y.view(-1)


@pytest.mark.parametrize(
    ("function", "times"),
    [
        (_overwrites, 2),
        (_returns_a_view_of_its_argument, 2),
        # Dynamo returns the argument by itself, and results that share memory are views that the runner makes.
        (_returns_its_argument, 1),
        (_returns_a_result_twice, 1),
    ],
)
def test_what_needs_more_than_a_call_is_traced_each_time(
    function: Callable[..., Any], times: int, traces: list[int]
) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad():
        for _ in range(2):
            given, wanted = x.clone(), x.clone()
            results, expected = _tuple(compiled_anew(function)(given)), _tuple(function(wanted))
            for result, right in zip(results, expected, strict=True):
                torch.testing.assert_close(result, right)
            torch.testing.assert_close(given, wanted)
            assert _sharing([given, *results]) == _sharing([wanted, *expected])
    assert len(traces) == times


def _sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the number of the first one that lies in the same storage."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [places.index(place) for place in places]


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_sizes_that_depend_on_data_are_traced_each_time(traces: list[int]) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad(), compat.tracing_everything():
        for _ in range(2):
            assert torch.equal(compiled_anew(lambda x: x[x > 0] * 2)(x), x[x > 0] * 2)
    assert len(traces) == 2


def test_arguments_that_share_memory_are_traced_each_time(traces: list[int]) -> None:
    whole = torch.randn(8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled_anew(torch.add)(whole[:4], whole[4:]), whole[:4] + whole[4:])
    assert len(traces) == 2


def test_a_function_put_into_torch_by_a_user_is_not_taken_for_torchs(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(4)
    with torch.no_grad():
        assert torch.equal(compiled_anew(lambda x: torch.relu(x))(x), torch.relu(x))
        monkeypatch.setattr(torch, "relu", lambda x: x * 3)
        assert torch.equal(compiled_anew(lambda x: torch.relu(x))(x), x * 3)


def test_random_numbers_go_on_as_in_the_first_process(traces: list[int]) -> None:
    found = []
    with torch.no_grad():
        for _ in range(2):
            compiled = compiled_anew(lambda x: nn.functional.dropout(x, 0.5, training=True))
            torch.manual_seed(3)
            found.append(torch.stack([compiled(torch.ones(64)) for _ in range(2)]))
    assert torch.equal(*found)
    assert not torch.equal(found[0][0], found[0][1])


def test_who_turns_the_cache_off_has_it_traced(traces: list[int]) -> None:
    with torch.no_grad():
        for _ in range(2):
            compiled_anew(torch.relu, cache=False)(torch.randn(4))
    assert len(traces) == 2


def test_a_kept_trace_has_its_graph_for_who_asks(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        compiled = compiled_anew(model)
        compiled(*inputs)
    (part,) = hidet.compiler.graphs.compiled_parts(compiled)
    assert {node.op.name for node in part.imported.graph.nodes} >= {"layer_norm", "gelu"}
    assert backend.compile_graph(part.imported.graph, part.imported.ctx).report().is_kept
