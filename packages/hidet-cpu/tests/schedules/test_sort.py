"""Core's sorting routines as machine code."""

from __future__ import annotations

import pytest

from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_close, context, random_array
from hidet.dtypes import from_numpy
from hidet.graph import GraphBuilder, TensorType
from hidet.testing.interpret import interpret


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_sorting_and_selecting_agree_with_the_reference(dtype: str) -> None:
    x = random_array(3, 100, 4, dtype=dtype)
    builder = GraphBuilder(context().registry.operators)
    value = builder.input(TensorType(from_numpy(x.dtype), x.shape), "x")
    ordered = builder.emit_all("sort", [value], {"axis": 1, "descending": True})
    graph = builder.build([*ordered, *builder.emit_all("topk", [value], {"axis": 1, "k": 7})])
    compiled = compile_graph(graph, context())
    assert compiled.report().nodes.routine == 2
    for actual, expected in zip(compiled(x), interpret(graph, [x]), strict=True):
        assert_close(actual, expected)
