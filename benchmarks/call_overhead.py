"""Measure what a call costs besides its kernels: microseconds of `CompiledGraph.__call__` and of torch.compile's path.

    python benchmarks/call_overhead.py

The only kernel adds 64 numbers, which takes nanoseconds: the rest is checking arguments, allocating the result and
getting into compiled code. Each figure is the fastest of many batches.
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

BATCH = 1000


class AddRelu(nn.Module):
    """One kernel on 64 elements."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """relu(x + y)."""
        return torch.relu(x + y)


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
        table = Table("", "microseconds a call")
        for name, call in rows:
            table.add_row(name, f"{min(_seconds(call) for _ in range(batches)) / BATCH * 1e6:.1f}")
    report_console().print(table)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(BATCH):
        call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
