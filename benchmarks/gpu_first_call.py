"""How long the first call of a model takes on a GPU: in a fresh process with empty caches, and in the next one.

A first call lasts from handing over the model, which is on the device already, to having the result. "ours" is what
hidet's compile reports count: graph, build, compile and load; the rest is torch's dynamo and AOT. The measured process
is this module run with `python -m`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.first_call import run_measured

CACHES = ("empty", "warm")
"""What a process finds: no cache, and what the process before it left."""


@dataclass(frozen=True, slots=True)
class GpuFirstCall:
    """A first call of `row`.

    cache: what the process found. total: seconds of all. ours: those of hidet's own part, by phase. programs: distinct
    ones of the graph. modules: what was compiled or loaded, host code and the prepare graph included; cached_modules:
    those of them that came out of the cache.
    """

    row: str
    cache: str
    total: float
    ours: Mapping[str, float]
    programs: int
    modules: int
    cached_modules: int


def measure_first_calls(row: str, limit: float) -> list[GpuFirstCall]:
    """The first call of a row in two processes, the second with the caches of the first.

    limit: seconds after which a process is given up. Raises RuntimeError with a process's last words when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="hidet-first-call-") as caches:
        results = [run_measured("benchmarks.gpu_first_call", [row], caches, limit) for _ in CACHES]
    return [GpuFirstCall(row, cache, **result) for cache, result in zip(CACHES, results, strict=True)]


def print_first_calls(console: Console, calls: Sequence[GpuFirstCall]) -> None:
    """A table with a line for each process."""
    table = Table()
    for heading in ("row", "cache", "first call s", "of it ours s", "phases", "programs", "modules", "of them cached"):
        table.add_column(heading, justify="left" if heading in ("row", "cache", "phases") else "right")
    for call in calls:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in call.ours.items())
        counts = map(str, (call.programs, call.modules, call.cached_modules))
        table.add_row(call.row, call.cache, f"{call.total:.1f}", f"{sum(call.ours.values()):.2f}", phases, *counts)
    console.print(table)


def _measure_here(name: str) -> dict[str, Any]:
    import torch

    from benchmarks.gpu_rows import RowName, prepare_row
    from tests.models.compile_reports import collected_reports, sum_phases

    model, inputs = prepare_row(RowName.parse(name))
    with torch.no_grad(), collected_reports() as reports:
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.compile(model, backend="hidet", dynamic=False)(**inputs)
        torch.cuda.synchronize()
        total = time.perf_counter() - start
    return {
        "total": total,
        "ours": dict(sum_phases(reports)),
        "programs": sum(report.kernels for report in reports),
        "modules": sum(report.modules for report in reports),
        "cached_modules": sum(report.cached_modules for report in reports),
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1])))
