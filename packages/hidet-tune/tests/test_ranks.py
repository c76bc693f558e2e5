"""Ranks of a distributed job that start at once, with stores that know everything or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hidet.context import make_context
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.tuning.store import Entry, Store
from hidet.tuning.subjects import subject_of, tasks_of

MODEL = "graph g(%x: f32[64, 512]):\n  %0: f32[64, 512] = softmax(%x, axis=1)\n  return %0\n"
RANK = """
import json, sys, time
import hidet
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.tuning.measuring import Measurer

model, store = sys.argv[1:]
graph = parse_graph(model, load_registry().operators)
started, start = [], Measurer._start
Measurer._start = lambda self: (started.append(1), start(self))[1]
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
options = {"threads": 1, "cache": False, "tune": "4s", "tune.store": store}
report = hidet.compile(graph, target="cpu", options=options).report()
programs = [use.symbol for use in report.uses]
seconds = time.monotonic() - begin
print(json.dumps({"measured": bool(started), "programs": programs, "chosen": report.chosen, "seconds": seconds}))
"""


@pytest.fixture
def warm(tmp_path: Path) -> Store:
    """A store that knows the model, with a choice that is not the default."""
    ctx = make_context("cpu", {"threads": 1, "tune.store": "off"})
    ((step,),) = tasks_of([(parse_graph(MODEL, load_registry().operators), ctx)]).values()
    subject = subject_of(step, 1, ctx, 2, {}, 0.0)
    made = Store(tmp_path / "warm.sqlite")
    best = subject.candidates[-1].text
    made.put([Entry(subject.meaning, "softmax", best, subject.default_params, 2e-6, 1e-6, 1, 1, 2)])
    return made


def run_ranks(*stores: Path) -> list[dict[str, Any]]:
    """What ranks say that begin to compile at the same moment, each with a store."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, MODEL, str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "WORLD_SIZE": str(len(stores)), "RANK": str(number)},
        )
        for number, store in enumerate(stores)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:
        rank.stdin.write("go\n")
        rank.stdin.flush()
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * len(ranks)
    return [json.loads(output) for output in outputs]


def test_a_warm_and_a_cold_rank_both_end_and_wait_for_nobody(warm, tmp_path) -> None:
    """Their programs may differ: nobody told the second what the first one's store has."""
    before, cold = warm.path.read_bytes(), tmp_path / "cold.sqlite"
    first, second = run_ranks(warm.path, cold)
    assert not first["measured"] and first["chosen"]
    assert second["measured"] and second["programs"]
    assert warm.path.read_bytes() == before
    assert Store(cold).entries() == [], "only the first rank writes, so that others find what they have read at start"


def test_ranks_with_the_same_store_choose_alike_and_measure_nothing(warm) -> None:
    first, second = run_ranks(warm.path, warm.path)
    assert not first["measured"] and not second["measured"]
    assert first["programs"] == second["programs"] and first["chosen"] == second["chosen"] != {}
