"""What tests and benchmarks want to know of hidet's compile reports, read in this one place."""

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompileReport

_ANCHORS = re.compile(
    r"matmul|bmm|baddbmm|addmm|linear|dot|mv|conv.*|.*pool.*|(log_)?softmax"
    r"|(layer|rms|group|instance|batch)_norm.*|l2_normalize|.*attention.*"
)
"""Operators that are the body of a kernel, and whose place is a schedule."""


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Nodes by class, summed over the graphs of one model.

    scheduled: run by a schedule. fallback_nest: by the fallback loop nest. routine: by a thread-IR routine. host: by
    numpy. eager: by torch. names: operators outside the first class, as "class: operator" with how many there are.
    anchors_on_nest: names of matmul, convolution, attention, normalisation, softmax and pooling operators that are on
    the fallback nest, where they must not be.
    """

    scheduled: int = 0
    fallback_nest: int = 0
    routine: int = 0
    host: int = 0
    eager: int = 0
    names: Mapping[str, int] | None = None
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

    def __str__(self) -> str:
        classes = ("scheduled", "fallback_nest", "routine", "host", "eager")
        counts = ", ".join(f"{getattr(self, name)} {name}" for name in classes)
        names = ", ".join(f"{name} x{count}" for name, count in (self.names or {}).items())
        return f"nodes: {counts}{f' ({names})' if names else ''}"


@contextmanager
def collected_reports(is_wanted: bool = True) -> Iterator[list["CompileReport"]]:
    """Receive the reports of everything compiled through torch in the block; none where they are not wanted."""
    if not is_wanted:
        yield []
        return
    with importlib.import_module("hidet.torch").collect_reports() as reports:
        yield reports


def sum_counts(reports: Sequence["CompileReport"]) -> NodeCounts:
    """Return the counts of several compilations together."""
    counts = [report.nodes for report in reports]
    names = [pair for count in counts for pair in count.names]
    return NodeCounts(
        scheduled=sum(count.scheduled for count in counts),
        fallback_nest=sum(count.fallback for count in counts),
        routine=sum(count.routine for count in counts),
        host=sum(count.host for count in counts),
        eager=sum(count.eager for count in counts),
        names=dict(Counter(f"{node_class}: {name}" for node_class, name in names)),
        anchors_on_nest=tuple(
            sorted({name for kind, name in names if kind == "fallback" and _ANCHORS.fullmatch(name)})
        ),
    )


def sum_phases(reports: Sequence["CompileReport"]) -> Mapping[str, float]:
    """Return the seconds that hidet itself spent by phase: "graph", "build", "compile" and "load"."""
    phases: Counter[str] = Counter()
    for report in reports:
        phases.update(report.seconds)
    return dict(phases)
