"""A check of accuracy as a table, and as text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hidet.report.accuracy import Accuracy, Errors

WIDTH = 160


def accuracy_table(accuracy: Accuracy) -> Table:
    """Errors of each result: RMS, relative to float64."""
    caption = accuracy.verdict + (f"\n{accuracy.repro} runs that kernel alone" if accuracy.repro else "")
    table = Table(caption=caption, caption_justify="left")
    errors = ("own error", "numpy's", "allowed", "since inputs", "numpy's")
    for column in ("operators", "type", *errors, "node", "where", ""):
        is_text = column not in errors
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    for row in accuracy.rows:
        found = (row.own, row.own_plain, row.limit, row.total, row.total_plain)
        mark = "<- wrong" if row.problem else ""
        table.add_row(row.title, row.dtype, *map(_shown, found), row.node, row.line, mark)
    return table


def _shown(errors: Errors | None) -> str:
    return "-" if errors is None else f"{errors.rms:.1e}"


def accuracy_text(accuracy: Accuracy) -> str:
    """The table as text."""
    written = io.StringIO()
    Console(file=written, width=WIDTH).print(accuracy_table(accuracy))
    return written.getvalue().rstrip("\n")
