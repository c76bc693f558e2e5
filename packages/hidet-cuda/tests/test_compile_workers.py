"""Child processes make the machine code that this one would make."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hidet.compiler import steps
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.graph.parser import parse_graph

GRAPH = """
graph g(%x: f16[256, 256], %w: f16[256, 256], %v: f16[256, 512]):
  %0: f16[256, 256] = matmul(%x, %w)
  %1: f16[256, 256] = relu(%0)
  %2: f16[256, 512] = matmul(%1, %v)
  %3: f16[256, 512] = softmax(%2, axis=1)
  return %3
"""


def binaries(monkeypatch: pytest.MonkeyPatch, workers: int) -> Mapping[str, bytes]:
    """Machine code of the modules of `GRAPH`, which so many children compile beside this process."""
    monkeypatch.setenv("HIDET_NUM_WORKERS", str(workers))
    made: dict[str, bytes] = {}
    load = steps.bundle_of

    def note(lowered, binaries, signature, ctx):
        made.update({binary.name: binary.data for binary in binaries})
        return load(lowered, binaries, signature, ctx)

    monkeypatch.setattr(steps, "bundle_of", note)
    ctx = make_context("cuda:sm_90a", {"cache": False})
    compile_graph(parse_graph(GRAPH, ctx.registry.operators), ctx)
    monkeypatch.undo()
    return made


def test_children_make_the_machine_code_that_this_process_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = binaries(monkeypatch, 0)
    assert len(alone) > 2
    assert binaries(monkeypatch, 2) == alone
