"""Tuning, with a rule that has a point which is certain to be the best, and points that nobody must ever use."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet import dtypes
from hidet.cli import main
from hidet.cli.timing import Latency
from hidet.context import make_context
from hidet.dims import product
from hidet.errors import OptionError, PluginWarning, ScheduleError
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.ir import build, stmt
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.types import PointerType
from hidet.plugins import PLUGIN_API, ScheduleSpec, use
from hidet.plugins.host import load_registry
from hidet.schedule.rule import Match, Program
from hidet.schedule.space import Knob, Space
from hidet.tuning.choose import choose
from hidet.tuning.measuring import Measurer
from hidet.tuning.report import TuneReport
from hidet.tuning.search import is_faster
from hidet.tuning.store import Store
from hidet.tuning.trial import Outcome, Settings, Trial

OPTIONS = {"threads": 1, "cache": False}


@dataclass(frozen=True)
class Way:
    """How squares are computed: everything `repeats` times, written `offset` elements away, with `bias` added."""

    repeats: int = 1
    offset: int = 0
    bias: float = 0.0


SLOW, BETTER, BEST = Way(200), Way(60), Way(1)
IMPOSSIBLE, BROKEN = Way(-1), Way(-2)
WRONG, CRASHING, ENDLESS = Way(bias=1e-3), Way(offset=1 << 50), Way(1 << 55)


class SquareRule:
    """`square` of contiguous float32 by one work item."""

    default_way = SLOW
    ways: tuple[Way, ...] = (SLOW, BETTER, BEST)

    def __init__(self) -> None:
        self.built: list[Way] = []

    def match(self, task, ctx):
        (x,) = task.inputs
        return Match(task) if task.is_plain and x.type.dtype is dtypes.f32 and x.type.strides is None else None

    def space(self, match, ctx):
        return Space.of_knob(Knob("way", self.ways))

    def default(self, match, ctx):
        return self.default_way

    def build(self, match, params, ctx):
        self.built.append(params)
        if params == IMPOSSIBLE:
            raise ScheduleError("there is no such way")
        if params == BROKEN:
            raise KeyError("way")
        source, result = (Var(name, PointerType(dtypes.f32)) for name in ("source", "result"))
        item, again, i, n, times, offset = (build.size_var(name) for name in ("g", "t", "i", "n", "times", "offset"))
        value = build.load(source, i)
        write = stmt.Store(result, (i + offset,), value * value + build.const(params.bias, dtypes.f32))
        body = stmt.For(again, build.index(0), times, stmt.For(i, build.index(0), n, write))
        given = (source, result, n, times, offset)
        kernel = Function("square", given, body, kind="kernel", grid_vars=(item,))
        entry = Function("entry", given, stmt.Launch("square", (build.index(1),), given), kind="host")
        elements = product(match.task.outputs[0].type.shape)
        return Program(Module((kernel, entry), "entry"), arguments=(elements, params.repeats, params.offset))


@contextmanager
def active(rule: SquareRule) -> Iterator[SquareRule]:
    """Have a rule take squares before all others."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Spec(ScheduleSpec):
        def resolve(self) -> object:
            return rule

    plugin: Any = ModuleType("squares")
    plugin.HIDET_API = PLUGIN_API
    plugin.hidet_schedules = lambda: [
        Spec(name="squares", ops=("elementwise",), targets=("cpu",), load="none:of_these")
    ]
    with use(plugin):
        yield rule


@pytest.fixture
def rule() -> Iterator[SquareRule]:
    with active(SquareRule()) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "choices.sqlite")


