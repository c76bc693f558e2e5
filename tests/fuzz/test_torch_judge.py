"""What counts as right where terms cancel."""

from __future__ import annotations

import torch

from .torch_judge import RUNS, Rounded, error_of

X = torch.arange(1.0, 9.0, dtype=torch.float64) / 7
UNIT = torch.finfo(torch.float32).eps


def cancelling(x: torch.Tensor) -> torch.Tensor:
    return (x + 1000.3) - 1000.3 - x


def rounded() -> list[torch.Tensor]:
    found = []
    for seed in range(RUNS):
        with Rounded(torch.float32, seed):
            found.append(cancelling(X.clone()))
    return found


def test_what_rounding_makes_of_terms_that_cancel_is_right() -> None:
    exact, eager = cancelling(X), torch.zeros(8)
    made = eager + 1000 * UNIT / 4
    assert error_of(made, eager, exact, UNIT, rounded) == ""
    assert error_of(made, eager, exact, UNIT, list) != ""


def test_more_than_rounding_explains_is_wrong() -> None:
    exact, eager = cancelling(X), torch.zeros(8)
    assert "that of rounding" in error_of(eager + 0.01, eager, exact, UNIT, rounded)


def test_what_the_types_of_a_program_hold_is_not_rounded() -> None:
    with Rounded(torch.float32, 0):
        assert torch.equal(torch.arange(8.0, dtype=torch.float64) + 0.5, torch.arange(8.0).double() + 0.5)
        thirds = torch.ones(64, dtype=torch.float64) / 3
    assert 0 < float((thirds * 3 - 1).abs().max()) <= UNIT
