"""What a wheel of somebody else offers to tuning is found and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert "acme.first searches 2 points on (64, 512, 64, 512) ['item_elements']" in said
    assert (task["tried"], task["points"]) == (1, 2)
