"""Measure single operators on a GPU: hidet beside eager and Inductor, each in a CUDA graph, for tuning schedules.

    python benchmarks/gpu_ops.py                                     all rows
    python benchmarks/gpu_ops.py --groups rows --systems eager,inductor,hidet
    python benchmarks/gpu_ops.py --match "softmax 4096"

A graph holds calls on as many inputs as do not fit the second-level cache, so every call reads its input from memory.
The rows of a group are compiled by hidet before the first of them is measured, each by a thread of its own, and printed
when the last one is. Of large results a part is compared with f64: every n-th element.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.environment import describe_environment
from benchmarks.gpu_operators import GPU_OPERATORS, GROUPS, GpuOperator
from benchmarks.gpu_timing import time_on_gpu
from benchmarks.options import names_from, report_console
from hidet.cli.timing import Latency, measure_alternately
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import HidetError
from hidet.graph import Graph
from hidet.runtime.compiled import CompiledGraph
from hidet.testing.numerics import Sample, check_output
from hidet.torch.export import import_module
from tests.models.check import to_numpy

SYSTEMS = ("eager", "inductor", "hidet")
_CACHE_BYTES = 128 << 20
"""More than second-level caches hold."""
_MOST_INPUTS = 48
_MOST_COMPARED = 1 << 18


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """What one operator takes: latencies by system, and why a system is missing or wrong. moved: bytes in and out."""

    name: str
    moved: int
    latencies: Mapping[str, Latency]
    reasons: Mapping[str, str]


@click.command()
@click.option("--groups", callback=names_from(GROUPS), default=",".join(GROUPS), show_default=True)
@click.option("--match", default="", help="Only rows whose name contains this.")
@click.option("--systems", callback=names_from(SYSTEMS), default="eager,hidet", show_default=True)
@click.option(
    "--seconds", default=0.005, show_default=True, help="Seconds a system's turn takes; there are three turns."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(groups: tuple[str, ...], match: str, systems: tuple[str, ...], seconds: float, json_path: Path | None) -> None:
    """Measure single operators on a GPU: hidet beside eager and Inductor, each in a CUDA graph."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    cases = [case for case in GPU_OPERATORS.values() if case.group in groups and match in case.name]
    if not cases:
        raise click.UsageError(f"no operator of {', '.join(groups)} has {match!r} in its name")
    console, progress = report_console(), Console(stderr=True)
    environment = describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    done: list[OperatorRow] = []
    for group in groups:
        rows: list[OperatorRow] = []
        own = [case for case in cases if case.group == group]
        with progress.status(f"{group}: compiling") as status, torch.no_grad():
            modules = {case.name: _module(case) for case in own}
            compiled = _compiled_at_once(own, modules) if "hidet" in systems else {}
            for case in own:
                status.update(case.name)
                rows.append(_measure(case, modules[case.name], compiled, systems, seconds))
        if rows:
            _print(console, rows, systems)
        done += rows
    if json_path is not None:
        result = {**environment, "rows": [asdict(row) for row in done]}
        json_path.write_text(json.dumps(result, indent=1), encoding="utf-8")
        console.print(f"written: {json_path}")


def _module(case: GpuOperator) -> nn.Module:
    torch.manual_seed(0)
    return case.build().eval().cuda().to(case.dtype)


def _compiled_at_once(
    cases: Sequence[GpuOperator], modules: Mapping[str, nn.Module]
) -> Mapping[str, CompiledGraph | Exception]:
    """What hidet makes of each module, or why it fails. torch traces one module after the other."""
    ctx = make_context(f"cuda:{torch.cuda.current_device()}")

    def compiled(graph: Graph) -> CompiledGraph | Exception:
        try:
            return compile_graph(graph, ctx)
        except HidetError as error:
            return error

    graphs = [import_module(modules[case.name], (case.input(0),), ctx).graph for case in cases]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip([case.name for case in cases], pool.map(compiled, graphs), strict=True))


def _measure(
    case: GpuOperator,
    module: nn.Module,
    compiled: Mapping[str, CompiledGraph | Exception],
    systems: Sequence[str],
    seconds: float,
) -> OperatorRow:
    first = case.input(0)
    eager = module(first)
    exact = case.build().cuda().double()
    exact.load_state_dict(module.state_dict())
    reference = exact(first.double())
    moved = sum(tensor.nbytes for tensor in (first, eager, *module.parameters()))
    inputs = [first, *map(case.input, range(1, max(2, min(_MOST_INPUTS, _CACHE_BYTES // moved + 1))))]
    runs: dict[str, Callable[[], object]] = {}
    reasons: dict[str, str] = {}
    for system in systems:
        try:
            call = _prepare(system, module, compiled.get(case.name))
            sample = Sample(*map(_compared, (call(first), eager, reference)))
            verdict = check_output(case.name, [sample])
            if not verdict.correct:
                reasons[system] = f"WRONG: {verdict}"
            runs[system] = _captured(call, inputs)
        except Exception as error:  # noqa: BLE001 - an operator that fails is a row of the table, not the end
            reasons[system] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:160]}"
    latencies = measure_alternately(runs, seconds, rounds=3, pause=0.0, time_turn=time_on_gpu)
    per_call = {
        system: Latency(latency.median / len(inputs), latency.fastest / len(inputs), latency.calls)
        for system, latency in latencies.items()
    }
    return OperatorRow(case.name, moved, per_call, reasons)


def _compared(result: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """Every n-th element in logical order, so that no more than `_MOST_COMPARED` travel to the host."""
    return to_numpy(result.reshape(-1)[:: -(-result.numel() // _MOST_COMPARED)])


def _prepare(system: str, module: nn.Module, compiled: CompiledGraph | Exception | None) -> Callable[[Tensor], Tensor]:
    if system == "eager":
        return module
    if system == "hidet":
        if compiled is None or isinstance(compiled, Exception):
            raise compiled or KeyError("nothing was compiled")
        return compiled
    torch._dynamo.reset()
    inductor: Callable[[Tensor], Tensor] = torch.compile(module, backend="inductor", dynamic=False, fullgraph=True)
    return inductor


def _captured(call: Callable[[Tensor], Tensor], inputs: Sequence[Tensor]) -> Callable[[], object]:
    """A CUDA graph of a call on each input."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for x in inputs[:2]:
            call(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in inputs:
            call(x)
    return graph.replay


def _print(console: Console, rows: Sequence[OperatorRow], systems: Sequence[str]) -> None:
    table = Table()
    table.add_column("operator")
    for system in systems:
        table.add_column(f"{system}, us (GB/s)", justify="right")
    with_ratio = "hidet" in systems and len(systems) > 1
    if with_ratio:
        table.add_column("hidet / best peer", justify="right")
    for row in rows:
        peers = [latency.median for system, latency in row.latencies.items() if system != "hidet"]
        ratio = f"{row.latencies['hidet'].median / min(peers):.2f}" if "hidet" in row.latencies and peers else "-"
        table.add_row(row.name, *(_cell(row, system) for system in systems), *((ratio,) if with_ratio else ()))
    console.print(table)
    for row in rows:
        for system, reason in row.reasons.items():
            console.print(f"- {row.name}: {system}: {reason}", style="bold red", markup=False)


def _cell(row: OperatorRow, system: str) -> str:
    if system not in row.latencies:
        return "-"
    seconds = row.latencies[system].median
    return f"{seconds * 1e6:.2f} ({row.moved / seconds / 1e9:.0f})"


if __name__ == "__main__":
    main()
