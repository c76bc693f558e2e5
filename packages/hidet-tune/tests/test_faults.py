"""Tuning comes to an end whatever happens, loses nothing that was found, and never chooses what failed.

What happens to processes that measure is in test_measuring.py; here an executor stands for them, which gives outcomes
at once, so that everything else can go wrong at a known moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cli.timing import Latency
from hidet.errors import CacheError, CacheWarning, OptionError
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.tuning import session, subjects
from hidet.tuning.report import TuneReport
from hidet.tuning.store import Store, known_choices
from hidet.tuning.trial import Outcome, Trial

FAILURES = ("took longer than 2 s", "crashed: signal 6", "crashed: signal 11", "wrong results: output 0 differs")
MODEL = """graph g(%x: f32[64, 512], %y: f32[32, 2048]):
  %0: f32[64, 512] = softmax(%x, axis=1)
  %1: f32[32, 2048] = softmax(%y, axis=1)
  return %0, %1
"""


class Ideal:
    """An executor: a default takes a millisecond, the last candidate of a task half of that; others fail in turn.

    tell: called with the name of what happens.
    """

    device = "an ideal device"

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.chosen: set[str] = set()

    def __call__(self, settings: object, seconds: float) -> Ideal:
        return self

    def __enter__(self) -> Ideal:
        self._tell("enter")
        return self

    def __exit__(self, *error: object) -> None:
        pass

    compiles_ahead = False

    def announce(self, trials: Sequence[Trial]) -> None:
        self._tell("announce")
        # Behind the trials of a task may be some of the next one.
        own = [trial for trial in trials if trial.default == trials[0].default]
        self._good = own[-1].candidate and own[-1].candidate.digest

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        self._tell("run")
        default = (1e-3,) * trial.rounds
        if trial.candidate is None:
            return Outcome(default)
        if trial.candidate.digest != self._good:
            return Outcome(failure=FAILURES[len(trial.candidate.digest) % len(FAILURES)])
        return Outcome(default, (5e-4,) * trial.rounds)


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole model is always found to be faster: what the executor says is made up."""
    found = {"before": Latency(1.0, 1.0, 3), "after": Latency(0.9, 0.9, 3)}
    monkeypatch.setattr(session, "measure_alternately", lambda *_, **__: found)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "choices.sqlite")


def model(text: str = MODEL) -> Graph:
    return parse_graph(text, load_registry().operators)


def tuned(store: Store, tell: Callable[[str], object] = str, text: str = MODEL) -> TuneReport:
    """What tuning finds with the ideal executor. tell: hears what happens, and may make something happen."""
    options = {"threads": 1, "cache": False, "search_space": 2}
    made = Ideal(tell)
    return hidet.tune(model(text), budget=60, store=str(store.path), options=options, executor=made)


def choices(store: Store) -> dict[str, str]:
    """Parameters by task."""
    return {entry.summary: entry.params for entry in store.entries()}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], object]], None]:
    """Has a function hear of compilations, searches, writes and the last comparison, before they begin."""

    def watch(tell: Callable[[str], object]) -> None:
        def telling(name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
            tell(name)
            return call(*given, **named)

        for owner, name in (
            (session, "tasks_of"),
            (session, "compile_graph"),
            (session, "measure_alternately"),
            (subjects, "build"),
            (Store, "put"),
        ):
            call = getattr(owner, name)
            replacement = partial(telling, name, call)
            if owner is Store:
                monkeypatch.setattr(owner, name, lambda *given, r=replacement: r(*given))
            else:
                monkeypatch.setattr(owner, name, replacement)

    return watch


def test_ctrl_c_at_ten_moments_keeps_what_was_found(store, watched, tmp_path) -> None:
    happened: list[str] = []
    stops_at = -1

    def tell(name: str) -> None:
        happened.append(name)
        if len(happened) - 1 == stops_at:
            raise KeyboardInterrupt

    watched(tell)
    assert not tuned(store, tell).is_interrupted
    everything, whole = choices(store), list(happened)
    assert len(everything) == 2 and {"tasks_of", "run", "put", "build", "compile_graph"} <= set(whole)
    x, y = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((64, 512), (32, 2048)))
    for number in range(10):
        happened.clear()
        stops_at = number * (len(whole) - 1) // 9
        other = Store(tmp_path / f"{number}.sqlite")
        report = tuned(other, tell)
        assert report.is_interrupted, whole[stops_at]
        found = choices(other)
        finished = whole[:stops_at].count("put")
        assert len(found) >= min(finished, 2)
        assert all(params in (everything[task], task_default(other, task)) for task, params in found.items())
        first, second = report.compiled(x, y)
        np.testing.assert_allclose(first.sum(1), 1, rtol=1e-4)
        np.testing.assert_allclose(second.sum(1), 1, rtol=1e-4)
        stops_at = -1
        assert not tuned(other, tell).is_interrupted, "tuning goes on where it was interrupted"
        assert choices(other) == everything


