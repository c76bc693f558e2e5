"""What a compilation may cost, by counts that are the same on every machine: builds, modules, Python calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from hidet import dtypes
from hidet.context import CompileContext, make_context
from hidet.driver import compile_graph
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.graph.verify import verify_graph
from hidet.passes.graph.fuse import fuse
from hidet.passes.manager import run_graph_passes
from hidet.schedule import select, units
from hidet.schedule.host import build_host_program
from hidet.schedule.select import select_schedules

WIDTH, HEADS, TOKENS = 32, 4, 12


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False, "threads": 1})


@pytest.fixture
def a_module_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile small graphs as large ones are."""
    monkeypatch.setattr(units, "SMALL_GRAPH_FLOPS", 0)


def _transformer(ctx: CompileContext, layers: int) -> Graph:
    """An encoder: 18 nodes a layer, weights as parameters."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.f32, (2, TOKENS, WIDTH)), "x")

    def weight(*shape: int) -> Value:
        return b.input(TensorType(dtypes.f32, shape), is_parameter=True)

    def linear(value: Value, inputs: int, outputs: int) -> Value:
        return b.emit("linear", value, weight(outputs, inputs), weight(outputs))

    def heads(value: Value) -> Value:
        return b.emit(
            "transpose", b.emit("reshape", value, shape=(2, TOKENS, HEADS, WIDTH // HEADS)), perm=(0, 2, 1, 3)
        )

    for _ in range(layers):
        q, k, v = (heads(linear(x, WIDTH, WIDTH)) for _ in range(3))
        mixed = b.emit("transpose", b.emit("attention", q, k, v), perm=(0, 2, 1, 3))
        mixed = linear(b.emit("reshape", mixed, shape=(2, TOKENS, WIDTH)), WIDTH, WIDTH)
        x = b.emit("layer_norm", b.emit("add", x, mixed), weight(WIDTH), weight(WIDTH), rank=1, eps=1e-5)
        hidden = b.emit("gelu", linear(x, WIDTH, 2 * WIDTH))
        x = b.emit(
            "layer_norm",
            b.emit("add", x, linear(hidden, 2 * WIDTH, WIDTH)),
            weight(WIDTH),
            weight(WIDTH),
            rank=1,
            eps=1e-5,
        )
    return b.build([x])


def test_a_program_is_built_once_for_each_distinct_task(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    schedule = select._schedule
    monkeypatch.setattr(select, "_schedule", lambda task, *rest: (built.append(task.key), schedule(task, *rest))[1])
    tasks = fuse(run_graph_passes(_transformer(ctx, 4), ctx), ctx)
    scheduled = select_schedules(tasks, ctx)
    assert len(built) == len(set(built)) == scheduled.programs == len({task.key for task in tasks.tasks})
    assert scheduled.programs < len(tasks.tasks) / 3


@pytest.mark.usefixtures("a_module_a_kernel")
def test_twelve_equal_layers_compile_as_many_modules_as_two(ctx: CompileContext) -> None:
    two, twelve = (compile_graph(_transformer(ctx, layers), ctx).report() for layers in (2, 12))
    assert two.modules == twelve.modules
    assert two.programs == twelve.programs


def test_a_small_graph_compiles_one_module(ctx: CompileContext) -> None:
    assert compile_graph(_transformer(ctx, 1), ctx).report().modules == 1


def _calls_of_python(work: Callable[[], object]) -> int:
    """How many Python functions are called: a measure of work that is the same on every machine."""
    count = 0

    def notice(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(notice)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _stages(ctx: CompileContext, layers: int) -> dict[str, int]:
    """Calls by hand-over, of a model with that many layers."""
    graph = _transformer(ctx, layers)
    optimized = run_graph_passes(graph, ctx)
    tasks = fuse(optimized, ctx)
    scheduled = select_schedules(tasks, ctx)
    return {
        "verify": _calls_of_python(lambda: verify_graph(graph)),
        "passes": _calls_of_python(lambda: run_graph_passes(graph, ctx)),
        "fuse": _calls_of_python(lambda: fuse(optimized, ctx)),
        "select": _calls_of_python(lambda: select_schedules(tasks, ctx)),
        "host": _calls_of_python(lambda: build_host_program(scheduled, "main")),
    }


def test_work_grows_no_faster_than_the_model(ctx: CompileContext) -> None:
    _stages(ctx, 1)  # what is imported or computed once
    four, eight, sixteen = (_stages(ctx, layers) for layers in (4, 8, 16))
    for stage in four:
        first, second = eight[stage] - four[stage], sixteen[stage] - eight[stage]
        assert second <= 2.1 * first, f"{stage}: 4 layers more take {first} calls, 8 layers more {second}"


@pytest.mark.slow
def test_resnet50_needs_at_most_twenty_five_kernels(ctx: CompileContext) -> None:
    from hidet.torch.export import import_module
    from tests.models.zoo import MODELS

    entry = MODELS["resnet50"]
    graph = run_graph_passes(import_module(entry.build(), entry.inputs(0), ctx), ctx)
    assert len(select_schedules(fuse(graph, ctx), ctx).modules) <= 25
