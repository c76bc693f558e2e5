"""A few programs of random arithmetic of sizes; `python -m tests.fuzz.size_expressions` runs as many as one likes."""

from __future__ import annotations

import pytest
import torch

from .size_expressions import USES, mismatches, program

# Each needs a second or two of compilation. 28 found that compiled code rounded a product and a sum once.
SEEDS = (*range(6), 28)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.thorough(every=2)
def test_arithmetic_of_sizes_is_what_it_is_in_eager_mode(seed: int) -> None:
    """defects.md W2, red-team.md finding 2."""
    assert list(mismatches([seed])) == []


@pytest.mark.thorough
def test_much_arithmetic_of_sizes_is_what_it_is_in_eager_mode() -> None:
    assert list(mismatches(range(100, 150))) == []


def test_a_seed_makes_the_same_program_again() -> None:
    assert program(3)[0] == program(3)[0] != program(4)[0]


def test_a_program_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a backend whose sums are one too large."""
    compile = torch.compile

    def wrong(function, *, backend, dynamic):  # type: ignore[no-untyped-def]
        compiled = compile(function, backend="eager", dynamic=dynamic)
        if backend == "aot_eager":
            return compiled
        return lambda x: tuple(item + 1 if isinstance(item, torch.Tensor) else item for item in compiled(x))

    monkeypatch.setattr(torch, "compile", wrong)
    found = list(mismatches([1]))
    assert [each.seed for each in found] == [1] and found[0].sizes == (9, 4)


def test_all_kinds_of_numbers_are_used_in_several_ways() -> None:
    text = "".join(program(seed)[0] for seed in range(60))
    assert all(text.count(use.partition("{}")[0].strip()) > 0 for uses in USES.values() for use in uses)
    for part in ("//", "%", "sym_ite", "sym_max", "sym_min", "sym_not", " & ", " | ", "==", "<=", "sym_float", "floor"):
        assert part in text
