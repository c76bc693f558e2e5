"""What a wheel of somebody else offers to tuning is found and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hidet
from hidet.errors import OptionError, PluginError
from hidet.graph.parser import parse_graph
from hidet.plugins import PLUGIN_API, ExecutorSpec, use
from hidet.plugins.host import load_registry
from hidet.tuning.executor import executor_named
from hidet.tuning.store import Store

MODEL = "graph g(%x: f32[64, 512]):\n  %0: f32[64, 512] = softmax(%x, axis=1)\n  return %0\n"
STRATEGY = '''
import sys

from hidet.plugins import StrategySpec

HIDET_API = 1


def hidet_tuning_strategies():
    yield StrategySpec(name="acme.first", load="acme_search._plugin:First")


class First:
    """Measures the first point and no other."""

    def search(self, problem, measure, has_time):
        (point, *others), knobs = problem.points, list(problem.points[0].knobs)
        print("acme.first searches", 1 + len(others), "points on", problem.sizes, knobs, file=sys.stderr)
        return next(iter(measure([0], 3)), None)
'''
EXECUTOR = '''
import sys

from hidet.plugins import ExecutorSpec

HIDET_API = 1


def hidet_tuning_executors():
    yield ExecutorSpec(name="acme.pretend", load="acme_fleet._plugin:Pretend")


class Pretend:
    """Says of every candidate that it takes half the time of the default."""

    device = "a pretended device"

    def __init__(self, settings, seconds):
        from hidet.tuning import Outcome

        self.settings, self.outcome = settings, Outcome

    def __enter__(self):
        print("acme.pretend begins for", self.settings.target, file=sys.stderr)
        return self

    def __exit__(self, *error):
        print("acme.pretend ends", file=sys.stderr)

    compiles_ahead = False

    def announce(self, trials):
        print("acme.pretend expects", len(trials), file=sys.stderr)

    def run(self, trial, most=None):
        assert isinstance(trial.default.module, str)
        return self.outcome((2e-3,) * trial.rounds, () if trial.candidate is None else (1e-3,) * trial.rounds)
'''


def tuned(site: Path, folder: Path, *arguments: str) -> tuple[dict[str, object], str]:
    """What `hidet tune run` prints for a softmax, in a process that finds the wheels of a folder."""
    model = folder / "model.hir"
    model.write_text(MODEL)
    command = [sys.executable, "-m", "hidet", "tune", "run", str(model), "--budget", "8s", "--threads", "1", "--json"]
    command += ["--store", str(folder / "choices.sqlite"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    return task, done.stderr


@pytest.mark.slow
def test_a_strategy_of_a_wheel_is_found_and_used(wheel_of, tmp_path) -> None:
    task, said = tuned(wheel_of("acme-search", {"_plugin.py": STRATEGY}), tmp_path, "--strategy", "acme.first")
    assert f"acme.first searches {task['points']} points on (64, 512, 64, 512) ['item_elements']" in said
    assert task["tried"] == 1 < task["points"]


@pytest.mark.slow
def test_an_executor_of_a_wheel_is_found_and_used(wheel_of, tmp_path) -> None:
    site = wheel_of("acme-fleet", {"_plugin.py": EXECUTOR})
    _, said = tuned(site, tmp_path, "--executor", "acme.pretend")
    first, *_, last = [line for line in said.splitlines() if line.startswith("acme.pretend")]
    assert (first, last) == ("acme.pretend begins for cpu", "acme.pretend ends")
    assert re.search("acme.pretend expects [1-9]", said)
    (entry,) = Store(tmp_path / "choices.sqlite").entries()
    assert entry.default_seconds in (1e-3, 2e-3)


def test_what_a_plugin_names_as_an_executor_has_to_be_callable() -> None:
    class Wrong:
        HIDET_API = PLUGIN_API

        def hidet_tuning_executors(self):
            yield ExecutorSpec(name="wrong", load="math:pi")

    with use(Wrong) as registry, pytest.raises(PluginError, match=r"'wrong' is 3\.14.*, which cannot be called"):
        executor_named("wrong", registry)


@pytest.mark.parametrize("kind", ["strategy", "executor"])
def test_strategies_and_executors_are_options_where_tuning_is_asked_for_by_an_option(kind, tmp_path) -> None:
    options = {"tune": "5s", "tune.store": str(tmp_path / "choices.sqlite"), f"tune.{kind}": "nobody's", "threads": 1}
    graph = parse_graph(MODEL, load_registry().operators)
    with pytest.raises(OptionError, match=f'tuning {kind} "nobody\'s" is unknown'):
        hidet.compile(graph, target="cpu", options=options)
    with pytest.raises(OptionError, match=f'tuning {kind} "nobody\'s" is unknown'):
        hidet.tune(graph, target="cpu", options=options)