def task_default(store: Store, summary: str) -> str:
    return next(entry.default_params for entry in store.entries() if entry.summary == summary)


def test_what_failed_is_in_the_report_and_never_chosen(store) -> None:
    report = tuned(store)
    for task in report.tasks:
        failed = {line.partition(": ")[0] for line in task.refused}
        assert task.params not in failed and task.is_changed and task.gain == 2.0
        assert len(failed) + 1 == task.tried == task.points
    assert set(choices(store).values()) == {task.params for task in report.tasks}


def test_a_second_call_measures_nothing_and_takes_the_same_choices(store) -> None:
    first = tuned(store)
    second = tuned(store, lambda name: pytest.fail(f"{name} happened"))
    assert [task.params for task in second.tasks] == [task.params for task in first.tasks]
    assert f"2 of 2 tasks from the store {store.path}" in str(second)
    symbols = [[use.symbol for use in report.compiled.report().uses] for report in (first, second)]
    assert symbols[0] == symbols[1]


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite may add no page to a file."""
    open_ = Store._open

    def opened(self: Store) -> Any:
        connection = open_(self)
        connection.execute("PRAGMA max_page_count=1")
        return connection

    monkeypatch.setattr(Store, "_open", opened)


def test_with_a_full_disk_choices_hold_in_the_process_and_are_written_later(store, monkeypatch) -> None:
    wide = "x" * 20_000  # of a task whose row needs pages
    with monkeypatch.context() as patch, pytest.warns(CacheWarning, match="disk is full.*holds in this process alone"):
        fill_disk(patch)
        patch.setattr("hidet.schedule.task.Task.summary", property(lambda task: f"{task.name} {wide}"))
        report = tuned(store)
    assert "disk is full" in report.unsaved and "not kept beyond this process" in str(report)
    assert store.entries() == [] and len(known_choices(store.path)) == 2
    assert all(task.is_changed for task in report.tasks)
    third = "graph h(%z: f32[16, 1024]):\n  %0: f32[16, 1024] = softmax(%z, axis=1)\n  return %0\n"
    assert tuned(store, text=third).unsaved == ""
    assert len(store.entries()) == 3, "what was held is written with what comes next"


def test_a_store_that_is_damaged_meanwhile_has_all_that_was_found_in_the_end(store) -> None:
    happened: list[str] = []

    def tell(name: str) -> None:
        happened.append(name)
        if store.path.exists() and "damage" not in happened:
            happened.append("damage")
            store.path.write_bytes(b"no database " * 1000)
            for ending in ("-wal", "-shm"):
                Path(f"{store.path}{ending}").unlink(missing_ok=True)

    with pytest.warns(CacheWarning, match=r"is damaged"):
        report = tuned(store, tell)
    assert "damage" in happened
    assert choices(store) == {task.summary: task.params for task in report.tasks}


def test_two_tuners_on_one_store_keep_what_each_has_found(store) -> None:
    sizes = [(8 << number, 256) for number in range(4)]
    texts = [f"graph g(%x: f32[{m}, {n}]):\n  %0: f32[{m}, {n}] = softmax(%x, axis=1)\n  return %0\n" for m, n in sizes]
    meet = threading.Barrier(2)

    def tune(mine: Sequence[str]) -> None:
        for text in mine:
            meet.wait(60)
            tuned(store, text=text)

    with ThreadPoolExecutor(2) as threads:
        for ended in [threads.submit(tune, mine) for mine in (texts[:2], texts[2:])]:
            ended.result(120)
    assert sorted(choices(store)) == sorted(f"softmax(f32[{m}, {n}])" for m, n in sizes)


def test_a_store_that_cannot_be_read_is_said_before_anything_is_measured(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CacheError, match="cannot be used"):
        tuned(Store(tmp_path / "folder"), lambda name: pytest.fail(f"{name} happened"))
    with pytest.raises(OptionError, match=r'tune\.store is "off"'):
        hidet.tune(model(), store="off")


def test_an_entry_of_a_search_that_has_not_begun_stays_as_it_was(store) -> None:
    tuned(store)
    before = store.entries()
    store.put([replace(entry, finished=0) for entry in before])
    ended = [False]

    def tell(name: str) -> None:
        if name == "announce" and ended[0]:
            raise KeyboardInterrupt
        ended[0] = name == "run"

    assert tuned(store, tell).is_interrupted
    assert [entry.params for entry in store.entries()] == [entry.params for entry in before]
