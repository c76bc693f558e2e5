"""Tuning on a Ray cluster of two nodes on this machine, which are lost and come back. Run by `nox -s ray`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import hidet
from hidet.cache import CacheKey, KernelCache
from hidet.compiler.lowering import lower_graph
from hidet.context import CompileContext, make_context
from hidet.cpu.target import CpuTarget
from hidet.errors import OptionError
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.plugins.host import load_registry
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice
from hidet.schedule.select import ScheduledTask
from hidet.schedule.shared_programs import build
from hidet.tuning.executor import executor_named
from hidet.tuning.executor_ray import _build, _context_for
from hidet.tuning.loaded import compile_program
from hidet.tuning.measuring import Measurer
from hidet.tuning.report_live import Progress
from hidet.tuning.store import Store
from hidet.tuning.trial import ProgramText, Settings, program_text

OPTIONS = {"threads": 1, "cache": False}
SYSTEM = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


def test_without_ray_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OptionError, match=r"needs Ray, which is not installed\nhint: pip install 'hidet-tune\[ray\]'"):
        executor_named("ray", load_registry())(Settings("cpu", 1), 10.0)


def test_code_that_a_node_has_compiled_is_found_by_the_one_that_measures(tmp_path, monkeypatch) -> None:
    ctx = make_context("cpu", {"threads": 1})
    program = softmax_program(ctx)
    entries = _build(json.dumps(asdict(Settings("cpu", 1))), ctx.target.arch, json.dumps(asdict(program)))
    there = replace(ctx, cache=KernelCache(tmp_path / "cache"))
    for key, payload in entries:
        there.cache.put(CacheKey.from_json(key), payload)
    monkeypatch.setattr(CpuTarget, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert compile_program(program, there, ctx.registry.intrinsic_rows()).binaries


@pytest.mark.parametrize("change", ["another processor", "a program that does not parse"])
def test_a_node_that_cannot_compile_a_program_gives_nothing(change) -> None:
    ctx = make_context("cpu", {"threads": 1})
    program, arch = softmax_program(ctx), ctx.target.arch
    if change == "another processor":
        arch = "x86_64-unknown-linux-gnu i486 "
    else:
        program = replace(program, module="def")
    assert _build(json.dumps(asdict(Settings("cpu", 1))), arch, json.dumps(asdict(program))) == []


def test_a_node_without_a_gpu_compiles_for_the_one_that_measures() -> None:
    pytest.importorskip("hidet.cuda")
    arch = make_context("cuda:sm_90a").target.arch
    found = _context_for(Settings("cuda:1", 1), arch)
    assert found is not None and found.target.arch == arch


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that computes nothing, which this process is connected to, and two nodes."""
    # Ray puts another one in its place.
    monkeypatch.setattr("builtins.print", print)
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": SYSTEM})
    made.first, made.second = made.add_node(num_cpus=1), made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def softmax_program(ctx: CompileContext) -> ProgramText:
    """The program of a softmax."""
    lowered = lower_graph(run_graph_passes(rows(512), ctx), rows(512), ctx)
    (step,) = [step for scheduled in lowered.main for step in scheduled.steps if isinstance(step, ScheduledTask)]
    (claim, *_) = claims(step.task, ctx, [])
    choice = Choice(claim.spec.name, claim.rule, claim.match, claim.rule.default(claim.match, ctx))
    text = program_text(build(choice, ctx).program)
    assert text is not None
    return text


def rows(*sizes: int) -> Any:
    inputs = ", ".join(f"%x{size}: f32[64, {size}]" for size in sizes)
    lines = "".join(f"  %{n}: f32[64, {size}] = softmax(%x{size}, axis=1)\n" for n, size in enumerate(sizes))
    results = ", ".join(f"%{number}" for number in range(len(sizes)))
    return parse_graph(f"graph g({inputs}):\n{lines}  return {results}\n", load_registry().operators)


@pytest.mark.slow
def test_nodes_that_are_lost_and_come_back_lose_nothing_that_was_found(cluster, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Measurer, "run", lambda *_: pytest.fail("this process has measured something itself"))
    store = str(tmp_path / "choices.sqlite")
    events: list[str] = []

    def disturb(progress: Progress) -> None:
        measured = len(progress.task.trials)
        if not events and measured == 1:
            events.append("the first node is lost")
            cluster.remove_node(cluster.first, allow_graceful=False)
        elif len(events) == 1 and progress.number == 2:
            events.append("a node comes back, and the second one is lost")
            cluster.add_node(num_cpus=1)
            cluster.remove_node(cluster.second, allow_graceful=False)

    graph = rows(512, 768)
    report = hidet.tune(graph, budget=240, store=store, options=OPTIONS, executor="ray", progress=disturb)
    assert len(events) == 2
    assert len(report.tasks) == 2
    assert all(task.tried == task.points >= 2 and not task.refused for task in report.tasks)
    assert len(Store(Path(store)).entries()) == 2
    again = hidet.tune(graph, budget=60, store=store, options=OPTIONS, executor="ray")
    assert all(task.is_stored for task in again.tasks)
