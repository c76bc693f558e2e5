"""Measure what a call costs besides its kernels: microseconds of `CompiledGraph.__call__` and of torch.compile's path.

    python benchmarks/call_overhead.py

The only kernel adds 64 numbers, which takes nanoseconds: the rest is checking arguments, allocating the result and
getting into compiled code. On a GPU, calls of a script and of compiled graphs are measured too, until they return: the
kernel runs later. Each figure is the fastest of many batches.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table
from torch import nn

import hidet
from benchmarks.options import report_console
from hidet.lang import attrs, f32
from hidet.lang.cuda import threadIdx

BATCH = 1000


class AddRelu(nn.Module):
    """One kernel on 64 elements."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """relu(x + y)."""
        return torch.relu(x + y)


with hidet.script_module() as ADD_RELU:

    @hidet.script
    def add_relu(x: f32[64], y: f32[64], z: f32[64]):
        """As `AddRelu`, on memory of the caller's."""
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 64
        z[threadIdx.x] = max(x[threadIdx.x] + y[threadIdx.x], 0.0)


def gpu_rows() -> list[tuple[str, Callable[[], Any]]]:
    """What is measured on a GPU."""
    x, y = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    flat = [torch.randn(64, device="cuda") for _ in range(3)]
    script = hidet.driver.build_ir_module(ADD_RELU.ir_module())
    module = AddRelu().eval()
    compiled = hidet.compile(module, (x, y), target="cuda")
    dynamic = torch.compile(module, backend="hidet")
    dynamic(x, y)
    return [
        ("GPU: script on torch tensors", lambda: script(*flat)),
        ("GPU: CompiledGraph on torch tensors", lambda: compiled(x, y)),
        ("GPU: torch.compile, backend hidet", lambda: dynamic(x, y)),
        ("GPU: eager, two operators", lambda: module(x, y)),
    ]


@click.command()
@click.option("--batches", default=30, show_default=True, help="Batches of 1000 calls; the fastest one counts.")
def main(batches: int) -> None:
    """Measure what a call costs besides its kernels."""
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    arrays = x.numpy(), y.numpy()
    module = AddRelu().eval()
    compiled = hidet.compile(module, (x, y))
    dynamic = torch.compile(module, backend="hidet")
    with torch.no_grad():
        dynamic(x, y)
        rows: list[tuple[str, Callable[[], Any]]] = [
            ("CompiledGraph on torch tensors", lambda: compiled(x, y)),
            ("CompiledGraph on numpy arrays", lambda: compiled(*arrays)),
            ("torch.compile, backend hidet", lambda: dynamic(x, y)),
            ("eager: two operators", lambda: module(x, y)),
        ]
        if torch.cuda.is_available():
            rows += gpu_rows()
        table = Table("", "microseconds a call")
        for name, call in rows:
            table.add_row(name, f"{min(_seconds(call) for _ in range(batches)) / BATCH * 1e6:.1f}")
    report_console().print(table)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(BATCH):
        call()
    seconds = time.perf_counter() - start
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return seconds


if __name__ == "__main__":
    main()
