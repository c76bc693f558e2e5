"""Models of torch: options and modes that ask for tuning, one budget a model, and models that are compiled already."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import hidet
from hidet.budget import DEFAULT_SECONDS, Budget
from hidet.cli.timing import Latency
from hidet.errors import OptionError, PluginWarning
from hidet.torch import dynamo_config
from hidet.tuning import asked, executor, session
from hidet.tuning.store import Store
from hidet.tuning.trial import Outcome, Trial

WIDE = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))


class LastIsBest:
    """An executor: a default takes a millisecond, the candidate that was announced last half of that. asked: trials."""

    device = "an ideal device"
    asked = 0

    def __init__(self, settings: object, seconds: float) -> None:
        self.best = ""

    def __enter__(self) -> LastIsBest:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    compiles_ahead = False

    def announce(self, trials: Sequence[Trial]) -> None:
        self.best = trials[-1].candidate.digest if trials[-1].candidate else ""

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        type(self).asked += 1
        is_best = trial.candidate is not None and trial.candidate.digest == self.best
        seconds = () if trial.candidate is None else (5e-4 if is_best else 2e-3,) * trial.rounds
        return Outcome((1e-3,) * trial.rounds, seconds)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The store of this test, and executors that take no time."""
    monkeypatch.setenv("HIDET_TUNE_STORE", str(tmp_path / "choices.sqlite"))
    monkeypatch.setattr(executor, "LocalExecutor", LastIsBest)
    monkeypatch.setattr(LastIsBest, "asked", 0)
    found = {"before": Latency(1.0, 1.0, 3), "after": Latency(0.9, 0.9, 3)}
    monkeypatch.setattr(session, "measure_alternately", lambda *_, **__: found)
    dynamo_config.reset()
    torch.compiler.reset()
    with torch.no_grad():
        yield Store(tmp_path / "choices.sqlite")
    dynamo_config.reset()


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """The budget of each graph for which tuning is asked; nothing is tuned."""
    found: list[Budget] = []
    monkeypatch.setattr(asked, "tune_graph", lambda graph, ctx, signature: found.append(ctx.options.tune))
    return found


def attend(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1)


def compiled(function: Any = attend, **given: Any) -> Any:
    return torch.compile(function, backend="hidet", **given)


def close(x: torch.Tensor, y: torch.Tensor) -> None:
    torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "given", [{"mode": "max-autotune"}, {"options": {"tune": "30s"}}, {"options": {"search_space": 2}}]
)
def test_options_and_modes_tune_and_the_next_compilation_measures_nothing(given, store) -> None:
    close(compiled(**given)(WIDE), attend(WIDE))
    (entry,) = store.entries()
    assert entry.params != entry.default_params and LastIsBest.asked > 2
    before = LastIsBest.asked
    torch.compiler.reset()
    with hidet.torch.collect_reports() as reports:
        close(compiled(**given)(WIDE), attend(WIDE))
    assert LastIsBest.asked == before
    ((reason, count),) = reports[0].chosen.items()
    assert (reason, count) == (f"measured parameters from the store {store.path}", 1)
    assert f"choices  1 of 1 tasks: {reason}" in str(reports[0])


def test_without_asking_nothing_is_measured(budgets) -> None:
    for given in ({}, {"mode": "reduce-overhead"}, {"options": {"mode": "max-autotune", "search_space": 0}}):
        close(compiled(**given)(WIDE), attend(WIDE))
        torch.compiler.reset()
    assert budgets == []


def broken(x: torch.Tensor) -> torch.Tensor:
    y = attend(x)
    torch._dynamo.graph_break()
    return attend(y + 1)


@pytest.mark.parametrize("given", [{"mode": "max-autotune"}, {"options": {"tune": 30}}])
def test_graphs_of_a_model_share_a_budget_and_models_do_not(given, budgets) -> None:
    close(compiled(broken, **given)(WIDE), broken(WIDE))
    assert len(budgets) == 2 and budgets[0] is budgets[1]
    assert budgets[0].seconds == (30 if "options" in given else DEFAULT_SECONDS)
    torch.compiler.reset()
    compiled(broken, **given)(WIDE)
    assert len(budgets) == 4 and budgets[2] is budgets[3] is not budgets[1]


