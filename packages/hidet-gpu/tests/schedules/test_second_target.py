"""A GPU that no wheel knows: its tasks are scheduled by what hidet-gpu offers to every one, and come out right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hidet
from hidet.errors import PluginError
from hidet.gpu.testing.loom import Plugin
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


def test_nothing_of_another_gpu_is_asked(registry: hidet.plugins.Registry) -> None:
    names = {spec.name for op in ("matmul", "softmax", "attention") for spec in registry.schedules_for(op, "loom")}
    assert {"gpu.matmul", "gpu.rows"} <= names and not [name for name in names if name.startswith("cuda.")]
    passes = {spec.name for level in ("graph", "program") for spec in registry.passes_for(level, "loom")}
    assert "gpu-block-launches" in passes and not [name for name in passes if name.startswith("cuda-")]
