"""What the program of a graph says of its arguments."""

from __future__ import annotations

from hidet import dtypes
from hidet.context import make_context
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder, TensorType
from hidet.host.program import build_host_program
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import select_schedules


def test_parameters_that_nothing_reads_are_not_used_by_the_program() -> None:
    ctx = make_context("cpu", {"cache": False})
    b = GraphBuilder(ctx.registry.operators)
    square = TensorType(dtypes.f32, (512, 512))
    x, weight, _ = (b.input(square, is_parameter=is_parameter) for is_parameter in (False, True, True))
    graph = run_graph_passes(b.build([b.emit("linear", x, weight)]), ctx)
    program = build_host_program(select_schedules(fuse(graph, ctx), ctx), "main").program
    assert [slot.is_used for slot in program.inputs] == [True, True, False]
