"""What a compile report says, and the warning about operators without a schedule."""

import warnings
from types import SimpleNamespace

import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.errors import FallbackWarning
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.host.report import count_nodes, program_uses, warn_of_fallbacks
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompileReport
from hidet.runtime.program import NodeCounts
from hidet.schedule.select import ScheduledTask, select_schedules

TEXT = """
graph g(%x: f32[4, 8], %w: f32[8, 8], %y: f32[4, 8]):
  %0: f32[8] = arange(stop=8, dtype=f32)
  %1: f32[4, 8] = add(%x, %0)
  %2: f32[4, 8] = matmul(%1, %w)  # model.py:41 (fc1)
  %3: f32[4, 8] = softmax(%2)  # model.py:42
  %4: f32[4, 8] = mul(%y, %0)
  return %3, %4
"""


ELEMENTWISE = """
graph g(%x: f32[4, 8]):
  %0: f32[4, 8] = relu(%x)
  return %0
"""


def schedule(text):
    """A graph on a target for which nobody offers schedules."""
    registry = load_registry()
    target = SimpleNamespace(name="none", prefers_channels_last=False, vector_bits=0, work_item="rows")
    ctx = CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))
    return select_schedules(fuse(parse_graph(text, registry.operators), ctx), ctx)


@pytest.fixture(scope="module")
def scheduled():
    """The first graph above."""
    return schedule(TEXT)


def test_every_node_counts_once_though_several_tasks_compute_it(scheduled):
    assert count_nodes([scheduled]).fallback == 5


def test_tasks_on_the_fallback_nest_are_named_with_their_places(scheduled):
    counts = count_nodes([scheduled])
    told = dict(zip(counts.names, counts.places, strict=True))
    assert told == {
        ("fallback", "matmul"): "model.py:41 (fc1)",
        ("fallback", "softmax"): "model.py:42",
        ("fallback", "elementwise"): "",
    }


def test_one_warning_names_every_anchor_without_a_schedule(scheduled):
    with pytest.warns(FallbackWarning) as caught:
        warn_of_fallbacks([scheduled, scheduled], "none")
    (warning,) = caught
    lines = str(warning.message).splitlines()
    assert lines[0] == "no schedule of target none takes 4 operators; they run as plain loops, slowly:"
    assert lines[1] == "  matmul(f32[4, 8], f32[8, 8]) at model.py:41 (fc1)"
    assert lines[2] == "  softmax(f32[4, 8]) at model.py:42"


def test_element_wise_work_on_the_fallback_nest_is_no_reason_to_warn():
    part = schedule(ELEMENTWISE)
    assert count_nodes([part]).fallback == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_fallbacks([part], "none")


def test_programs_are_listed_with_what_they_compute(scheduled):
    uses = program_uses([scheduled], load_registry())
    steps = [step for step in scheduled.steps if isinstance(step, ScheduledTask)]
    assert [use.symbol for use in uses] == list(dict.fromkeys(step.symbol for step in steps))
    assert sum(len(use.tasks) for use in uses) == len(steps)
    assert "matmul(f32[4, 8], f32[8, 8])" in {task for use in uses for task in use.tasks}
    assert {use.rule for use in uses} == {"fallback"}


def test_a_report_prints_what_matters_first():
    counts = NodeCounts(
        scheduled=70,
        fallback=3,
        names=(("fallback", "matmul"), ("fallback", "mean"), ("fallback", "mean")),
        places=("model.py:41 (fc1)", "", ""),
    )
    report = CompileReport(
        counts,
        kernels=9,
        tasks=20,
        programs=12,
        modules=2,
        cached_modules=1,
        seconds={"graph": 0.0123, "build": 0.0147, "compile": 0.2},
        notes=("matmul: rule cpu.matmul gave up: K is 0",),
        weight_bytes=45_100_000,
        prepared_bytes=12_345,
        graph_nodes=100,
        build_seconds={"injective": (0.001, 0.002), "template": (0.004,)},
    )
    assert str(report).splitlines() == [
        "nodes    70 scheduled, 3 on the fallback nest, 0 routines, 0 control, 0 on the host, 0 eager",
        "tasks    20 of 12 kinds, 9 kernels",
        "modules  2, 1 of them from the cache",
        "fallback matmul at model.py:41 (fc1)",
        "fallback mean (2 times)",
        "time     0.23 s: graph 12 ms, build 15 ms, compile 200 ms",
        "costs    0.20 ms a node, 1.5 ms an injective program, 4.0 ms a template program",
        "weights  45.1 MB given, 12.3 kB prepared",
        "note     matmul: rule cpu.matmul gave up: K is 0",
    ]
