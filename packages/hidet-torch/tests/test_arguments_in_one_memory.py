"""Arguments that share memory, one of which is overwritten: wherever they lie in it, from one call to the next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from hidet.errors import FallbackWarning

Pair = tuple[Tensor, Tensor]


def double_first(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    a.mul_(2)
    return (b * 2,)


def double_second(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    b.mul_(2)
    return a * 2, b.reshape(-1)[-1:]


def view_after_write(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    a.mul_(2)
    return a[1:], b.view(-1)


def write_into_view(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    a[1:].copy_(a[:-1] + 1)
    return (a.sum() + b,)


FUNCTIONS = (double_first, double_second, view_after_write, write_into_view)

PLACES: dict[str, Callable[[Tensor, int], Pair]] = {
    "a point": lambda x, i: (x, x[i]),
    "a slice": lambda x, i: (x, x[i : i + 3]),
    "two slices": lambda x, i: (x[i : i + 4], x[i + 2 : i + 6]),
    "one slice moves": lambda x, i: (x[2:6], x[2 + i : 6 + i]),
    "a column": lambda x, i: (x.view(5, 8), x.view(5, 8)[:, i]),
    "apart": lambda x, i: (x[:10].clone(), x[10 + i : 14 + i]),
    "apart in one memory": lambda x, i: (x[:6], x[6 + i : 10 + i]),
    "slices of a base that begins later": lambda x, i: slices(x[i : i + 20].data),
    "a base that begins later": lambda x, i: (x[i : i + 20].data.view(20), x[i : i + 20].data[2:6]),
    "views that autograd does not know": lambda x, i: (x[i : i + 4].data, x[i + 1 : i + 5].data),
    "detached": lambda x, i: matrices(x[i : i + 8].detach()),
    "a longer base": lambda x, i: slices(x[: 20 + i].clone()),
    "a base of another shape": lambda x, i: columns(x[: 6 * i].clone().view(6, i)),
    "a storage of another size": lambda x, i: unknown_slices(x[: 20 + i].clone()),
}


LEFT_TO_TORCH = {
    ("a base that begins later", False),
    ("a base that begins later", True),
    ("detached", False),
    ("detached", True),
    ("slices of a base that begins later", True),
}
"""Places, with fixed sizes and with symbolic ones, that AOTAutograd cannot trace, or that may lie in no argument."""


def slices(x: Tensor) -> Pair:
    return x[1:4], x[2:6]


def unknown_slices(x: Tensor) -> Pair:
    return x[1:4].data, x[2:6].data


def matrices(x: Tensor) -> Pair:
    return x, x.view(2, 4)


def columns(x: Tensor) -> Pair:
    return x.view(-1)[:5], x.view(-1)[2:6]


def memory(x: Tensor) -> Tensor:
    """All of the storage that a tensor lies in."""
    return x.new_empty(0).set_(x.untyped_storage())


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.thorough(every=8)
def test_results_and_memory_are_those_of_eager_mode_wherever_arguments_lie(
    function: Callable[..., tuple[Tensor, ...]], place: str, dynamic: bool
) -> None:
    """Seed 31002607: torch wrote no guard on where in its storage an argument lies, and its cache of traced results
    knew other places than its kernels."""
    compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
    warns = pytest.warns(FallbackWarning) if (place, dynamic) in LEFT_TO_TORCH else nullcontext()
    with torch.no_grad(), warns:
        for number in (3, 1, 2, 3):
            given, others = (PLACES[place](torch.arange(10.0, 50.0), number) for _ in range(2))
            results, rights = compiled(*given), function(*others)
            for result, right in zip(results, rights, strict=True):
                assert torch.equal(result, right) and result.stride() == right.stride(), number
            for tensor, other in zip(given, others, strict=True):
                assert torch.equal(memory(tensor), memory(other)), number


def test_arguments_that_lie_where_they_lay_are_not_compiled_for_again() -> None:
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(double_first, backend="hidet", dynamic=False)
    for _ in range(3):
        compiled(*PLACES["a slice"](torch.arange(40.0), 3))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


AT_PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "read": lambda x: x.as_strided((2,), (1,), 4) + 0,
    "a view": lambda x: x.as_strided((2,), (1,), 4),
    "written": lambda x: x.as_strided((2,), (1,), 4).mul_(2) + 1,
    "from the first element on": lambda x: x.as_strided((2,), (1,)) + 0,
    "a number of the tensor's own": lambda x: x.as_strided((2,), (1,), x.storage_offset() + 1) + 0,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("name", AT_PLACES)
@pytest.mark.thorough(every=2)
def test_places_in_memory_are_those_of_eager_mode_wherever_the_argument_begins(name: str, dynamic: bool) -> None:
    """Twice, as the second compilation knows the trace of the first one."""
    function = AT_PLACES[name]
    may_be_outside = dynamic and name in ("read", "a view", "written")
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
        with torch.no_grad(), pytest.warns(FallbackWarning) if may_be_outside else nullcontext():
            for number in (3, 1, 2, 0):
                given, other = (torch.arange(10.0, 30.0)[number : number + 12].data for _ in range(2))
                result, right = compiled(given), function(other)
                assert torch.equal(result, right) and result.storage_offset() == right.storage_offset()
                assert torch.equal(memory(given), memory(other))


def test_a_place_in_what_was_overwritten_is_left_to_torch_where_the_argument_begins_behind_the_storage() -> None:
    """AOTAutograd makes a new tensor of what was overwritten, in which that place is another element."""

    def function(x: Tensor) -> Tensor:
        return x.mul_(2).as_strided((2,), (1,), 4) + 0

    given, other = (torch.arange(10.0, 30.0)[3:15].data for _ in range(2))
    with torch.no_grad(), pytest.warns(FallbackWarning, match="as_strided of what was overwritten"):
        result = torch.compile(function, backend="hidet")(given)
    assert torch.equal(result, function(other))


DETACHED: dict[str, Callable[[Tensor], Tensor]] = {
    "a detached tensor": lambda x: x.detach(),
    "detached rows in a line": lambda x: x.reshape(-1).detach(),
    "the data of rows": lambda x: x.data[1:],
}


@pytest.mark.parametrize("name", DETACHED)
def test_what_was_detached_from_an_argument_has_the_gradients_of_what_is_written_to_it(name: str) -> None:
    """AOTAutograd makes such a result anew from the argument, without them."""

    def function(x: Tensor) -> Tensor:
        detached = DETACHED[name](x)
        detached[:1].copy_((x * 2).sum())
        return detached

    given, other = (torch.arange(6.0).reshape(3, 2).requires_grad_() for _ in range(2))
    with pytest.warns(FallbackWarning, match="written to what was detached from an argument"):
        result = torch.compile(function, backend="hidet")(given)
    right = function(other)
    (result * 3).sum().backward()
    (right * 3).sum().backward()
    assert torch.equal(result, right) and torch.equal(given, other)
    assert torch.equal(given.grad, other.grad) and bool(right.requires_grad)
