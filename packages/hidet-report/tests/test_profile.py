"""Times of kernels: which there are, what they are said of, and that they add up."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet.cli import main
from hidet.errors import HidetError
from hidet.plugins.host import without
from hidet.report import origin
from hidet.report.origin import origin_of
from hidet.report.page import page_html
from hidet.report.profile import Profile, ProfileRow
from hidet.report.split import IDLE, split_graph
from hidet.report.times import OneCall
from hidet.report.times_host import times_of
from hidet.runtime.compiled import CompiledGraph

from .conftest import LAYER, counted, graph

BIG = """\
graph big(%x: f32[256, 256], %w: f32[256, 256]):
  %0: f32[256, 256] = matmul(%x, %w)  # model.py:3 (first)
  %1: f32[256, 256] = matmul(%0, %w)  # model.py:4 (second)
  return %1
"""


def arrays(compiled: CompiledGraph) -> list[Any]:
    generator = np.random.default_rng(0)
    shapes = [slot.tensor.shape for slot in compiled.bundle.program.inputs if slot.tensor is not None]
    return [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_each_kernel_has_a_row_with_its_node_line_and_schedule(layer) -> None:
    found = layer.profile(*arrays(layer), seconds=0.02)
    product, softmax = found.rows
    assert (product.title, product.node, product.line) == ("matmul + 2", "fc", "model.py:7")
    assert product.operators == ("matmul", "add", "relu")
    assert product.rule.startswith("cpu.") and product.params and product.reason == "the first rule that takes it"
    assert product.flops == 2 * 64 * 96 * 96 + 2 * 64 * 96 and product.nbytes == 4 * (2 * 64 * 96 + 96 * 96 + 96)
    assert (softmax.title, softmax.node, softmax.line) == ("softmax", "attention", "model.py:9")
    assert all(row.seconds > 0 and row.roof and row.bandwidth > 0 and row.rate > 0 for row in found.rows)


def test_what_is_profiled_gives_the_same_results(layer) -> None:
    given = arrays(layer)
    split = split_graph(layer, origin_of(layer.report()))
    np.testing.assert_array_equal(split.callable(split.functions)(*given), layer(*given))


def test_kernels_of_a_large_graph_are_not_compiled_again() -> None:
    compiled = hidet.compile(graph(BIG), options={"threads": 1, "cache": False})
    built: list[str] = []

    class Observer:
        HIDET_API = 1

        def hidet_kernel_built(self, name: str) -> None:
            built.append(name)

    with hidet.plugins.use(Observer()) as registry:
        known = origin_of(compiled.report())
        split = split_graph(compiled, replace(known, ctx=replace(known.ctx, registry=registry)))
    assert sorted(built) == ["host", "idle"]
    np.testing.assert_array_equal(split.callable(split.functions)(*arrays(compiled)), compiled(*arrays(compiled)))


def test_bodies_of_loops_are_counted_as_often_as_they_run() -> None:
    compiled = hidet.compile(counted(), options={"threads": 1})
    found = compiled.profile(np.zeros(4, np.float32), np.asarray(5, np.int64), seconds=0.01)
    assert [row.runs for row in found.rows if "exp" in row.operators] == [5]


def test_rows_and_host_add_up_to_the_call(layer) -> None:
    split = split_graph(layer, origin_of(layer.report()))
    first, second = split.tasks
    # Between two tasks of compiled code Python spends 1 s here that a call of the graph itself does not.
    calls = [OneCall(10.0, 0, ((first, 1.0, 4.0), (IDLE, 4.25, 4.75), (second, 5.0, 8.0)))]
    times = times_of(split, calls, [OneCall(9.0)])
    assert times.seconds == {first: 2.5, second: 2.5}
    assert times.host == 3.0 and times.call == 9.0
    assert times.timeline == ((first, 1.0, 3.5), (second, 3.5, 6.0))


def test_what_python_does_before_a_task_is_not_the_hosts(layer) -> None:
    split = split_graph(layer, origin_of(layer.report()))
    first, second = split.tasks
    # The host comes to a task at 1 and at 6: functions that do nothing are called before each, to warm the caches.
    before = ((IDLE, 1.0, 2.0), (IDLE, 2.0, 2.25)), ((IDLE, 6.0, 7.0), (IDLE, 7.0, 7.25))
    runs = (*before[0], (second, 2.5, 4.75), *before[1], (first, 7.5, 9.75))
    times = times_of(split, [OneCall(10.0, 0, runs)], [OneCall(7.0)])
    assert times.seconds == {first: 2.0, second: 2.0}
    # 1 s to the first task, 1.25 s from it to the next, 0.25 s behind that.
    assert times.host == 2.5
    assert times.timeline == ((second, 1.0, 3.0), (first, 4.25, 6.25))


def test_rows_of_loops_stand_where_they_ran() -> None:
    compiled = hidet.compile(counted(), options={"threads": 1})
    found = compiled.profile(np.zeros(4, np.float32), np.asarray(3, np.int64), seconds=0.02)
    assert [(row.title, row.runs) for row in found.rows] == [("exp", 3)]


def test_no_rate_follows_from_a_time_that_the_clock_cannot_see() -> None:
    row = ProfileRow("k", "exp(f32[4])", "", "", 1e-9, flops=4, nbytes=32)
    assert row.rate == 0.0 == row.bandwidth


def test_calls_that_were_disturbed_do_not_count(layer) -> None:
    split = split_graph(layer, origin_of(layer.report()))
    first, second = split.tasks
    quiet = OneCall(4.0, 0, ((first, 1.0, 2.0), (second, 2.0, 3.0)))
    disturbed = OneCall(3.0, 2, ((first, 0.0, 1.0), (second, 1.0, 3.0)))
    times = times_of(split, [disturbed, quiet], [OneCall(1.0, 5), OneCall(4.0, 0)])
    assert times.seconds == {first: 1.0, second: 1.0} and times.call == 4.0


def test_a_graph_that_is_not_profiled_is_left_as_it_is(layer) -> None:
    functions = dict(layer.__dict__)
    layer.profile(*arrays(layer), seconds=0.01)
    assert layer.__dict__ == functions


def test_the_table_names_every_row_and_what_they_add_up_to(layer) -> None:
    text = str(layer.profile(*arrays(layer), seconds=0.02))
    for word in ("matmul + 2", "softmax", "model.py:7", "model.py:9", "GB/s", "2 rows take", "kB for temporaries"):
        assert word in text


def test_workspaces_are_shown_where_a_row_has_one(layer) -> None:
    found = layer.profile(*arrays(layer), seconds=0.02)
    assert "workspace" not in str(found) and "Workspace" not in page_html(layer.report(), found, listings=False)
    first, second = found.rows
    with_one = replace(found, rows=(replace(first, workspace=1 << 20), second))
    assert "workspace" in str(with_one) and "1.05 MB" in str(with_one)
    assert "Workspace" in page_html(layer.report(), with_one, listings=False)


def test_memory_in_use_is_told_for_each_step(layer) -> None:
    use = layer.profile(*arrays(layer), seconds=0.01).memory
    # What the product makes, which the softmax reads.
    assert use.needed == 64 * 96 * 4 <= use.arena
    assert max(use.over_time) == use.needed and len(use.over_time) == use.steps


def test_a_trace_has_an_event_for_each_kernel(layer) -> None:
    trace = json.loads(json.dumps(layer.profile(*arrays(layer), seconds=0.01).trace()))
    kernels = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in kernels] == ["matmul", "softmax"]
    assert kernels[0]["args"]["where"] == "model.py:7" and kernels[0]["ts"] + kernels[0]["dur"] <= kernels[1]["ts"]


def test_numbers_for_programs_survive_json(layer) -> None:
    found = json.loads(json.dumps(layer.profile(*arrays(layer), seconds=0.01).as_json()))
    assert found["rows"][0]["operators"] == ["matmul", "add", "relu"]
    assert found["coverage"] == pytest.approx(found["total"] / found["seconds"])


def test_a_row_is_found_by_the_beginning_of_a_name() -> None:
    found = Profile("m", (ProfileRow("k", "matmul(f32[2])", "encoder.fc", "a.py:1", 1.0),), 1.0, 0.0, "a CPU")
    assert found.row("encoder").kernel == "k"
    with pytest.raises(HidetError, match="begins with 'decoder'"):
        found.row("decoder")


def test_a_graph_from_a_file_says_why_it_cannot_be_profiled(layer, tmp_path) -> None:
    layer.save(tmp_path / "layer.hidet")
    with pytest.raises(HidetError, match="it is from a file"):
        hidet.load(tmp_path / "layer.hidet").profile(*arrays(layer))


def test_what_graphs_were_made_from_goes_when_they_go(layer) -> None:
    gc.collect()  # graphs of other tests may wait for it
    before = len(origin._ORIGINS)
    compiled = hidet.compile(graph(BIG), options={"threads": 1})
    assert len(origin._ORIGINS) == before + 1
    del compiled
    gc.collect()
    assert len(origin._ORIGINS) == before


def test_elements_of_weights_are_not_kept() -> None:
    text = "graph g(%x: f32[2]):\n  const %w: f32[2] = [1.0, 2.0]\n  %0: f32[2] = add(%x, %w)\n  return %0\n"
    compiled = hidet.compile(graph(text))
    known = origin_of(compiled.report())
    graphs = [known.graph, *(run.after for run in known.passes), *(p.scheduled.task_graph.graph for p in known.parts)]
    assert known.graph.constants and known.passes
    assert all(constant.data is None for graph in graphs for constant in graph.constants.values())


def test_the_command_prints_a_table_and_writes_a_trace(tmp_path) -> None:
    model, trace = tmp_path / "layer.hir", tmp_path / "trace.json"
    model.write_text(LAYER)
    arguments = ["profile", str(model), "--seconds", "0.01", "--trace", str(trace)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "model.py:9" in result.output and json.loads(trace.read_text())["traceEvents"]
    rows = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)["rows"]
    assert [row["node"] for row in rows] == ["fc", "attention"]
    top = CliRunner().invoke(main, [*arguments, "--top", "1"]).output
    assert ("softmax" in top) != ("matmul" in top)


def test_without_the_wheel_people_are_told_what_to_install(layer) -> None:
    with without("report"), pytest.raises(AttributeError, match="'profile': hidet-report is installed, but not active"):
        hidet.compile(graph(BIG)).profile()
