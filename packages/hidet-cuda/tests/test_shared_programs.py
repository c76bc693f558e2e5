"""Tasks of a model share kernels: how many ResNet-50 needs for sm_90a, at every size of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.context import CompileContext
from hidet.cuda.testing.schedules import context_for
from hidet.fusion.fuse import fuse
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.passes.manager import run_graph_passes
from hidet.schedule.select import select_schedules

MOST_KERNELS = 25
# Small ones, those around which tiles change, and large ones.
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128)


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return context_for("sm_90a")


def resnet50(ctx: CompileContext, batch: int, *, is_frozen: bool) -> Graph:
    """The model in f16, weights as constants or as parameters."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.f16, (batch, 3, 224, 224)), "x")

    def weight(*shape: int) -> Value:
        if is_frozen:
            return b.constant(np.zeros(shape, np.float16))
        return b.input(TensorType(dtypes.f16, shape), is_parameter=True)

    def normal(value: Value, filters: int, taps: int, step: int = 1) -> Value:
        filter_ = weight(filters, value.tensor.shape[1], taps, taps)
        product = b.emit("conv", value, filter_, None, padding=taps // 2, stride=step)
        return b.emit("batch_norm", product, *(weight(filters) for _ in range(4)))

    x = b.emit("relu", normal(x, 64, 7, 2))
    x = b.emit("max_pool", x, kernel=(3, 3), stride=2, padding=1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            step = 2 if stage and not block else 1
            y = b.emit("relu", normal(x, width, 1))
            y = b.emit("relu", normal(y, width, 3, step))
            y = normal(y, 4 * width, 1)
            x = b.emit("relu", b.emit("add", y, x if block else normal(x, 4 * width, 1, step)))
    x = b.emit("mean", x, axes=(2, 3))
    return b.build([b.emit("linear", x, weight(1000, 2048), weight(1000))])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.thorough(every=4)
def test_resnet50_needs_at_most_twenty_five_kernels(ctx: CompileContext, batch: int) -> None:
    graph = run_graph_passes(resnet50(ctx, batch, is_frozen=True), ctx)
    modules = select_schedules(fuse(graph, ctx), ctx).modules.values()
    kernels = sum(function.kind == "kernel" for module in modules for function in module.functions)
    assert 10 <= kernels <= MOST_KERNELS


@pytest.mark.parametrize("batch", (1, 4, 128))
def test_weights_that_may_change_need_a_second_kernel_for_addresses_that_are_not_aligned(
    ctx: CompileContext, batch: int
) -> None:
    """Where a caller's weight lies is known at the call alone; constants begin at multiples of 64 bytes."""
    graph = run_graph_passes(resnet50(ctx, batch, is_frozen=False), ctx)
    modules = select_schedules(fuse(graph, ctx), ctx).modules.values()
    kernels = sum(function.kind == "kernel" for module in modules for function in module.functions)
    assert 10 <= kernels <= 2 * MOST_KERNELS
