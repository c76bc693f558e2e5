"""A few layers of random sizes; `python -m tests.fuzz.layers` runs as many as one likes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from .layers import end_of, layer, run


def test_a_few_layers_of_random_sizes_are_right() -> None:
    found = run(4, jobs=2, first_seed=100)
    assert [end for end in found if not end.is_good] == []


@pytest.mark.thorough
def test_many_layers_of_random_sizes_are_right() -> None:
    assert [end for end in run(40, jobs=2, first_seed=1000) if not end.is_good] == []


def test_a_seed_makes_the_same_layer_again() -> None:
    assert layer(3) == layer(3) != layer(4)


def test_layers_are_of_all_kinds() -> None:
    made = [layer(seed) for seed in range(200)]
    assert {each.form for each in made} == {"first", "last", "image last"}
    assert {bool(each.dynamic) for each in made} == {each.is_transposed for each in made} == {True, False}
    assert {0, 1, 3, 5} <= {each.taps for each in made} and any(each.groups > 1 for each in made)


def test_a_layer_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a backend whose results are a thousandth too large."""
    compile = torch.compile

    def wrong(module: nn.Module, *, backend: str, dynamic: bool | None) -> Callable[[torch.Tensor], torch.Tensor]:
        compiled = compile(module, backend="eager", dynamic=dynamic)
        return lambda x: compiled(x) * 1.001

    monkeypatch.setattr(torch, "compile", wrong)
    assert end_of("layers", "cpu", 5).kind == "wrong"