@pytest.fixture(scope="module")
def choices(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What tuning one square has found."""
    path = tmp_path_factory.mktemp("tuned") / "choices.sqlite"
    with active(SquareRule()):
        tuned(str(path))
    return list(Store(path).export_lines())


@pytest.fixture
def full_store(store: str, choices: list[str]) -> str:
    """A store with that in it."""
    Store(Path(store)).import_lines(choices)
    return store


def squares(*sizes: int) -> Graph:
    """A graph that squares a tensor of each size."""
    inputs = ", ".join(f"%x{size}: f32[{size}]" for size in sizes)
    lines = "".join(f"  %{number}: f32[{size}] = square(%x{size})\n" for number, size in enumerate(sizes))
    results = ", ".join(f"%{number}" for number in range(len(sizes)))
    return parse_graph(f"graph g({inputs}):\n{lines}  return {results}\n", load_registry().operators)


def tuned(store: str, *sizes: int, **given: Any) -> TuneReport:
    """What tuning squares gives, on one thread and within seconds, more where the machine does other work."""
    given = {"options": OPTIONS, "budget": 40, "candidate_seconds": 20.0, **given}
    return hidet.tune(squares(*(sizes or (4096,))), store=store, **given)


class Stopwatch:
    """Stands for the measuring process: a call of `square` takes a microsecond a repetition.

    failures: what becomes of candidates, by how often they repeat. asked: (candidate, rounds, seed) of each trial, None
    for the default alone. took: seconds of a trial. sizes: of their inputs. announced: candidates by how often they
    repeat. on_run: called before each trial.
    """

    device = "a stopwatch"
    took = 0.0

    def __init__(self) -> None:
        self.failures: dict[int, str] = {}
        self.asked: list[tuple[int | None, int, int]] = []
        self.announced: list[list[int | None]] = []
        self.sizes: list[int] = []
        self.on_run: Callable[[], object] = int

    def __call__(self, settings: Settings, seconds: float) -> Stopwatch:
        self.settings = settings
        return self

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    compiles_ahead = False

    def announce(self, trials: Sequence[Trial]) -> None:
        self.announced.append([None if each.candidate is None else each.candidate.arguments[1] for each in trials])

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        self.on_run()
        repeats = None if trial.candidate is None else trial.candidate.arguments[1]
        self.sizes.append(trial.memory.inputs[0].elements)
        self.asked.append((repeats, trial.rounds, trial.seed))
        if repeats in self.failures:
            return Outcome(failure=self.failures[repeats])
        default = (trial.default.arguments[1] * 1e-6,) * trial.rounds
        return Outcome(default, () if repeats is None else (repeats * 1e-6,) * trial.rounds, took=self.took)


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    made = Stopwatch()
    monkeypatch.setattr("hidet.tuning.executor.LocalExecutor", made)
    return made


def test_programs_are_built_when_they_are_measured_and_named_before(rule, store, stopwatch) -> None:
    built_before: list[int] = []
    stopwatch.on_run = lambda: built_before.append(sum(way == BETTER for way in rule.built))
    report = tuned(store)
    assert built_before[0] == 0, "the default is measured before anything else is built"
    assert [None] in stopwatch.announced and [60, 1] in stopwatch.announced
    assert stopwatch.asked[0] == (None, 3, 0) and stopwatch.asked[-1] == (1, 15, 1)
    assert stopwatch.settings.target == "cpu"
    assert (report.device, report.tasks[0].gain) == ("a stopwatch", 200.0)


@pytest.mark.parametrize("why", ["spills: 64 bytes", "DeviceLost: it failed", "OutOfMemory: 9 GiB"])
def test_what_a_device_refuses_is_recorded_and_never_chosen(rule, store, stopwatch, why) -> None:
    stopwatch.failures = {1: why}
    (task,) = tuned(store).tasks
    assert (task.params, task.tried) == (repr(BETTER), 2)
    assert task.refused == (f"{BEST!r}: {why}",)


def test_a_default_that_cannot_be_measured_is_left_alone(rule, store, stopwatch) -> None:
    stopwatch.failures = {None: "crashed: signal 6"}
    report = tuned(store)
    assert report.tasks[0].note == "its default program cannot be measured: crashed: signal 6"
    assert Store(Path(store)).entries() == [] and rule.built[-1] == SLOW


def test_a_trial_that_the_budget_ends_leaves_the_best_so_far(rule, store, stopwatch) -> None:
    def end() -> None:
        if stopwatch.asked[-1:] == [(60, 3, 0)]:
            stopwatch.on_run = int
            raise TimeoutError

    stopwatch.on_run = end
    (task,) = tuned(store).tasks
    assert (task.params, task.tried, task.refused) == (repr(BETTER), 1, ())
    stopwatch.asked.clear()
    assert tuned(store).tasks[0].params == repr(BETTER) and not stopwatch.asked, "as much was spent before"
    assert tuned(store, budget=50).tasks[0].params == repr(BEST), "the search goes on, with the best so far first"
    assert stopwatch.asked[:3] == [(None, 3, 0), (60, 3, 0), (60, 3, 0)]


def test_tasks_that_seem_to_take_long_are_measured_first(rule, store, stopwatch) -> None:
    tuned(store, 256, 65536, 4096)
    assert stopwatch.sizes[:3] == [65536, 4096, 256]


def test_a_task_whose_first_candidate_found_no_time_is_not_in_the_store(rule, store, stopwatch) -> None:
    def end() -> None:
        if stopwatch.asked:
            raise TimeoutError

    stopwatch.on_run = end
    assert tuned(store).tasks[0].note == "the budget was spent before it was measured"
    assert Store(Path(store)).entries() == []
    again = tuned(store, budget=30)
    assert again.tasks[0].note == "left by an earlier call with a budget of 40 s; a larger one goes on"
    Store(Path(store)).clear()
    stopwatch.on_run = int
    assert tuned(store).tasks[0].params == repr(BEST), "nothing is known of the earlier call any more"


def test_a_process_that_takes_long_to_begin_leaves_the_rest_of_a_small_budget_to_the_search(
    rule, store, stopwatch, monkeypatch
) -> None:
    started: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(started))
    for module in ("session", "search", "subjects"):
        monkeypatch.setattr(f"hidet.tuning.{module}.time", clock)
    stopwatch.took = 1e-3
    stopwatch.on_run = lambda: None if started else started.append(15.0)
    (task,) = tuned(store).tasks
    assert task.params == repr(BEST)


def test_another_machine_is_refused(store) -> None:
    with pytest.raises(OptionError, match=r"cpu:haswell is another machine .*\s+hint: tune for target 'cpu'"):
        hidet.tune(squares(8), target="cpu:haswell", store=store, options=OPTIONS)


def test_the_search_level_says_how_much_is_tried(rule, store, stopwatch) -> None:
    rule.ways = (SLOW, *(Way(number) for number in range(2, 100)))
    assert tuned(store).tasks[0].points == 32
    again = tuned(store, options={**OPTIONS, "search_space": 2}).tasks[0]
    assert (again.is_stored, again.tried, again.points) == (False, 98, 98)
    assert tuned(store).tasks[0].is_stored


def test_the_best_point_is_found_and_kept(rule, store) -> None:
    report = tuned(store)
    (task,), (entry,) = report.tasks, Store(Path(store)).entries()
    assert (task.params, task.tried, task.points) == (repr(BEST), 2, 2)
    assert (entry.params, entry.default_params, entry.finished) == (repr(BEST), repr(SLOW), 1)
    assert entry.default_seconds > 2 * entry.seconds
    assert report.default_seconds > report.tuned_seconds and not report.is_dropped
    x = np.arange(4096, dtype=np.float32)
    np.testing.assert_array_equal(report.compiled(x), x * x)


def test_later_compilations_take_the_choice_and_measure_nothing(rule, full_store, monkeypatch) -> None:
    monkeypatch.setattr(Measurer, "run", lambda *_: pytest.fail("something was measured"))
    (task,) = tuned(full_store).tasks
    assert task.is_stored and task.params == repr(BEST)
    rule.built.clear()
    hidet.compile(squares(4096), target="cpu", options={**OPTIONS, "tune.store": full_store})
    assert rule.built == [BEST]


@pytest.mark.parametrize("other", [{"threads": 2}, {"tune.store": "off"}])
def test_a_choice_is_for_the_number_of_threads_and_stores_can_be_off(rule, full_store, other) -> None:
    rule.built.clear()
    hidet.compile(squares(4096), target="cpu", options={**OPTIONS, "tune.store": full_store, **other})
    assert rule.built == [SLOW]


def test_candidates_that_give_wrong_numbers_crash_or_hang_are_never_chosen(rule, store) -> None:
    rule.ways = (WRONG, CRASHING, ENDLESS, BETTER)
    (task,) = tuned(store, candidate_seconds=2.0).tasks
    assert (task.params, task.tried) == (repr(BETTER), 4)
    wrong, crashing, endless = task.refused
    assert wrong.startswith(f"{WRONG!r}: wrong results: output 0 differs by ")
    assert (crashing, endless) == (f"{CRASHING!r}: crashed: signal 11", f"{ENDLESS!r}: took longer than 2 s")


def test_points_that_the_rule_cannot_build_are_refused_with_the_reason(rule, store) -> None:
    rule.ways = (IMPOSSIBLE, BROKEN, Way(200))
    (task,) = tuned(store).tasks
    assert task.refused == (f"{IMPOSSIBLE!r}: there is no such way", f"{BROKEN!r}: build raised KeyError: 'way'")
    assert (task.params, task.tried, task.points) == (repr(SLOW), 2, 2)
    assert tuned(store).tasks[0].is_stored


def test_points_that_cannot_be_built_count_as_tried(rule, store) -> None:
    rule.ways = (IMPOSSIBLE, BEST)
    (task,) = tuned(store).tasks
    assert (task.params, task.tried, task.points) == (repr(BEST), 2, 2)
    assert tuned(store).tasks[0].is_stored


def test_a_budget_that_is_spent_at_once_leaves_what_is_stored(rule, full_store) -> None:
    (entry,) = Store(Path(full_store)).entries()
    unfinished = replace(entry, finished=0)
    Store(Path(full_store)).put([unfinished])
    report = hidet.tune(squares(4096), budget=1e-3, store=full_store, options=OPTIONS)
    assert [task.note for task in report.tasks] == ["the budget was spent before it was measured"]
    assert Store(Path(full_store)).entries() == [unfinished]
    assert rule.built[-1] == BEST


def test_no_candidate_is_used_for_a_gain_within_the_noise() -> None:
    assert is_faster([0.9, 0.91, 0.9, 0.89, 0.9, 1.5])
    assert not is_faster([0.985] * 6)
    assert not is_faster([0.6, 1.4, 0.7, 1.3, 0.9, 1.0])


def test_parameters_that_the_rule_does_not_offer_any_more_are_refused_with_a_warning(rule, full_store) -> None:
    rule.ways = (SLOW, BETTER)
    rule.built.clear()
    with pytest.warns(PluginWarning, match=r"Way\(repeats=1, .* which rule squares does not offer"):
        hidet.compile(squares(4096), target="cpu", options={**OPTIONS, "tune.store": full_store})
    assert rule.built == [SLOW]


@pytest.mark.parametrize("after", [[1.1], [1.0], [0.97, 1.02, 0.98]], ids=["slower", "the same", "within the noise"])
def test_choices_by_which_the_whole_model_gains_nothing_are_dropped(rule, store, monkeypatch, after) -> None:
    rounds = ({"before": Latency(1.0, 1.0, 3), "after": Latency(each, each, 3)} for each in cycle(after))
    monkeypatch.setattr("hidet.tuning.session.measure_alternately", lambda *_, **__: next(rounds))
    report = tuned(store)
    assert report.is_dropped and "all of these choices were dropped" in str(report)
    (entry,) = Store(Path(store)).entries()
    assert (entry.params, entry.finished) == (repr(SLOW), 1)


def test_ctrl_c_keeps_what_was_found(rule, store) -> None:
    report = tuned(store, 4096, 256, progress=lambda now: now.is_done and signal.raise_signal(signal.SIGINT))
    assert report.is_interrupted and report.tuned_seconds is None
    found, left = report.tasks
    assert found.params == repr(BEST) and left.note == "interrupted before it was measured"
    assert [entry.params for entry in Store(Path(store)).entries()] == [repr(BEST)]
    assert rule.built[-2:] == [BEST, SLOW]
    assert not any(task.note for task in tuned(store, 4096, 256).tasks), "a later call goes on"


def test_ctrl_c_while_the_model_is_measured_keeps_what_was_found(rule, store, monkeypatch) -> None:
    press = lambda *_, **__: signal.raise_signal(signal.SIGINT)  # noqa: E731
    monkeypatch.setattr("hidet.tuning.session.measure_alternately", press)
    report = tuned(store)
    assert report.is_interrupted and "the model as a whole was not measured" in str(report)
    assert [entry.params for entry in Store(Path(store)).entries()] == [repr(BEST)]


def test_a_task_that_is_not_in_any_store_asks_no_rule(tmp_path) -> None:
    ctx = make_context("cpu", {"tune.store": str(tmp_path / "none.sqlite")})
    assert choose(None, None, ctx) is None


def test_what_is_compiled_already_is_refused_with_advice(store) -> None:
    compiled = hidet.compile(squares(8), target="cpu", options=OPTIONS)
    with pytest.raises(OptionError, match=r"give hidet\.tune what was given to"):
        hidet.tune(compiled, store=store)


def test_commands_tune_a_file_and_show_what_was_kept(store, tmp_path) -> None:
    model = tmp_path / "model.hir"
    model.write_text("graph g(%x: f32[64, 2048]):\n  %0: f32[64, 2048] = softmax(%x, axis=1)\n  return %0\n")
    where = ["--store", store]
    page = tmp_path / "report.html"
    given = ["--budget", "20s", "--threads", "1", "--json", "--report", str(page)]
    done = CliRunner().invoke(main, ["tune", str(model), *given, *where])
    assert done.exit_code == 0, done.output
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["summary"], task["rule"]) == ("softmax(f32[64, 2048])", "cpu.softmax")
    assert task["trials"] and task["flops"] > 0 and task["nbytes"] == 2 * 4 * 64 * 2048
    assert "1 × softmax(f32[64, 2048])" in page.read_text()
    assert CliRunner().invoke(main, ["tune", "run", str(model), *where, *given]).exit_code == 0
    assert "1 choices in" in CliRunner().invoke(main, ["tune", "show", *where]).output
    lines = CliRunner().invoke(main, ["tune", "export", *where]).output
    assert CliRunner().invoke(main, ["tune", "clear", *where]).output.startswith("deleted 1 ")
    assert CliRunner().invoke(main, ["tune", "import", "-", *where], input=lines).output.startswith("1 choices")
    assert CliRunner().invoke(main, ["tune", "export", *where]).output == lines
