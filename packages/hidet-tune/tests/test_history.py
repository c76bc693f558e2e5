"""Measurements of points: kept by rule and machine, for searches on other sizes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import hidet
import hidet.tuning.strategy_history
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Entry, Store
from hidet.tuning.strategy import Measure, Measurement, Problem
from hidet.tuning.strategy_history import History
from hidet.tuning.trial import Outcome, Settings, Trial

MEANING = Meaning("ab12", "f32[8]", "cpu", "rule", "1.0")
FIRST = Measurement((8, 8), {"m": 16, "unit": "mma"}, 0.5, "Tile(16)")
SECOND = Measurement((8, 8), {"m": 32, "unit": "fma"}, 1.5, "Tile(32)")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "choices.sqlite")


def test_measurements_come_back_for_other_tasks_of_the_rule(history) -> None:
    history.add(MEANING, [FIRST, SECOND])
    assert history.known(replace(MEANING, task="cd34", sizes="f32[9]")) == [FIRST, SECOND]


@pytest.mark.parametrize("other", [{"rule": "another"}, {"version": "2.0"}, {"arch": "cuda"}])
def test_measurements_are_of_a_rule_its_version_and_a_machine(history, other) -> None:
    history.add(MEANING, [FIRST])
    assert history.known(replace(MEANING, **other)) == []


def test_the_last_measurement_of_a_point_counts(history) -> None:
    history.add(MEANING, [FIRST, SECOND])
    history.add(MEANING, [replace(FIRST, ratio=0.7)])
    assert history.known(MEANING) == [SECOND, replace(FIRST, ratio=0.7)]


def test_the_oldest_measurements_are_forgotten(history, monkeypatch) -> None:
    monkeypatch.setattr(hidet.tuning.strategy_history, "MOST_ROWS", 3)
    for m in range(5):
        history.add(MEANING, [replace(FIRST, knobs={"m": m}, params=f"Tile({m})")])
    assert [each.knobs["m"] for each in history.known(MEANING)] == [2, 3, 4]


def test_a_store_without_measurements_has_none_and_choices_stay(history) -> None:
    assert history.known(MEANING) == [] and not history.path.exists()
    entry = Entry(MEANING, "square(f32[8])", "16", "8", 2e-6, 1e-6, 3, 3)
    Store(history.path).put([entry])
    assert history.known(MEANING) == []
    history.add(MEANING, [FIRST])
    assert Store(history.path).entries() == [entry]


def test_rows_that_are_no_measurements_are_left_out(history) -> None:
    history.add(MEANING, [FIRST])
    with sqlite3.connect(history.path) as connection:
        task = (MEANING.arch, MEANING.rule, MEANING.version, MEANING.task, MEANING.sizes)
        rows = [
            ("[8]", "{", 1.0),
            ("8", "{}", 1.0),
            ("[8]", "[]", 1.0),
            ("[8]", '{"m": [1]}', 1.0),
            ("[8]", "{}", -1.0),
        ]
        for number, row in enumerate(rows):
            connection.execute(
                "INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*task, str(number), *row)
            )
    connection.close()
    assert history.known(MEANING) == [FIRST]


def test_times_of_points_are_known_by_task_and_parameters(history) -> None:
    other = replace(MEANING, sizes="f32[9]")
    history.add(MEANING, [FIRST, SECOND])
    history.add(other, [FIRST])
    assert history.ratios() == {MEANING: {"Tile(16)": 0.5, "Tile(32)": 1.5}, other: {"Tile(16)": 0.5}}


def test_clearing_the_store_forgets_measurements(history) -> None:
    history.add(MEANING, [FIRST])
    Store(history.path).clear()
    assert history.known(MEANING) == []


class Stopwatch:
    """Says that every candidate takes half the time of the default."""

    device = "a stopwatch"

    def __init__(self, settings: Settings, seconds: float) -> None:
        pass

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    compiles_ahead = False

    def announce(self, trials: Sequence[Trial]) -> None:
        pass

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        return Outcome((2e-3,) * trial.rounds, () if trial.candidate is None else (1e-3,) * trial.rounds)


class Remembers:
    """Measures every point, and keeps what it was told to be known."""

    def __init__(self) -> None:
        self.known: list[list[tuple[int, ...]]] = []

    def search(self, problem: Problem, measure: Measure, has_time: Callable[[], bool]) -> int | None:
        self.known.append([each.sizes for each in problem.known])
        return next(iter(measure(range(len(problem.points)), 3)), None)


def test_a_search_begins_with_what_was_measured_on_other_sizes_even_by_an_earlier_call(tmp_path) -> None:
    strategy, store = Remembers(), str(tmp_path / "choices.sqlite")
    for columns in (256, 512):
        text = f"graph g(%x: f32[64, {columns}]):\n  %0: f32[64, {columns}] = softmax(%x, axis=1)\n  return %0\n"
        graph = parse_graph(text, load_registry().operators)
        hidet.tune(graph, budget=60, target="cpu", store=store, strategy=strategy, executor=Stopwatch)
    first, second = strategy.known
    assert first == [] and set(second) == {(64, 256, 64, 256)}
