"""What tests and benchmarks want to know of hidet's compile reports, read in this one place."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Nodes by class, summed over the graphs of one model.

    scheduled: run by a schedule. fallback_nest: by the fallback loop nest. routine: by a thread-IR routine. host: by
    numpy. eager: by torch. anchors_on_nest: names of matmul, convolution, attention, normalisation, softmax and pooling
    nodes that are on the fallback nest, where they must not be.
    """

    scheduled: int = 0
    fallback_nest: int = 0
    routine: int = 0
    host: int = 0
    eager: int = 0
    anchors_on_nest: tuple[str, ...] = ()

    @property
    def complaint(self) -> str | None:
        """What is against the project's rule for whole models, None when nothing is."""
        parts = []
        if self.eager:
            parts.append(f"{self.eager} eager nodes")
        if self.host:
            parts.append(f"{self.host} host nodes")
        if self.anchors_on_nest:
            parts.append(f"on the fallback nest: {', '.join(self.anchors_on_nest)}")
        if not self.scheduled:
            parts.append("no scheduled node at all")
        return "; ".join(parts) or None


def forget_reports() -> None:
    """Drop the reports that earlier compilations left."""
    importlib.import_module("hidet.torch").clear_reports()


def counts_since_forgotten() -> NodeCounts:
    """Return the counts of everything compiled since `forget_reports()`."""
    reports = _reports()
    counts: list[Mapping[str, int]] = [report.node_counts for report in reports]

    def total(node_class: str) -> int:
        return sum(count.get(node_class, 0) for count in counts)

    return NodeCounts(
        scheduled=total("scheduled"),
        fallback_nest=total("fallback_nest"),
        routine=total("routine"),
        host=total("host"),
        eager=total("eager"),
        anchors_on_nest=tuple(name for report in reports for name in report.anchors_on_nest),
    )


def phases_since_forgotten() -> Mapping[str, float]:
    """Return the seconds that hidet itself spent by phase: "graph", "build", "compile" and "load"."""
    reports = _reports()
    phases = dict.fromkeys((phase for report in reports for phase in report.seconds), 0.0)
    for report in reports:
        for phase, seconds in report.seconds.items():
            phases[phase] += seconds
    return phases


def _reports() -> list[Any]:
    return list(importlib.import_module("hidet.torch").reports())
