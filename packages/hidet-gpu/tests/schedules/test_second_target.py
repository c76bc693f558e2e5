"""A GPU that no wheel knows: its tasks are scheduled by what hidet-gpu offers to every one, and come out right."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

import hidet
from hidet.context import make_context
from hidet.errors import PluginError
from hidet.fusion.fuse import fuse
from hidet.gpu.codegen.source import emit_source
from hidet.gpu.testing.loom import Plugin
from hidet.gpu.testing.opencl_c import HEADER, OPENCL
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes, run_program_passes
from hidet.schedule.select import ScheduledTask, select_schedules
from hidet.testing import check_rule


@pytest.fixture
def registry() -> Iterator[hidet.plugins.Registry]:
    with hidet.plugins.use(Plugin) as registry:
        yield registry


GRAPHS = {
    "gpu.matmul": "graph g(%x: {0}[70, 24], %y: {0}[24, 40], %z: {0}[40]):\n"
    "  %0: {0}[70, 40] = matmul(%x, %y)\n  %1: {0}[70, 40] = add(%0, %z)\n  return %1\n",
    "gpu.reduce_products": "graph g(%x: {0}[3, 40], %y: {0}[40, 7]):\n  %0: {0}[3, 7] = matmul(%x, %y)\n  return %0\n",
    "gpu.elementwise": "graph g(%x: {0}[3, 40]):\n  %0: {0}[3, 40] = tanh(%x)\n  return %0\n",
    "gpu.rows": "graph g(%x: {0}[7, 40]):\n  %0: {0}[7, 40] = softmax(%x, axis=1)\n  return %0\n",
    "gpu.scan": "graph g(%x: {0}[7, 40]):\n  %0: {0}[7, 40] = cumsum(%x, axis=1)\n  return %0\n",
    "gpu.pool": "graph g(%x: {0}[1, 8, 6, 6]):\n"
    "  %0: {0}[1, 8, 3, 3] = max_pool(%x, kernel=[2, 2], stride=[2, 2])\n  return %0\n",
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("rule", GRAPHS)
def test_schedules_of_every_gpu_serve_it(rule: str, dtype: str, registry: hidet.plugins.Registry) -> None:
    report = check_rule(registry.schedules[rule], GRAPHS[rule].format(dtype), "loom", points=2, seeds=1)
    assert len(report.tasks) == 1


@pytest.mark.parametrize("rule", ["gpu.matmul", "gpu.elementwise", "gpu.pool"])
def test_what_exchanges_nothing_in_a_warp_serves_warps_of_any_size(rule: str, registry: hidet.plugins.Registry) -> None:
    report = check_rule(registry.schedules[rule], GRAPHS[rule].format("f32"), "loom:64", points=2, seeds=1)
    assert len(report.tasks) == 1


@pytest.mark.parametrize("rule", ["gpu.rows", "gpu.scan", "gpu.reduce_products"])
def test_what_does_leaves_its_tasks_to_others(rule: str, registry: hidet.plugins.Registry) -> None:
    with pytest.raises(PluginError, match=r"takes none of the graph.s tasks on loom"):
        check_rule(registry.schedules[rule], GRAPHS[rule].format("f32"), "loom:64")


def sources(graph: str) -> list[str]:
    """The kernels of a graph in a second language."""
    ctx = make_context("loom", {"cache": False})
    fused = fuse(run_graph_passes(parse_graph(graph, ctx.registry.operators), ctx), ctx)
    programs = [step.program for step in select_schedules(fused, ctx).steps if isinstance(step, ScheduledTask)]
    return [HEADER + emit_source(run_program_passes(program.module, ctx), OPENCL).text for program in programs]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler of C")
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("rule", GRAPHS)
@pytest.mark.usefixtures("registry")
def test_kernels_are_printed_in_its_language(rule: str, dtype: str) -> None:
    for source in sources(GRAPHS[rule].format(dtype)):
        # Barriers and shuffles are declared by nobody.
        command = ["cc", "-x", "c", "-std=gnu11", "-Wno-implicit-function-declaration", "-fsyntax-only", "-"]
        read = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert read.returncode == 0, f"{read.stderr}\n{source}"


def test_nothing_of_another_gpu_is_asked(registry: hidet.plugins.Registry) -> None:
    names = {spec.name for op in ("matmul", "softmax", "attention") for spec in registry.schedules_for(op, "loom")}
    assert {"gpu.matmul", "gpu.rows"} <= names and not [name for name in names if name.startswith("cuda.")]
    passes = {spec.name for level in ("graph", "program") for spec in registry.passes_for(level, "loom")}
    assert "gpu-block-launches" in passes and not [name for name in passes if name.startswith("cuda-")]
