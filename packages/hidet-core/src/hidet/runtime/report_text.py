"""A compile report as text for people: a few aligned lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompileReport

_CLASSES = (
    ("fallback", "on the fallback nest"),
    ("routine", "routines"),
    ("control", "control"),
    ("host", "on the host"),
    ("eager", "eager"),
)
_MOST_NOTES = 10


def report_text(report: CompileReport) -> str:
    """Counts first, then what runs slower than it should, time by phase, memory, and what rules had to say."""
    nodes = report.nodes
    counts = ", ".join(f"{getattr(nodes, name)} {text}" for name, text in _CLASSES)
    rows = [
        ("nodes", f"{nodes.scheduled} scheduled, {counts}"),
        ("tasks", f"{report.tasks} of {report.programs} kinds, {report.kernels} kernels"),
        ("modules", f"{report.modules}, {report.cached_modules} of them from the cache"),
    ]
    rows += [("cache", "the whole graph came from the cache")] if report.is_kept else []
    rows += [("choices", f"{count} of {report.tasks} tasks: {why}") for why, count in report.chosen.items()]
    for name, _ in _CLASSES:
        rows += [(name, line) for line in _lines_of(report, name)] if getattr(nodes, name) else []
    if report.seconds:
        phases = ", ".join(f"{phase} {seconds * 1e3:.0f} ms" for phase, seconds in report.seconds.items())
        rows.append(("time", f"{sum(report.seconds.values()):.2f} s: {phases}"))
        rows.append(("costs", _costs(report)))
    rows.append(("weights", f"{_size(report.weight_bytes)} given, {_size(report.prepared_bytes)} prepared"))
    rows += [("note", note) for note in report.notes[:_MOST_NOTES]]
    if len(report.notes) > _MOST_NOTES:
        rows.append(("note", f"and {len(report.notes) - _MOST_NOTES} more"))
    return "\n".join(f"{label:<9}{text}" for label, text in rows)


def _costs(report: CompileReport) -> str:
    """What the compiler's own work comes to: everything before code generation but the programs, for a graph node, and
    building a program."""
    built = {kind: seconds for kind, seconds in report.build_seconds.items() if seconds}
    rest = report.seconds.get("graph", 0.0) + report.seconds.get("build", 0.0) - sum(map(sum, built.values()))
    costs = [f"{rest * 1e3 / report.graph_nodes:.2f} ms a node"] if report.graph_nodes else []
    costs += [f"{sum(seconds) * 1e3 / len(seconds):.1f} ms an {kind} program" for kind, seconds in built.items()]
    return ", ".join(costs).replace("an template", "a template") or "nothing was built"


def _lines_of(report: CompileReport, wanted: str) -> list[str]:
    """Operators of one class with the places where they stand, equal ones counted."""
    nodes = report.nodes
    places = nodes.places or ("",) * len(nodes.names)
    found = Counter(
        f"{name} at {place}" if place else name
        for (kind, name), place in zip(nodes.names, places, strict=True)
        if kind == wanted
    )
    return [text if count == 1 else f"{text} ({count} times)" for text, count in found.items()]


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"
