"""When child processes start that compile for a graph of dynamo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hidet.context import CompileContext
from hidet.torch import aot


def test_children_start_before_a_graph_is_traced_and_not_where_its_trace_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet.torch._plugin")
    done: list[str] = []
    trace = aot._trace

    def want(kinds: int, ctx: CompileContext) -> int:
        done.append("children are wanted")
        return 0

    def traced(*arguments):
        done.append("traced")
        return trace(*arguments)

    monkeypatch.setattr(aot, "wanted_workers", want)
    monkeypatch.setattr(aot, "_trace", traced)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval(), torch.ones(2, 16)
    for _ in range(2):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(model, backend="hidet")(x)
    assert done == ["children are wanted", "traced"]
