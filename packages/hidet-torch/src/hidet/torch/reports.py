"""Reports of compilations that happen inside `torch.compile`, where the caller has no compiled graph at hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompileReport

_collector: ContextVar[list[CompileReport] | None] = ContextVar("hidet_torch_reports", default=None)


@contextmanager
def collect_reports() -> Iterator[list[CompileReport]]:
    """Receive the report of every graph that hidet compiles for torch in this thread inside the `with` block.

    model = torch.compile(model, backend="hidet")
    with hidet.torch.collect_reports() as reports:
        model(x)
    print(reports[0].nodes)
    """
    reports: list[CompileReport] = []
    token = _collector.set(reports)
    try:
        yield reports
    finally:
        _collector.reset(token)


def deliver(report: CompileReport) -> None:
    """Hand a report to whoever collects in this context."""
    reports = _collector.get()
    if reports is not None:
        reports.append(report)