def test_a_graph_gets_what_the_one_before_has_left(monkeypatch) -> None:
    given: list[float] = []
    make = session.Session.__init__

    def noted(self: Any, parts: Any, store: Any, budget: float, **named: Any) -> None:
        given.append(budget)
        make(self, parts, store, budget, **named)

    monkeypatch.setattr(session.Session, "__init__", noted)
    compiled(broken, options={"tune": 30})(WIDE)
    first, second = given
    assert first is second and first.seconds == 30


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_training_is_tuned_where_the_mode_asks_for_it_alone(mode, budgets) -> None:
    x = WIDE.clone().requires_grad_()
    with torch.enable_grad():
        compiled(mode=mode)(x).square().sum().backward()
    assert x.grad is not None
    assert bool(budgets) == mode.startswith("max-autotune")


def test_scripts_of_earlier_versions_say_how_much_is_searched(monkeypatch) -> None:
    levels: list[int] = []
    monkeypatch.setattr(asked, "tune_graph", lambda graph, ctx, signature: levels.append(ctx.options.search_level))
    for level in (1, 2):
        dynamo_config.search_space(level)
        compiled()(WIDE)
        torch.compiler.reset()
    assert levels == [1, 2]


class Model(torch.nn.Module):
    """Two graphs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return broken(x)


def test_a_compiled_model_is_tuned_as_a_whole_and_uses_the_choices_from_then_on(store) -> None:
    model = compiled(Model())
    close(model(WIDE), broken(WIDE))
    assert store.entries() == []
    report = hidet.tune(model, budget="30s")
    assert report.compiled is model and len(report.tasks) == 2
    assert all(task.is_changed for task in report.tasks) and report.tuned_seconds == 0.9
    with torch.compiler.set_stance("fail_on_recompile"):
        close(model(WIDE), broken(WIDE))
    (part, *_) = hidet.torch.compiled_models.parts_of(model, None)
    assert part.replace.__self__.report().chosen


def test_a_model_that_was_not_called_yet_is_called_on_the_example(store) -> None:
    model = compiled(Model())
    with pytest.raises(OptionError, match=r"compiled no graph of this model\s+hint: .* or give example inputs"):
        hidet.tune(model)
    assert len(hidet.tune(model, (WIDE,), budget=30).tasks) == 2


def test_a_model_of_another_backend_is_refused() -> None:
    model = torch.compile(Model(), backend="eager")
    model(WIDE)
    with pytest.raises(OptionError, match="hidet has compiled no graph of this model"):
        hidet.tune(model)


def test_modules_are_compiled_with_what_tuning_has_found(store) -> None:
    module = torch.nn.Softmax(1)
    made = hidet.compile(module, (WIDE,), options={"tune": "30s"})
    close(made(WIDE), attend(WIDE))
    (entry,) = store.entries()
    assert made.report().chosen and entry.finished == 1
    assert hidet.tune(module, (WIDE,)).tasks[0].is_stored


def test_a_store_that_is_off_refuses_a_budget_and_takes_a_mode_as_it_can(store) -> None:
    make = functools.partial(hidet.compile, torch.nn.Softmax(1), (WIDE,))
    with pytest.raises(OptionError, match=r'tune\.store is "off"'):
        make(options={"tune": 5, "tune.store": "off"})
    close(make(options={"mode": "max-autotune", "tune.store": "off"})(WIDE), attend(WIDE))
    assert LastIsBest.asked == 0


def test_without_hidet_tune_everything_else_works_and_says_what_to_install() -> None:
    make = functools.partial(hidet.compile, torch.nn.Softmax(1), (WIDE,))
    with hidet.plugins.without("tune"):
        close(make()(WIDE), attend(WIDE))
        with pytest.raises(OptionError, match=r"tuning is asked for.*\s+hint: pip install hidet-tune"):
            make(options={"tune": "30s"})
        with pytest.warns(PluginWarning, match=r"max-autotune.*\s+hint: pip install hidet-tune"):
            close(compiled(mode="max-autotune")(WIDE), attend(WIDE))


def test_graphs_of_a_backward_pass_are_tuned_with_the_others() -> None:
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(512, 32), torch.nn.Softmax(1)), backend="hidet")
    with torch.enable_grad():
        model(WIDE).square().sum().backward()
    anchors = {task.summary.partition("(")[0] for task in hidet.tune(model, budget=5).tasks}
    # The product of the weight's gradient, and that of the layer itself.
    assert {"linear", "matmul"} <= anchors
