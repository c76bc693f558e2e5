"""The thread pool's machine code: compiled once, kept between processes, loaded once a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hidet import dtypes
from hidet.cache import KernelCache
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.cpu import pool
from hidet.graph import GraphBuilder, TensorType


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled, each use of the pool being the first of a process."""
    texts: list[str] = []
    compile_object = pool.compile_object
    monkeypatch.setattr(pool, "_process_code", list)
    monkeypatch.setattr(
        pool, "compile_object", lambda text, *rest: (texts.append(text), compile_object(text, *rest))[1]
    )
    return texts


def test_a_process_takes_the_pools_code_from_the_cache_that_another_filled(compiled: list[str], tmp_path: Path) -> None:
    first, second = (pool.pool_symbols(KernelCache(tmp_path)) for _ in range(2))
    assert len(compiled) == 1
    assert first.keys() == second.keys() == {"hidet_parallel"}


def test_without_a_cache_each_process_compiles_the_pools_code(compiled: list[str]) -> None:
    pool.pool_symbols()
    pool.pool_symbols()
    assert len(compiled) == 2


def test_a_compilation_keeps_the_pools_code_in_its_cache(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    ctx = make_context("cpu", {"threads": 1})
    b = GraphBuilder(ctx.registry.operators)
    graph = b.build([b.emit("relu", b.input(TensorType(dtypes.f32, (4,)), "x"))])
    compile_graph(graph, ctx)
    compile_graph(graph, ctx)
    assert len(compiled) == 1


def test_a_process_loads_the_pools_code_once() -> None:
    assert pool.pool_symbols() == pool.pool_symbols()
