"""Checks stand before what reads at computed positions, and fail before anything is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.context import CompileContext, make_context
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.graph.control import emit_while
from hidet.operators import selection
from hidet.passes.graph.check_positions import CheckPositions
from hidet.passes.manager import run_graph_passes


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False})


def _checked(ctx: CompileContext, build: Callable[[GraphBuilder], list[Value]]) -> Graph:
    builder = GraphBuilder(ctx.registry.operators)
    return CheckPositions().run(builder.build(build(builder)), ctx)


def _names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def _table(b: GraphBuilder) -> Value:
    return b.input(TensorType(dtypes.f32, (10, 4)), "table")


def _index(b: GraphBuilder, name: str = "index", rows: Any = 3) -> Value:
    return b.input(TensorType(dtypes.i64, (rows,)), name)


def test_checks_of_inputs_come_before_everything_else(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x, index = _table(b), _index(b)
        return [b.emit("embedding", b.emit("relu", x), index, wraps=False)]

    assert _names(_checked(ctx, build)) == ["bitwise_xor", "amax", "require_positions", "relu", "embedding"]


@pytest.mark.parametrize(("device", "check"), [("cpu", "require_positions"), ("npu:0", "assert_positions")])
def test_a_target_that_nobody_has_heard_of_has_its_positions_checked(
    ctx: CompileContext, device: str, check: str
) -> None:
    """plugin-friction.md section 4: a new target that did not register the pass read wild memory."""
    new: Any = SimpleNamespace(name="abacus", device=device, prefers_channels_last=False)
    b = GraphBuilder(ctx.registry.operators)
    graph = b.build([b.emit("embedding", _table(b), _index(b), wraps=False)])
    assert check in _names(run_graph_passes(graph, replace(ctx, target=new)))


def test_computed_positions_are_checked_where_they_are_used(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x, index = _table(b), _index(b)
        return [b.emit("index_select", x, b.emit("neg", index))]

    assert _names(_checked(ctx, build)) == [
        *("neg", "shift_right", "bitwise_xor", "amax", "require_positions", "index_select")
    ]


def test_a_check_waits_for_the_node_that_defines_its_extent(ctx: CompileContext) -> None:
    """Counts of the numbers of an input: how many places there are is read from these numbers."""

    def build(b: GraphBuilder) -> list[Value]:
        index = _index(b)
        count = selection.read_size(b, b.emit("amax", index, axes=(0,)))
        zeros = b.emit("full", shape=(count,), value=0, dtype=dtypes.i64)
        return [b.emit("scatter", zeros, index, b.emit("neg", index), axis=0, wraps=False)]

    names = _names(_checked(ctx, build))
    assert names.index("read_sizes") < names.index("require_positions") < names.index("scatter")


def test_equal_checks_are_made_once(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x, y, index = _table(b), b.input(TensorType(dtypes.f32, (10, 2)), "y"), _index(b)
        return [b.emit("embedding", x, index), b.emit("embedding", y, index)]

    assert _names(_checked(ctx, build)).count("require_positions") == 1


@pytest.mark.parametrize(("positions", "checks"), [([0, 9, -10], 0), ([10], 1), ([-11], 1)])
def test_constants_are_checked_while_compiling(ctx: CompileContext, positions: list[int], checks: int) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        return [b.emit("embedding", _table(b), b.constant(np.array(positions)))]

    assert _names(_checked(ctx, build)).count("require_positions") == checks


@pytest.mark.parametrize(("rows", "checks"), [(10, 0), (11, 1)])
def test_positions_that_constants_determine_are_checked_while_compiling(
    ctx: CompileContext, rows: int, checks: int
) -> None:
    """Position embeddings: numbers from 0 on, computed in the graph."""

    def build(b: GraphBuilder) -> list[Value]:
        return [b.emit("embedding", _table(b), b.emit("reshape", b.emit("arange", stop=rows), shape=(1, rows)))]

    assert _names(_checked(ctx, build)).count("require_positions") == checks


def test_no_positions_need_no_check(ctx: CompileContext) -> None:
    assert _names(_checked(ctx, lambda b: [b.emit("embedding", _table(b), _index(b, rows=0))])) == ["embedding"]


def test_each_part_of_index_tuples_is_checked_against_its_axis(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        return [b.emit("gather_nd", _table(b), b.input(TensorType(dtypes.i32, (3, 2)), "index"))]

    checks = [node for node in _checked(ctx, build).nodes if node.op.name == "require_positions"]
    assert [node.attrs["extent"] for node in checks] == [10, 4]


def test_lists_of_index_tensors_are_named_by_number(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        return [b.emit("index", _table(b), None, _index(b))]

    (check,) = (node for node in _checked(ctx, build).nodes if node.op.name == "require_positions")
    assert check.attrs["what"] == "operator index: input indices[1]"
    assert check.attrs["extent"] == 4


def test_sizes_may_be_symbolic(ctx: CompileContext) -> None:
    rows = dims.symbol("rows", 0)

    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (rows, 4)), "x")
        return [b.emit("embedding", x, _index(b))]

    (check,) = (node for node in _checked(ctx, build).nodes if node.op.name == "require_positions")
    assert check.attrs["extent"] == rows


@pytest.mark.parametrize(("count", "checks"), [(10, 0), (7, 0), (11, 1)])
def test_a_loop_that_reads_the_row_of_its_iteration_needs_no_check_where_there_are_as_many(
    ctx: CompileContext, count: int, checks: int
) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        body = b.nested("body")
        iteration, table = body.input(TensorType(dtypes.i64, ())), _table(body)
        row = body.emit("index_select", table, body.emit("cast", iteration, dtype=dtypes.i32), axis=0, wraps=False)
        return list(emit_while(b, body.build([row]), limit=count, captures=[_table(b)]))

    (loop,) = _checked(ctx, build).nodes
    inner = CheckPositions().run(loop.attrs["body"], ctx)
    assert _names(inner).count("require_positions") == checks
