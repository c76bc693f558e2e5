"""Positions outside of their axis stop the device: what is checked, and what the kernel does."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.context import CompileContext
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import context_for
from hidet.errors import LaunchError, PositionError
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.host.report import count_nodes
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.testing.interpret import interpret

EMBEDDING = """
graph g(%table: f32[{rows}, 4], %index: {dtype}[{count}]):
  %0: f32[{count}, 4] = embedding(%table, %index, wraps={wraps})  # model.py:12 (words)
  return %0
"""


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return context_for("sm_80")


def graph_of(ctx: CompileContext, rows: object, count: object, wraps: bool, dtype: str = "i64") -> Graph:
    symbols = "".join(f"symbol {size}: 1..64\n" for size in (rows, count) if isinstance(size, str))
    text = symbols + textwrap.dedent(EMBEDDING).format(rows=rows, count=count, wraps=wraps, dtype=dtype)
    return parse_graph(text, ctx.registry.operators)


def scheduled(graph: Graph, ctx: CompileContext) -> ScheduledGraph:
    return select_schedules(fuse(run_graph_passes(graph, ctx), ctx), ctx)


def assertion(graph: Graph, ctx: CompileContext) -> tuple[Module, list[object]]:
    """The program of the check, which is the first one to run, and the sizes that it takes."""
    first = scheduled(graph, ctx).steps[0]
    assert isinstance(first, ScheduledTask) and first.task.op_name == "assert_positions"
    return block_launches(first.program.module), list(first.program.arguments)


def test_the_check_runs_before_what_reads_there_and_is_no_node_of_the_model(ctx: CompileContext) -> None:
    graph = graph_of(ctx, 10, 3, wraps=False)
    found = scheduled(graph, ctx)
    assert [step.task.op_name for step in found.steps] == ["assert_positions", "elementwise"]
    assert count_nodes([found]).routine == 0


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8"])
@pytest.mark.parametrize(
    ("position", "wraps", "is_right"),
    [(0, True, True), (9, False, True), (10, True, False), (-10, True, True), (-11, True, False), (-1, False, False)],
)
def test_a_position_is_right_on_its_axis_alone(
    ctx: CompileContext, dtype: str, position: int, wraps: bool, is_right: bool
) -> None:
    if dtype == "u8" and position < 0:
        pytest.skip("an unsigned number is never negative")
    graph = graph_of(ctx, 10, 3, wraps, dtype)
    module, sizes = assertion(graph, ctx)
    index = np.array([0, position, 1], {"i64": np.int64, "i32": np.int32, "u8": np.uint8}[dtype])
    arguments = [index, np.zeros(1, np.bool_), *sizes]
    if is_right:
        run_module(module, arguments)
        return
    with pytest.raises(LaunchError, match=r"operator embedding: input index at model\.py:12 \(words\) has a position"):
        run_module(module, arguments)
    with pytest.raises(PositionError, match=f"has position {position}"):
        interpret(run_graph_passes(graph, ctx), [np.zeros((10, 4), np.float32), index])


def test_sizes_may_be_symbolic(ctx: CompileContext) -> None:
    text = str(assertion(graph_of(ctx, "n", "m", wraps=True), ctx)[0])
    assert "expected -n to n - 1" in text


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_the_check_compiles(ctx: CompileContext, architecture: str) -> None:
    module, _ = assertion(graph_of(ctx, 10, 3, wraps=True), ctx)
    for source in CudaTarget(architecture).sources(module):
        assert compile_cubin(source, architecture).remarks == ()
