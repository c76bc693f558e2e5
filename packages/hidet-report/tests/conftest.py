"""Graphs that tests of hidet-report compile."""

from __future__ import annotations

from pathlib import Path

import pytest

import hidet
from hidet.dtypes import f32, i64
from hidet.graph.builder import GraphBuilder
from hidet.graph.control import emit_while
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.types import TensorType
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph

LAYER = """\
graph layer(%x: f32[64, 96], %w: f32[96, 96], %b: f32[96]):
  %0: f32[64, 96] = matmul(%x, %w)  # model.py:7 (fc)
  %1: f32[64, 96] = add(%0, %b)  # model.py:7 (fc)
  %2: f32[64, 96] = relu(%1)  # model.py:8
  %3: f32[64, 96] = softmax(%2, axis=1)  # model.py:9 (attention)
  return %3
"""


def graph(text: str) -> Graph:
    """A graph from its text."""
    return parse_graph(text, load_registry().operators)


def counted() -> Graph:
    """exp, as often as an input says."""
    builder = GraphBuilder(load_registry().operators, "counted")
    x, limit = builder.input(TensorType(f32, (4,))), builder.input(TensorType(i64, ()))
    inner = builder.nested("body")
    inner.input(TensorType(i64, ()))
    body = inner.build([inner.emit("exp", inner.input(x.type))])
    return builder.build(emit_while(builder, body, limit=limit, carried=[x]))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel cache of its own for each test."""
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def layer() -> CompiledGraph:
    """A product with a bias and a ReLU, and a softmax behind it."""
    return hidet.compile(graph(LAYER), options={"threads": 1})
