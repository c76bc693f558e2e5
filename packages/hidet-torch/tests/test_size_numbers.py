"""Sizes as numbers: comparisons and choices of sizes as values, as conditions, and as results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

import hidet
import hidet.torch

X = torch.arange(1.0, 12.0)
CALLS = [(X[:n],) for n in (9, 4, 11, 5)]
SCALARS = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


def agree(function: Callable[..., Any], *calls: Any, strict: bool = True, **compile_options: Any) -> Any:
    """The compiled function gives what eager mode gives at every call: values, types, and Python's own numbers."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="hidet", options={"strict": strict}, **compile_options)
    for call in calls:
        made, expected = compiled(*call), function(*call)
        assert _described(made) == _described(expected), [tuple(getattr(each, "shape", each)) for each in call]
    return compiled


def _described(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return [_described(item) for item in result]
    return (result.dtype, result.tolist()) if isinstance(result, torch.Tensor) else (type(result), result)


def _chosen(condition: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    return lambda x: torch.cond(condition(x), lambda t: t + 1, lambda t: t - 1, (x,))


TRUTHS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a fill": lambda x: torch.full((2,), x.shape[0] >= 5),
    "a factor": lambda x: x * (x.shape[0] > 5),
    "a factor, used twice": lambda x: x * (x.shape[0] > 5) + (x.shape[0] > 5),
    "a fill of a mask": lambda x: x.masked_fill(x > 2, x.shape[0] > 5),
    "elements": lambda x: torch.tensor([x.shape[0] > 5, x.shape[0] == 4, x.shape[0] != 11]),
    "a tensor without axes": lambda x: torch.scalar_tensor(x.shape[0] < 5),
    "a negation": lambda x: x * torch.sym_not(x.shape[0] > 5),
    "divisibility": lambda x: torch.full((1,), x.shape[0] % 3 == 0),
    "and": lambda x: torch.full((2,), (x.shape[0] > 4) & (x.shape[0] < 10)),
    "or": lambda x: torch.full((2,), (x.shape[0] <= 4) | (x.shape[0] >= 10)),
    "of fractions": lambda x: x * (x.shape[0] / 2 > 3),
    "of rounded numbers": lambda x: x * (int(x.shape[0] * 0.7) == 6),
    "of the larger one": lambda x: x * (torch.sym_max(x.shape[0], 5) == 5),
    "a choice of sizes": lambda x: x * torch.sym_ite(x.shape[0] > 5, x.shape[0] * 2, x.shape[0] + 7),
    "a choice of floats": lambda x: x * torch.sym_ite(x.shape[0] > 5, x.shape[0] / 2, x.shape[0] / 4),
    "one of two tensors": lambda x: torch.where(x > 2, x.shape[0] > 5, x),
    "compared with a tensor": lambda x: (x > 2) == (x.shape[0] > 5),
    "a result": lambda x: (x + 1, x.shape[0] > 5, x.shape[0] / 2 > 3),
    "a result alone": lambda x: x.shape[0] > 5,
    "the condition of a branch": _chosen(lambda x: x.shape[0] > 5),
    "the negated condition of a branch": _chosen(lambda x: torch.sym_not(x.shape[0] * 2 % 3 == 1)),
    "the condition of a branch, of fractions": _chosen(lambda x: x.shape[0] / 2 > 3),
    "inside of a branch": lambda x: torch.cond(
        x.sum() > 20, lambda t: t * (t.shape[0] > 5), lambda t: t + (t.shape[0] / 2 > 2.2), (x,)
    ),
    "floats inside of a branch": lambda x: torch.cond(
        x.sum() > 2, lambda t: t * (t.shape[0] * 0.1 - 0.5), lambda t: t * (t.shape[0] / 3), (x,)
    ),
    "the condition of a loop": lambda x: while_loop(
        lambda i, t: (i < 3) & (t.shape[0] > 4),
        lambda i, t: (i + 1, t * (t.shape[0] > 4) * 2),
        (torch.tensor(0), x),
    ),
}


@pytest.mark.parametrize("function", TRUTHS.values(), ids=TRUTHS)
@pytest.mark.thorough(every=4)
def test_a_comparison_of_sizes_is_what_it_is_in_eager_mode(function: Callable[..., Any]) -> None:
    """defects.md W2, red-team.md finding 2."""
    agree(function, *CALLS, dynamic=True)


def test_a_comparison_of_a_size_that_is_found_to_differ_between_calls() -> None:
    """defects.md W2: no dynamic=True is needed."""
    agree(TRUTHS["a factor"], *CALLS)
    agree(TRUTHS["a result"], *CALLS)


def test_a_comparison_of_a_number_that_the_caller_passes() -> None:
    """defects.md W2."""
    agree(lambda n: torch.full((1,), n >= 1024), (2000,), (3,), (1024,), dynamic=True)


def test_a_truth_as_alpha_is_refused_as_torch_refuses_it() -> None:
    compiled = torch.compile(lambda x: torch.add(x, x, alpha=x.shape[0] > 5), backend="hidet", dynamic=True)
    with pytest.warns(hidet.errors.FallbackWarning), pytest.raises(RuntimeError, match="Boolean alpha"):
        compiled(X)


@pytest.mark.parametrize("n", [9, 4])
def test_gradients_with_comparisons_of_sizes(n: int) -> None:
    """defects.md W2: forward and backward both have the comparison."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * (x.shape[0] > 5) + x * (x.shape[0] / 2 > 1)).sin() * (x.shape[0] / 3)

    ours, theirs = (X[:n].clone().requires_grad_() for _ in range(2))
    compiled = torch.compile(function, backend="hidet", dynamic=True)
    compiled(ours).sum().backward()
    function(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


class Compares(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flag = torch.full((2,), (x.shape[0] > 5) & (x.shape[0] % 2 == 1))
        chosen = torch.cond(x.shape[0] > 5, lambda t: t + 1, lambda t: t - 1, (x,))
        return flag, chosen, x * (x.shape[0] / 2 > 3)


def test_an_exported_program_compares_sizes() -> None:
    """defects.md W2."""
    program = torch.export.export(Compares(), (X[:9],), dynamic_shapes=({0: torch.export.Dim("n", max=64)},))
    compiled = hidet.compile(program)
    for (x,) in CALLS:
        assert _described(list(compiled(x))) == _described(list(Compares()(x)))


READ: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "a truth as a factor": (lambda x: torch.ones(2) * x.item(), [torch.tensor(True), torch.tensor(False)]),
    "a truth as a fill": (lambda x: torch.full((2,), x.item()), [torch.tensor(True), torch.tensor(False)]),
    "a truth as a condition": (
        lambda x: torch.cond(x.item(), lambda t: t + 1.5, lambda t: t * 1.5, (x,)),
        [torch.tensor(True), torch.tensor(False)],
    ),
    "a truth is returned": (lambda x: (x.logical_not().item(), x), [torch.tensor(True), torch.tensor(False)]),
    "a float is returned": (lambda x: ((x + 1).item(), x * 2), [torch.tensor(1.5), torch.tensor(2.25)]),
    "a number is compared": (lambda x: torch.full((2,), x.sum().item() > 3), [torch.tensor([4]), torch.tensor([2])]),
    "a float is compared": (lambda x: torch.full((2,), x.sum().item() > 3), [torch.tensor([4.0]), torch.tensor([2.0])]),
    "a number chooses": (
        lambda x: torch.cond(x.sum().item() > 3, lambda t: t + 1, lambda t: t - 1, (x,)),
        [torch.tensor([4]), torch.tensor([2])],
    ),
    "a count is compared": (
        lambda x: torch.full((2,), x.nonzero().shape[0] > 1),
        [torch.tensor([4, 0, 1]), torch.tensor([0, 2, 0])],
    ),
}


@pytest.mark.parametrize(("function", "inputs"), READ.values(), ids=READ)
def test_what_is_read_from_a_tensor(function: Callable[..., Any], inputs: list[torch.Tensor]) -> None:
    """defects.md C4 and W2."""
    with torch._dynamo.config.patch(**SCALARS):
        agree(function, *[(x,) for x in inputs], fullgraph=True)


def _asserting(condition: Callable[[Any], Any]) -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        number = x.sum().item()
        torch._check(condition(number))
        return y * 2

    return function


ASSERTED: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "a bound": (_asserting(lambda n: n > 2), torch.tensor([4]), torch.tensor([1])),
    "a remainder": (_asserting(lambda n: n % 3 == 1), torch.tensor([4]), torch.tensor([3])),
    "a value": (_asserting(lambda n: n == 3), torch.tensor([3]), torch.tensor([4])),
    "a float": (_asserting(lambda n: n > 2.5), torch.tensor([4.0]), torch.tensor([1.0])),
}


@pytest.mark.parametrize(("function", "good", "bad"), ASSERTED.values(), ids=ASSERTED)
def test_what_a_model_asserts_of_numbers_that_it_reads(function: Callable[..., Any], good: Any, bad: Any) -> None:
    """defects.md D1: a failed torch._check raises RuntimeError, as in eager mode, whoever has a use for the number."""
    with torch._dynamo.config.patch(**SCALARS):
        compiled = agree(function, (good, X), fullgraph=True)
        with pytest.raises(RuntimeError):
            function(bad, X)
        with pytest.raises(RuntimeError):
            compiled(bad, X)


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
def test_what_a_model_asserts_of_a_count() -> None:
    """defects.md D1: test_nonzero_unbacked_refinement of PyTorch."""

    def function(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.size(0) == 4)
        return found + 3

    with torch._dynamo.config.patch(**SCALARS):
        compiled = agree(function, (torch.tensor([0, 1, 3, 4, 2, 0, 0]),), fullgraph=True, strict=False)
        with pytest.raises(RuntimeError):
            compiled(torch.tensor([0, 0, 0, 0, 2, 0, 0]))


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_with_a_truth_that_is_read(sign: int) -> None:
    """defects.md C4: the forward pass leaves the truth for the backward pass."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        holds = (y > 0).all().item()
        return torch.where(x > 0.5, x.sin() * holds, x) * y.sum().item()

    ours, theirs = (X.clone().requires_grad_() for _ in range(2))
    with torch._dynamo.config.patch(**SCALARS):
        torch.compile(function, backend="hidet")(ours, torch.tensor([2.5 * sign])).sum().backward()
    function(theirs, torch.tensor([2.5 * sign])).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_saved_program_compares_sizes(tmp_path: Path) -> None:
    """defects.md W2: comparisons of whole sizes need no Python at the call."""

    class Chooses(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x * torch.sym_ite(x.shape[0] > 4, x.shape[0] * 2, x.shape[0] + 1), torch.full(
                (2,), x.shape[0] % 2 == 0
            )

    compiled = hidet.compile(Chooses(), (X[:9],), dynamic_shapes=({0: torch.export.Dim("n")},))
    compiled.save(tmp_path / "m.hidet")
    loaded = hidet.load(tmp_path / "m.hidet")
    for (x,) in CALLS:
        assert _described(list(loaded(x))) == _described(list(Chooses()(x)))


def test_a_branch_on_what_was_overwritten_is_left_to_torch_where_the_graph_holds_a_tensor_without_data() -> None:
    """AOTAutograd puts the view of truths, made before the write, into the graph as the tensor that it traces with."""

    def function(x: torch.Tensor) -> torch.Tensor:
        view = x[..., None, :]
        x.fill_(2)
        return torch.cond(x.shape[0] > 4, lambda t: t + 1, lambda t: t * 2, (view,))

    compiled = torch.compile(function, backend="hidet", dynamic=True)
    with torch.no_grad(), pytest.warns(hidet.errors.FallbackWarning, match="tensor _tensor_constant0 .* without data"):
        for rows in (7, 5, 3):
            given, other = (torch.arange(4 * rows).reshape(rows, 4) % 3 == 0 for _ in range(2))
            assert torch.equal(compiled(given), function(other)) and torch.equal(given, other)
