"""What torch's own tools see of compiled models: profiles, recompilations, structured traces."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn


class Layer(nn.Module):
    """A product and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 16]"""
        return torch.softmax(self.fc(x), 1)


def test_the_profiler_of_torch_has_a_range_for_each_kernel() -> None:
    torch._dynamo.reset()
    compiled, x = torch.compile(Layer().eval(), backend="hidet"), torch.randn(4, 16)
    with torch.no_grad():
        expected = compiled(x)
        with torch.profiler.profile() as profiler:
            assert torch.equal(compiled(x), expected)
    names = [event.name for event in profiler.events()]
    assert any(name.startswith("hidet::softmax") for name in names)
    assert any(name.startswith("hidet::") and name.endswith("(fc)") for name in names)


def test_compiling_again_tells_why(caplog) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Layer().eval(), backend="hidet", dynamic=False)
    with torch.no_grad(), caplog.at_level(logging.INFO, logger="hidet.recompile"):
        compiled(torch.randn(4, 16))
        assert not caplog.records
        compiled(torch.randn(5, 16))
    (record,) = caplog.records
    assert record.getMessage().startswith("compiled again because ")
    assert "size mismatch at index 0. expected 4, actual 5" in record.getMessage()


def test_frozen_parameters_that_change_are_told(caplog) -> None:
    torch._dynamo.reset()
    model = Layer().eval()
    compiled = torch.compile(model, backend="hidet", options={"freeze": True})
    with torch.no_grad(), caplog.at_level(logging.INFO, logger="hidet.recompile"):
        compiled(torch.randn(4, 16))
        model.fc.weight.data = torch.randn(16, 16)
        compiled(torch.randn(4, 16))
    (record,) = caplog.records
    assert "parameters are other tensors" in record.getMessage()


SCRIPT = """
import torch
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), backend="hidet")
with torch.no_grad():
    model(torch.randn(2, 8))
"""


def test_artifacts_are_in_the_structured_trace(tmp_path: Path) -> None:
    env = {**os.environ, "TORCH_TRACE": str(tmp_path), "HIDET_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", SCRIPT], env=env, check=True, timeout=300)
    (log,) = tmp_path.glob("*.log")
    entries = [line.partition("] ")[2] for line in log.read_text().splitlines() if '"artifact"' in line]
    names = [json.loads(entry)["artifact"]["name"] for entry in entries if entry.startswith("{")]
    assert {"hidet_report", "hidet_tasks", "hidet_schedules"} <= set(names)
    assert "cpu.matmul" in log.read_text()
