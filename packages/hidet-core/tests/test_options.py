"""Options that ask for tuning, and the budget that graphs of a model share."""

from __future__ import annotations

import pytest

from hidet.budget import DEFAULT_SECONDS, Budget
from hidet.context import options_from
from hidet.errors import OptionError


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90.0), ("2m", 120.0), (1.5, 1.5), ("0.5 h", 1800.0), (3, 3.0)])
def test_a_budget_is_seconds_or_text(given, seconds) -> None:
    assert Budget.of(given).seconds == seconds == options_from({"tune": given}).tune.left


@pytest.mark.parametrize("given", ["soon", 0, "-1s", "3 weeks", True, [60], "s"])
def test_a_budget_that_cannot_be_read_is_refused(given) -> None:
    with pytest.raises(OptionError, match="expected seconds"):
        options_from({"tune": given})


def test_what_graphs_spend_is_gone_for_the_next(monkeypatch) -> None:
    times = iter([10.0, 14.0, 20.0, 29.0])
    monkeypatch.setattr("hidet.budget.time.monotonic", lambda: next(times))
    budget = Budget.of("10s")
    with budget.spending():
        pass
    assert budget.left == 6.0 and Budget.of(budget) is budget
    with pytest.raises(KeyboardInterrupt), budget.spending():
        raise KeyboardInterrupt
    assert budget.left == 0.0


@pytest.mark.parametrize(
    ("given", "level", "seconds"),
    [
        ({}, 0, None),
        ({"mode": "reduce-overhead"}, 0, None),
        ({"mode": "max-autotune"}, 1, DEFAULT_SECONDS),
        ({"mode": "max-autotune-no-cudagraphs"}, 1, DEFAULT_SECONDS),
        ({"mode": "max-autotune", "search_space": 0}, 0, None),
        ({"mode": "max-autotune", "tune": "5s"}, 1, 5.0),
        ({"search_space": 2}, 2, DEFAULT_SECONDS),
        ({"search_space": 2, "tune": 7}, 2, 7.0),
        ({"tune": 7}, 1, 7.0),
    ],
)
def test_tuning_is_asked_for_by_budget_space_or_mode(given, level, seconds) -> None:
    options = options_from(given).with_budget()
    assert (options.search_level, options.tune and options.tune.seconds) == (level, seconds)


def test_modes_and_spaces_imply_a_budget_that_nobody_named() -> None:
    assert options_from({"mode": "max-autotune"}).with_budget().tune.is_implied
    assert options_from({"search_space": 1}).with_budget().tune.is_implied
    assert not options_from({"search_space": 1, "tune": "60s"}).with_budget().tune.is_implied


@pytest.mark.parametrize("given", [3, -1, "2", True, 1.5])
def test_a_space_that_is_none_is_refused(given) -> None:
    with pytest.raises(OptionError, match=r"search_space must be 0, 1, 2 or None"):
        options_from({"search_space": given})


def test_a_budget_with_nothing_to_search_is_refused() -> None:
    with pytest.raises(OptionError, match="tune asks for measurements and search_space=0 for none"):
        options_from({"tune": "60s", "search_space": 0})
