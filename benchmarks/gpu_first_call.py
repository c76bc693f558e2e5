"""How long the first call of a model takes on a GPU, in fresh processes that find what `first_call.CACHES` says.

A first call lasts from handing over the model, which is on the device already, to having the result. "ours" is what
hidet's compile reports count: graph, build, compile and load; the rest is torch's dynamo and AOT. Beside hidet's stand
those of Inductor, and of torch's backend "eager", which compiles nothing: no backend takes less. The measured process
is this module run with `python -m`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.first_call import keep_precompiled, measure_in_caches

BACKENDS = ("hidet", "inductor", "eager")
"""torch.compile's, in the order in which they are measured."""


@dataclass(frozen=True, slots=True)
class GpuFirstCall:
    """A first call of `row` by a backend.

    cache: one of `first_call.CACHES`. total: seconds of all. ours: those of hidet's own part, by phase. programs:
    distinct ones of the graph. modules: what was compiled or loaded, host code and the prepare graph included;
    cached_modules: those of them that came out of the cache. All but `total` are of hidet alone.
    """

    row: str
    backend: str
    cache: str
    total: float
    ours: Mapping[str, float]
    programs: int
    modules: int
    cached_modules: int


def measure_first_calls(row: str, limit: float, backend: str = BACKENDS[0]) -> list[GpuFirstCall]:
    """The first call of a row in a process for each of `first_call.CACHES`.

    limit: seconds after which a process is given up. Raises RuntimeError with a process's last words when it fails.
    """
    results = measure_in_caches("benchmarks.gpu_first_call", [row, backend], limit)
    return [GpuFirstCall(row, backend, cache, **result) for cache, result in results.items()]


def print_first_calls(console: Console, calls: Sequence[GpuFirstCall]) -> None:
    """A table with a line for each process."""
    table = Table()
    named = ("row", "backend", "cache", "phases")
    for heading in (*named[:3], "first call s", "of it ours s", named[3], "programs", "modules", "of them cached"):
        table.add_column(heading, justify="left" if heading in named else "right")
    for call in calls:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in call.ours.items())
        own = [f"{sum(call.ours.values()):.2f}", phases, *map(str, (call.programs, call.modules, call.cached_modules))]
        shown = own if call.backend == BACKENDS[0] else []
        table.add_row(call.row, call.backend, call.cache, f"{call.total:.2f}", *shown)
    console.print(table)


def _measure_here(name: str, backend: str) -> dict[str, Any]:
    import torch

    from benchmarks.gpu_rows import RowName, prepare_row
    from tests.models.compile_reports import collected_reports, sum_phases

    model, inputs = prepare_row(RowName.parse(name))
    with torch.no_grad(), collected_reports() as reports:
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.compile(model, backend=backend, dynamic=False)(**inputs)
        torch.cuda.synchronize()
        total = time.perf_counter() - start
    keep_precompiled()
    return {
        "total": total,
        "ours": dict(sum_phases(reports)),
        "programs": sum(report.kernels for report in reports),
        "modules": sum(report.modules for report in reports),
        "cached_modules": sum(report.cached_modules for report in reports),
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here(*sys.argv[1:])))
