"""Operators that numpy computes on the host, in graphs of a device: what they read and make is copied."""

from __future__ import annotations

import numpy as np

import hidet
from hidet import dtypes
from hidet.cache import open_cache
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.types import SequenceType
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph

F32 = dtypes.f32


def compiled(builder: GraphBuilder, *results: object) -> CompiledGraph:
    options, cache = Options(cache=False), open_cache(enabled=False)
    ctx = CompileContext(target=CudaTarget("sm_80"), registry=load_registry(), options=options, cache=cache)
    return compile_graph(builder.build(list(results)), ctx)  # type: ignore[arg-type]


def builder() -> GraphBuilder:
    return GraphBuilder(load_registry().operators)


def test_numbers_made_on_the_host_go_to_the_device(fake: FakeDriver) -> None:
    b = builder()
    words = b.input(TensorType(dtypes.string, (3,)), "words")
    graph = compiled(b, b.emit("lookup", words, keys=("one", "two"), values=(1.0, 2.0), default=-1.0, dtype=F32))
    assert graph(np.array(["two", "", "one"], object)).tolist() == [2.0, -1.0, 1.0]


def test_tensors_of_a_device_are_read_where_they_lie(fake: FakeDriver) -> None:
    b = builder()
    x = b.input(TensorType(F32, (3, 4)), "x")
    row = TensorType(F32, (1, 4))
    rows = b.emit("split_to_sequence", x, axis=0, type=SequenceType(row))
    taken = [b.emit("sequence_at", rows, b.constant(n), type=row) for n in (2, 0)]
    graph = compiled(b, *taken)
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    last, first = graph(hidet.cuda.asarray(given))
    assert last.numpy().tolist() == [given[2].tolist()]
    assert first.numpy().tolist() == [given[0].tolist()]
