"""A few random torch programs; `python -m tests.fuzz.torch_programs` runs as many as one likes."""

from __future__ import annotations

import pytest
import torch

from . import torch_programs
from .torch_programs import end_of, program, run
from .torch_statements import KINDS

SEEDS = tuple(range(1003, 1007))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_does_what_it_does_in_eager_mode(seed: int) -> None:
    end = end_of("torch on cpu", "cpu", seed)
    assert end.is_good, end.detail


@pytest.mark.thorough
def test_many_random_programs_do_what_they_do_in_eager_mode() -> None:
    found = run(60, jobs=2, first_seed=2000)
    assert [end for end in found if not end.is_good] == []
    assert sum(end.kind == "ran" for end in found) > 48


def test_a_seed_makes_the_same_program_again() -> None:
    assert program(3) == program(3) != program(4)


def test_programs_are_of_all_kinds() -> None:
    made = [program(seed) for seed in range(90)]
    texts = [each.text() for each in made]
    for part in (
        "torch.cond", " if (", "as_strided", ".unfold(", ".expand(", ".select(", "diagonal(", ".shape[", "index_put_",
        "channels_last", "requires_grad_", "F.linear", "conv", "softmax", "sum(", "+=", "] = ", ".to(", "nn.Linear",
        "where(", "masked_fill", "(0, 3", "(),", ".copy_(", ".detach()",
    ):  # fmt: skip
        assert any(part in text for text in texts), part
    assert {each.dynamic for each in made} == {True, None}
    for fact in ("has_gradients", "autocasts", "changes", "layers"):
        assert 0 < sum(bool(getattr(each, fact)) for each in made) < 100, fact
    assert len(KINDS) == 14


@pytest.mark.parametrize("kind", ["wrong values", "wrong strides", "no write", "no alias", "error"])
def test_a_program_that_does_something_else_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: backends that err in one way each."""

    def wrong(function, *, backend, dynamic):  # type: ignore[no-untyped-def]
        if backend != "hidet":
            return function

        def run(*given: torch.Tensor) -> object:
            if kind == "error":
                raise ValueError
            results = function(*[each.clone() for each in given] if kind == "no write" else given)
            change = {
                "wrong values": lambda t: t.add_(1) if t.is_floating_point() else t,
                "wrong strides": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
                "no alias": torch.clone,
            }.get(kind, lambda t: t)
            return tuple(change(each) if isinstance(each, torch.Tensor) else each for each in results)

        return run

    monkeypatch.setattr(torch, "compile", wrong)
    monkeypatch.setattr(torch_programs, "SECONDS_OF_MINIMISING", 0.0)
    found = [end_of("torch on cpu", "cpu", seed) for seed in range(12)]
    assert sum(end.kind == ("uncaught" if kind == "error" else "wrong") for end in found) > 1
    assert all("torch.compile(model" in end.detail for end in found if not end.is_good)
