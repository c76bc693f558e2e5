"""The kernel cache under whole compilations: several processes at once, warm starts, damaged entries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.cache import KernelCache
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.errors import CacheWarning
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.host import units
from hidet.runtime.compiled import CompileReport

ROWS = dims.symbol("rows", 1, 512)


def model(ctx: CompileContext) -> Graph:
    """Two different kernels on x[rows, 24]."""
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.f32, (ROWS, 24)), "x")
    w = b.input(TensorType(dtypes.f32, (16, 24)), "w")
    return b.build([b.emit("linear", b.emit("softmax", x, axis=1), w)])


def compile_and_check() -> CompileReport:
    """Compile `model` with the cache that HIDET_CACHE_DIR names and compare its result with numpy's."""
    ctx = make_context("cpu")
    compiled = compile_graph(model(ctx), ctx)
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((7, 24), (16, 24)))
    weights = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(compiled(x, w), weights / weights.sum(1, keepdims=True) @ w.T, rtol=1e-4, atol=1e-5)
    return compiled.report()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, used by all contexts made in the test."""
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["one module", "a module a kernel"])
def split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile as a small graph, and as a large one."""
    if request.param != "one module":
        monkeypatch.setattr(units, "SMALL_GRAPH_FLOPS", 0)


def _entries(cache: Path) -> list[Path]:
    """What compilations have stored; the thread pool's code is there as well."""
    found = KernelCache(cache).entries()
    return sorted(entry.path for entry in found if ("code", "thread pool") not in entry.key.fields)


@pytest.mark.usefixtures("split")
def test_a_second_compilation_takes_everything_from_the_cache(cache: Path) -> None:
    first, second = compile_and_check(), compile_and_check()
    assert first.cached_modules == 0
    assert second.cached_modules == second.modules == first.modules
    assert second.is_kept
    assert len(_entries(cache)) == first.modules + 1


def test_a_small_graph_is_one_module_and_the_graph_itself(cache: Path) -> None:
    compile_and_check()
    assert len(_entries(cache)) == 2


@pytest.mark.usefixtures("split")
def test_damaged_entries_are_built_again_with_one_warning(cache: Path) -> None:
    modules = compile_and_check().modules
    for entry in _entries(cache):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0xFF
        entry.write_bytes(bytes(data))
    with pytest.warns(CacheWarning, match="is damaged"):
        assert compile_and_check().cached_modules == 0
    assert compile_and_check().cached_modules == modules


def test_four_processes_compile_one_model_into_one_cache(cache: Path) -> None:
    command = [sys.executable, "-c", "from tests.test_shared_cache import *; print(compile_and_check().modules)"]
    root = Path(__file__).parents[1]
    processes = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert set(outputs) == {"1\n"}
    assert len(_entries(cache)) == 2
    assert compile_and_check().cached_modules == 1
