"""The model benchmark's results as a reader sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from hidet.cli.timing import Latency

from .first_call import CACHES, FirstCall
from .results import (
    FROZEN_SYSTEM,
    OUR_SYSTEM,
    OWN_SYSTEMS,
    REFERENCE_SYSTEM,
    FirstCallRow,
    Row,
    geometric_means,
    live_to_frozen,
)

_LARGE_DIFFERENCE = 1e-3
"""Above this a system computes something else than eager does, and its latency says nothing."""


def print_latencies(console: Console, rows: Sequence[Row], systems: Sequence[str]) -> None:
    """Print one table for a number of threads: median milliseconds and, in brackets, percent of the FMA peak."""
    threads, peak = rows[0].threads, max(row.peak for row in rows)
    console.print(
        f"{_threads(threads)}, float32, batch 1: median ms (% of the measured FMA peak, {peak / 1e9:.0f} GFLOP/s)",
        style="bold",
    )
    table = Table()
    table.add_column("model")
    table.add_column("GFLOP", justify="right")
    for system in systems:
        table.add_column(system, justify="right")
    table.add_column(f"{OUR_SYSTEM} / best peer", justify="right")
    for row in rows:
        cells = [_latency_cell(row, system) for system in systems]
        name = f"{row.model} ({row.what}){' *' if row.disturbed else ''}"
        table.add_row(name, f"{row.flops / 1e9:.2f}", *cells, "-" if row.ratio is None else f"{row.ratio:.2f}")
    means = geometric_means(rows, systems)
    cells = [f"{means[system] * 1e3:.2f}" if system in means else "-" for system in systems]
    peers = [mean for system, mean in means.items() if system not in OWN_SYSTEMS]
    ratio = f"{means[OUR_SYSTEM] / min(peers):.2f}" if OUR_SYSTEM in means and peers else "-"
    table.add_section()
    table.add_row("geometric mean", "", *cells, ratio)
    console.print(table)
    print_live_to_frozen(console, [row.latencies for row in rows])
    if any(row.disturbed for row in rows):
        console.print("* the machine was busy with something else around this row", style="yellow")
    _print_reasons(console, {row.model: row.reasons for row in rows})
    for row in rows:
        for system, difference in row.differences.items():
            if not difference <= _LARGE_DIFFERENCE:
                message = f"{row.model}: {system} is {difference:.1e} away from {REFERENCE_SYSTEM}, it is WRONG"
                console.print(message, style="bold red")
    console.print(f"largest difference from {REFERENCE_SYSTEM}: {_largest_differences(rows, systems)}")
    console.print()


def print_live_to_frozen(console: Console, rows: Sequence[Mapping[str, Latency]]) -> None:
    """Print what weights that may change cost, where rows have both; else nothing. rows: latencies by system."""
    ratio = live_to_frozen(rows)
    if ratio is not None:
        console.print(f"{OUR_SYSTEM} / {FROZEN_SYSTEM}: {ratio:.3f} in geometric mean")


def print_first_calls(console: Console, rows: Sequence[FirstCallRow], systems: Sequence[str]) -> None:
    """Print the seconds of first calls, ours split into the phases that hidet counts as its own."""
    console.print(f"first call in a fresh process, {_threads(rows[0].threads)}: seconds", style="bold")
    table = Table()
    table.add_column("model")
    table.add_column("caches")
    for system in systems:
        table.add_column(system, justify="right")
    table.add_column(f"of {OUR_SYSTEM}: own part")
    for row in rows:
        calls = {(system, call.cache): call for system in systems for call in row.calls.get(system, ())}
        for cache in CACHES:
            found = [calls.get((system, cache)) for system in systems]
            cells = ["-" if call is None else f"{call.total:.2f}" for call in found]
            table.add_row(row.model, cache, *cells, _own_part(calls.get((OUR_SYSTEM, cache))))
    console.print(table)
    _print_reasons(console, {row.model: row.reasons for row in rows})
    console.print()


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _latency_cell(row: Row, system: str) -> str:
    if system not in row.latencies:
        return "-"
    return f"{row.latencies[system].median * 1e3:.2f} ({row.part_of_peak(system) * 100:.0f}%)"


def _own_part(call: FirstCall | None) -> str:
    if call is None or call.ours is None:
        return "-"
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in call.ours.items())
    return f"{sum(call.ours.values()):.2f} ({phases})"


def _largest_differences(rows: Sequence[Row], systems: Sequence[str]) -> str:
    parts = []
    for system in systems:
        values = [row.differences[system] for row in rows if system in row.differences]
        if system != REFERENCE_SYSTEM and values:
            parts.append(f"{system} {max(values):.1e}")
    return ", ".join(parts) or "nothing to compare"


def _print_reasons(console: Console, reasons: Mapping[str, Mapping[str, str]]) -> None:
    """Say once for each system and reason why a cell is empty, and for which models."""
    models: dict[tuple[str, str], list[str]] = {}
    for model, by_system in reasons.items():
        for system, reason in by_system.items():
            models.setdefault((system, reason), []).append(model)
    for (system, reason), names in models.items():
        where = "" if len(names) == len(reasons) else f" ({', '.join(names)})"
        console.print(f"- {system}{where}: {reason}", style="dim", markup=False)
