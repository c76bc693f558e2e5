"""Measure single operators on the CPU: hidet beside eager, for tuning schedules.

    python benchmarks/cpu_ops.py                             all rows, 1 thread
    python benchmarks/cpu_ops.py --groups linear,conv --threads 1,2
    python benchmarks/cpu_ops.py --match "attention 12x128"

hidet is called through `hidet.compile`, so no cost of dynamo is in its figure. Inputs stay in cache from call to call,
as an activation does between two layers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.environment import describe_environment
from benchmarks.fma_peak import peak_flops
from benchmarks.operators import GROUPS, OPERATORS, OperatorCase
from benchmarks.options import names_from, report_console, thread_counts
from benchmarks.results import geometric_mean
from hidet.cli.timing import Latency, measure_alternately

SYSTEMS = ("eager", "inductor", "hidet")
_LARGE_DIFFERENCE = 1e-4


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """What one operator takes: latencies by system, the largest difference from eager relative to its largest value,
    and why a system is missing."""

    name: str
    threads: int
    flops: int
    moved: int
    latencies: Mapping[str, Latency]
    differences: Mapping[str, float]
    reasons: Mapping[str, str]
    peak: float


@click.command()
@click.option("--groups", callback=names_from(GROUPS), default=",".join(GROUPS), show_default=True)
@click.option("--match", default="", help="Only rows whose name contains this.")
@click.option("--systems", callback=names_from(SYSTEMS), default="eager,hidet", show_default=True)
@click.option("--threads", callback=thread_counts, default="1", show_default=True)
@click.option("--seconds", default=0.1, show_default=True, help="Seconds a system's turn takes; there are five turns.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    groups: tuple[str, ...],
    match: str,
    systems: tuple[str, ...],
    threads: tuple[int, ...],
    seconds: float,
    json_path: Path | None,
) -> None:
    """Measure single operators on the CPU: hidet beside eager, for tuning schedules."""
    console, progress = report_console(), Console(stderr=True)
    cases = [case for case in OPERATORS.values() if case.group in groups and match in case.name]
    if not cases:
        raise click.UsageError(f"no operator of {', '.join(groups)} has {match!r} in its name")
    environment = describe_environment()
    rows: list[OperatorRow] = []
    for count in threads:
        torch.set_num_threads(count)
        before = peak_flops(count)
        group: list[OperatorRow] = []
        with progress.status("") as status:
            for case in cases:
                status.update(f"{count} threads: {case.name}")
                group.append(_measure(case, systems, count, seconds, before))
        after = peak_flops(count)
        _print(console, group, systems, before, after)
        rows += group
    if json_path is not None:
        result = {**environment, "rows": [asdict(row) for row in rows]}
        json_path.write_text(json.dumps(result, indent=1), encoding="utf-8")
        console.print(f"written: {json_path}")


def _measure(case: OperatorCase, systems: Sequence[str], threads: int, seconds: float, peak: float) -> OperatorRow:
    torch.manual_seed(0)
    module, inputs = case.build()
    module.eval()
    runs: dict[str, Callable[[], object]] = {}
    differences: dict[str, float] = {}
    reasons: dict[str, str] = {}
    with torch.no_grad():
        expected = module(*inputs)
        for system in systems:
            try:
                run = _prepare(system, module, inputs)
                differences[system] = float((run() - expected).abs().max() / expected.abs().max())
                runs[system] = run
            except Exception as error:  # noqa: BLE001 - an operator that fails is a row of the table, not the end
                reasons[system] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:160]}"
        latencies = measure_alternately(runs, seconds, rounds=5, pause=0.01)
    return OperatorRow(case.name, threads, case.flops, case.moved, latencies, differences, reasons, peak)


def _prepare(system: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    if system == "eager":
        return lambda: module(*inputs)
    if system == "inductor":
        torch._dynamo.reset()
        inductor = torch.compile(module, dynamic=False)
        return lambda: inductor(*inputs)
    import hidet

    compiled = hidet.compile(module, inputs)
    return lambda: compiled(*inputs)


def _print(console: Console, rows: Sequence[OperatorRow], systems: Sequence[str], before: float, after: float) -> None:
    threads, peak = rows[0].threads, max(before, after)
    console.print(
        f"{threads} thread{'s' if threads > 1 else ''}, float32: median us, and % of the measured FMA peak"
        f" ({peak / 1e9:.0f} GFLOP/s) or GB/s",
        style="bold",
    )
    table = Table()
    table.add_column("operator")
    for system in systems:
        table.add_column(system, justify="right")
    with_ratio = "eager" in systems and "hidet" in systems
    if with_ratio:
        table.add_column("hidet / eager", justify="right")
    ratios = []
    for row in rows:
        cells = [_cell(row, system, peak) for system in systems]
        ratio = "-"
        if "eager" in row.latencies and "hidet" in row.latencies:
            ratios.append(row.latencies["hidet"].median / row.latencies["eager"].median)
            ratio = f"{ratios[-1]:.2f}"
        table.add_row(row.name, *cells, *((ratio,) if with_ratio else ()))
    if ratios:
        table.add_section()
        table.add_row("geometric mean", *("" for _ in systems), f"{geometric_mean(ratios):.2f}")
    console.print(table)
    if min(before, after) < 0.9 * peak:
        console.print(
            f"the machine was busy with something else: {before / 1e9:.0f} GFLOP/s before, {after / 1e9:.0f} after",
            style="yellow",
        )
    _print_reasons(console, rows)
    for row in rows:
        for system, difference in row.differences.items():
            if not difference <= _LARGE_DIFFERENCE:
                console.print(f"{row.name}: {system} is {difference:.1e} away from eager", style="bold red")


def _print_reasons(console: Console, rows: Sequence[OperatorRow]) -> None:
    """Name what fails: row by row, but once for a system that runs nothing at all."""
    for system in {system: None for row in rows for system in row.reasons}:
        failed = [row for row in rows if system in row.reasons]
        if len(failed) == len(rows):
            console.print(
                f"- {system} runs none of them; the first: {failed[0].reasons[system]}", style="dim", markup=False
            )
            continue
        for row in failed:
            console.print(f"- {row.name}: {system}: {row.reasons[system]}", style="dim", markup=False)


def _cell(row: OperatorRow, system: str, peak: float) -> str:
    if system not in row.latencies:
        return "-"
    seconds = row.latencies[system].median
    rate = f"{row.flops / seconds / peak * 100:3.0f}%" if row.flops else f"{row.moved / seconds / 1e9:.0f} GB/s"
    return f"{seconds * 1e6:.1f} ({rate})"


if __name__ == "__main__":
    main()
