"""What a run of the GPU benchmark found, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import (
    AUTOTUNED_SYSTEM,
    OUR_SYSTEM,
    OWN_SYSTEMS,
    STORED_SYSTEM,
    TUNED_SYSTEM,
    geometric_mean,
    ratio_to_best_peer,
)
from benchmarks.tables import print_live_to_frozen
from hidet.cli.timing import Latency
from hidet.testing.numerics import Verdict
from hidet.tuning.store import Store
from tests.models.compile_reports import NodeCounts


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One row.

    latencies, first_calls: by system; a first call includes the compilation, in seconds. verdicts: whether a system is
    right, against f64 with eager as the yardstick. reasons: why a system has no latency. kernels: distinct kernels of
    ours, counts: nodes by class, seconds: our own part of the first call by phase.
    """

    name: str
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    first_calls: Mapping[str, float] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    kernels: int = 0
    counts: NodeCounts = field(default_factory=NodeCounts)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Our latency over the best peer's; below 1 is faster. None while either is missing."""
        return ratio_to_best_peer(self.latencies)


def unmeasured(name: str, systems: Sequence[str]) -> GpuRow:
    """What stands for a row until it is measured: a run that is cut short names it."""
    return GpuRow(name, reasons=dict.fromkeys(systems, "the run ended before this was measured"))


def rows_to_json(environment: Mapping[str, Any], rows: Sequence[GpuRow]) -> dict[str, Any]:
    """Everything as plain data; times in seconds."""
    return {**environment, "rows": [{**asdict(row), "ratio_to_best_peer": row.ratio} for row in rows]}


def rows_from_json(data: Mapping[str, Any]) -> list[GpuRow]:
    """The rows that `rows_to_json` gave."""
    return [
        GpuRow(
            name=row["name"],
            latencies={system: Latency(**latency) for system, latency in row["latencies"].items()},
            first_calls=row["first_calls"],
            verdicts={system: Verdict(**verdict) for system, verdict in row["verdicts"].items()},
            reasons=row["reasons"],
            kernels=row["kernels"],
            counts=NodeCounts(**{**row["counts"], "anchors_on_nest": tuple(row["counts"]["anchors_on_nest"])}),
            seconds=row["seconds"],
        )
        for row in data["rows"]
    ]


def merge_runs(runs: Mapping[str, Mapping[str, Any]]) -> list[GpuRow]:
    """The rows of several runs, whose data are given by file name. A row is always of one run, because clocks move: the
    last one that measured it. ValueError where runs were made on different devices."""
    devices = {name: data["device"]["gpu"] for name, data in runs.items()}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name}: {device}" for name, device in devices.items())
        raise ValueError(f"runs on different devices cannot stand in one table ({found}); print a table for each")
    rows: dict[str, GpuRow] = {}
    for data in runs.values():
        for row in rows_from_json(data):
            if row.latencies or not (row.name in rows and rows[row.name].latencies):
                rows[row.name] = row
    return list(rows.values())


def print_rows(console: Console, rows: Sequence[GpuRow], systems: Sequence[str]) -> None:
    """One table: median milliseconds, our first call and nodes; then why cells are empty, and what is wrong."""
    # All columns fit 120 characters, names of rows in full.
    table = Table(padding=0)
    table.add_column("row", no_wrap=True)
    for system in systems:
        table.add_column(system.replace("-", "\n"), justify="right")
    for heading in ("/ best\npeer", "first\ncall s", "of it\nours s", "kernels", "nest", "eager", "right"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*cells(row, systems))
    console.print(table)
    print_live_to_frozen(console, [row.latencies for row in rows])
    for row in rows:
        for system, reason in row.reasons.items():
            console.print(f"- {row.name}, {system}: {reason}", style="dim", markup=False)
        for system, verdict in row.verdicts.items():
            if not verdict.correct:
                console.print(f"{row.name}, {system}: {verdict}", style="bold red", markup=False)
        if row.counts.fallback_nest or row.counts.eager or row.counts.host:
            console.print(f"{row.name}: {row.counts}", style="yellow", markup=False)


def print_losses(console: Console, rows: Sequence[GpuRow]) -> None:
    """The rows whose best peer is faster, the largest loss first, and the geometric mean of all ratios."""
    measured = sorted(((row.ratio, row) for row in rows if row.ratio is not None), key=lambda pair: -pair[0])
    if not measured:
        return
    mean, slower = geometric_mean([ratio for ratio, _ in measured]), sum(ratio > 1 for ratio, _ in measured)
    console.print(f"{len(measured)} rows, {mean:.3f} of the best peer in geometric mean, {slower} slower than it")
    for ratio, row in measured[:slower]:
        peers = {name: found.median for name, found in row.latencies.items() if name not in OWN_SYSTEMS}
        best = min(peers, key=peers.__getitem__)
        ours = row.latencies[OUR_SYSTEM].median
        console.print(f"{ratio:.3f} {row.name}: {ours * 1e3:.3f} ms, {best} {peers[best] * 1e3:.3f}", markup=False)


def print_choices(console: Console, row: GpuRow, store: Path) -> None:
    """What tuning has taken and given for a row, beside Inductor's, and what its store holds of all rows so far."""
    entries = list(Store(store).entries())
    for system in (AUTOTUNED_SYSTEM, OUR_SYSTEM, TUNED_SYSTEM, STORED_SYSTEM):
        if system in row.first_calls and system in row.latencies:
            gain = row.latencies[OUR_SYSTEM].median / row.latencies[system].median if OUR_SYSTEM in row.latencies else 0
            console.print(f"{row.name}: {system} ready after {row.first_calls[system]:.1f} s, {gain:.3f} times as fast")
    changed = [entry for entry in entries if entry.params != entry.default_params]
    console.print(f"store: {len(entries)} choices, {len(changed)} of them not the default's")
    for entry in changed:
        times = f"{entry.default_seconds * 1e6:.1f} to {entry.seconds * 1e6:.1f} us"
        console.print(f"  {entry.summary}: {times}, {entry.default_params} to {entry.params}", highlight=False)


def cells(row: GpuRow, systems: Sequence[str]) -> list[str]:
    """The cells of a row of the table."""
    latencies = [f"{row.latencies[system].median * 1e3:.3f}" if system in row.latencies else "-" for system in systems]
    ours = row.verdicts.get(OUR_SYSTEM)
    return [
        row.name,
        *latencies,
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.first_calls[OUR_SYSTEM]:.1f}" if OUR_SYSTEM in row.first_calls else "-",
        f"{sum(row.seconds.values()):.1f}" if row.seconds else "-",
        str(row.kernels),
        str(row.counts.fallback_nest),
        str(row.counts.eager),
        "-" if ours is None else "yes" if ours.correct else "NO",
    ]
