"""What is compiled together."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.fusion.fuse import fuse
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.host import units
from hidet.host.program import build_host_program
from hidet.host.units import CompileUnit, compile_units, merge_modules
from hidet.ir.func import EXPORTED, Function, Module
from hidet.ir.stmt import Return
from hidet.ir.verify import verify_module
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import select_schedules


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False})


def _softmax_twice(ctx: CompileContext, size: int) -> Graph:
    """Two kernels over [64, size]; about 10 * 64 * size operations."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.f32, (64, size)), "x")
    first: Value = b.emit("softmax", x, axis=1)
    return b.build([b.emit("softmax", first, axis=0)])


def _units(graph: Graph, ctx: CompileContext) -> dict[str, CompileUnit]:
    scheduled = select_schedules(fuse(graph, ctx), ctx)
    return compile_units([(scheduled, build_host_program(scheduled, "main"))])


def test_a_small_graph_is_one_module_of_little_effort(ctx: CompileContext) -> None:
    (unit,) = _units(_softmax_twice(ctx, 16), ctx).values()
    assert unit.effort == 1
    assert unit.module.externals == ()
    verify_module(unit.module)


def test_a_large_graph_is_a_module_for_each_kernel_and_one_for_host_code(ctx: CompileContext) -> None:
    found = _units(_softmax_twice(ctx, 1 << 16), ctx)
    efforts = {name: unit.effort for name, unit in found.items()}
    assert efforts.pop("host") == 0
    assert len(efforts) >= 2
    assert set(efforts.values()) == {3}
    for unit in found.values():
        verify_module(unit.module)


def test_kernels_that_only_the_prepare_graph_runs_are_worth_little(ctx: CompileContext) -> None:
    b = GraphBuilder(ctx.registry.operators)
    x, weight = b.input(TensorType(dtypes.f32, (512, 512))), b.constant(np.ones((512, 512), np.float32))
    graph = run_graph_passes(b.build([b.emit("linear", x, weight)]), ctx)
    assert graph.prepare is not None
    parts = []
    for part, name in ((graph, "main"), (graph.prepare.graph, "prepare")):
        scheduled = select_schedules(fuse(part, ctx), ctx)
        parts.append((scheduled, build_host_program(scheduled, name)))
    found = compile_units(parts[:1], parts[1:])
    (once,) = parts[1][0].modules
    assert {name: unit.effort for name, unit in found.items() if unit.effort != 3} == {once: 1, "host": 0}


def test_graphs_that_differ_in_sizes_have_equal_kernels(ctx: CompileContext) -> None:
    a, b = (_units(_softmax_twice(ctx, size), ctx) for size in (1 << 16, 3 << 15))
    assert {unit.digest for name, unit in a.items() if name != "host"} == {
        unit.digest for name, unit in b.items() if name != "host"
    }


def test_the_same_graph_has_the_same_digests_each_time(ctx: CompileContext) -> None:
    for size in (16, 1 << 16):
        first, second = (_units(_softmax_twice(ctx, size), ctx) for _ in range(2))
        assert [unit.digest for unit in first.values()] == [unit.digest for unit in second.values()]


def test_a_graph_without_kernels_needs_no_module(ctx: CompileContext) -> None:
    b = GraphBuilder(ctx.registry.operators)
    assert _units(b.build([]), ctx) == {}


def _module(entry: str, helper: str) -> Module:
    functions = [Function(name, (), Return(None), kind) for name, kind in ((helper, "device"), (entry, "host"))]
    return Module(tuple(functions), entry)


def test_device_functions_of_one_name_are_renamed_when_modules_are_merged() -> None:
    merged = merge_modules([_module("one", "tile"), _module("two", "tile")], {"two": None})
    assert [function.name for function in merged.functions] == ["tile", "one", "two_tile", "two"]
    assert [function.name for function in merged.functions if EXPORTED in function.attributes] == ["two"]
    assert merged.entry == "two"


def test_results_do_not_depend_on_how_a_graph_is_cut(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    x = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    together = compile_graph(_softmax_twice(ctx, 16), ctx)
    monkeypatch.setattr(units, "SMALL_GRAPH_FLOPS", 0)
    apart = compile_graph(_softmax_twice(ctx, 16), ctx)
    assert (together.report().modules, apart.report().modules > 1) == (1, True)
    np.testing.assert_allclose(together(x), apart(x), rtol=1e-6)
