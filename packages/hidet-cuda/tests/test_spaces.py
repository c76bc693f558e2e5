"""Points of the spaces of rules for GPUs compile, and take no more shared memory than a block has."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hidet.context import CompileContext, make_context
from hidet.cuda.testing.schedules import compile_cubins
from hidet.fusion.fuse import fuse
from hidet.gpu.codegen.source import KernelSource
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice
from hidet.schedule.shared_programs import build
from hidet.schedule.shortlist import space_of

POINTS = 2
PRODUCT = """
graph g(%x: f16[512, 776], %y: f16[776, 328]):
  %0: f16[512, 328] = matmul(%x, %y)
  return %0
"""
ATTENTION = """
graph g(%q: f16[1, 8, 512, 128], %k: f16[1, 8, 900, 128], %v: f16[1, 8, 900, 128]):
  %0: f16[1, 8, 512, 128] = attention(%q, %k, %v)
  return %0
"""
ROWS = """
graph g(%x: f16[64, 4096]):
  %0: f16[64, 4096] = softmax(%x, axis=1)
  return %0
"""
SCAN = """
graph g(%x: f32[64, 9000]):
  %0: f32[64, 9000] = cumsum(%x, axis=1)
  return %0
"""
SORT = """
graph g(%x: f32[64, 1500]):
  %0: f32[64, 1500], %1: i64[64, 1500] = sort(%x, axis=1)
  return %0
"""
GRAPHS = {"product": PRODUCT, "attention": ATTENTION, "rows": ROWS, "scan": SCAN, "sort": SORT}


def points(text: str, ctx: CompileContext) -> Iterator[tuple[str, object, list[KernelSource]]]:
    """Sources of some points of every rule that takes a graph's tasks, always the same ones."""
    graph = run_graph_passes(parse_graph(text, ctx.registry.operators), ctx)
    for task in fuse(graph, ctx).tasks:
        for claim in claims(task, ctx, []):
            space = list(space_of(claim.rule, claim.match, ctx))
            for params in random.Random(1).sample(space, min(POINTS, len(space))):
                choice = Choice(claim.spec.name, claim.rule, claim.match, params)
                module = block_launches(build(choice, ctx).program.module)
                yield claim.spec.name, params, list(ctx.target.sources(module))  # type: ignore[attr-defined]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "text", [PRODUCT, ATTENTION, ROWS, SCAN, SORT], ids=["product", "attention", "rows", "scan", "sort"]
)
@pytest.mark.thorough(every=4)
def test_points_compile_and_fit_into_a_block(text: str, arch: str) -> None:
    ctx = make_context(f"cuda:{arch}", {"cache": False})
    found = [(rule, params, source) for rule, params, sources in points(text, ctx) for source in sources]
    assert found
    cubins = compile_cubins([source for _, _, source in found], arch)
    most = ctx.target.block_shared_memory  # type: ignore[attr-defined]
    for (rule, params, source), cubin in zip(found, cubins, strict=True):
        for kernel in source.kernels:
            assert (kernel.shared_bytes or 0) + cubin.usage[kernel.symbol].shared_bytes <= most, (rule, params)


def test_blocks_whose_warps_move_registers_have_a_multiprocessor_alone() -> None:
    """Two stages leave shared memory for two blocks of 128 x 256, which have no registers for them."""
    ctx = make_context("cuda:sm_90a", {"cache": False})
    graph = run_graph_passes(parse_graph(PRODUCT, ctx.registry.operators), ctx)
    task = fuse(graph, ctx).tasks[-1]
    claim = next(claims(task, ctx, []))
    knobs = [
        (str(knobs["tile"]), knobs["stages"], params)
        for knobs, params in space_of(claim.rule, claim.match, ctx).points()
    ]
    (params,) = {p for tile, stages, p in knobs if tile == "128x256x64 by TMA" and stages == 2 and p.split_k == 1}
    module = block_launches(build(Choice(claim.spec.name, claim.rule, claim.match, params), ctx).program.module)
    assert compile_cubins(list(ctx.target.sources(module)), "sm_90a")  # type: ignore[attr-defined]
