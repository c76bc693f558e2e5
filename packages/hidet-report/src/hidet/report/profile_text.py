"""A profile as a table, and as text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hidet.report.profile import Profile, ProfileRow

WIDTH = 160
"""Columns of the text where no terminal says how many there are."""


def duration(seconds: float) -> str:
    """A time with its unit, in three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 999.5 * scale else f"{seconds / scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(nbytes: float) -> str:
    """Bytes with their unit, in three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"


def profile_table(profile: Profile, rows: Sequence[ProfileRow] | None = None) -> Table:
    """The table, with workspaces where a row has one. rows: those to show; None for all, in the order in which they
    run."""
    table = Table(caption=summary(profile), caption_justify="left")
    workspace = ("workspace",) if any(row.workspace for row in profile.rows) else ()
    numbers = ("us", "%", "GB/s", "GFLOP/s", "roof", "launches", *workspace)
    for column in ("operators", *numbers, "node", "where", "schedule"):
        is_text = column in ("operators", "node", "where", "schedule")
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    for row in profile.rows if rows is None else rows:
        table.add_row(
            row.title,
            f"{row.seconds * 1e6:.1f}",
            f"{100 * row.seconds / profile.seconds:.1f}",
            f"{row.bandwidth / 1e9:.1f}" if row.bandwidth else "-",
            f"{row.rate / 1e9:.1f}" if row.rate else "-",
            f"{row.roof:.0%}" if row.roof is not None else "-",
            str(row.runs * row.launches),
            *([size(row.workspace) if row.workspace else "-"] if workspace else []),
            row.node,
            row.line,
            row.rule or row.kind,
        )
    return table


def summary(profile: Profile) -> str:
    """What the rows add up to, in a line or two."""
    kernels = sum(row.seconds for row in profile.rows)
    threads = "" if profile.threads is None else f", {profile.threads} thread{'s' if profile.threads > 1 else ''}"
    lines = [
        f"{profile.model}: {duration(profile.seconds)} a call; {len(profile.rows)} rows take {duration(kernels)}, the "
        f"host beside them {duration(profile.host_seconds)}: {profile.coverage:.1%} of the call ({profile.calls} "
        f"calls, {profile.device}{threads})"
    ]
    if profile.memory is not None:
        use = profile.memory
        lines.append(
            f"memory: {size(use.arena)} for temporaries, {size(use.needed)} of them in use at once; "
            f"{size(use.constants)} of constants"
        )
    return "\n".join(lines)


def profile_text(profile: Profile) -> str:
    """The table as text."""
    written = io.StringIO()
    Console(file=written, width=WIDTH).print(profile_table(profile))
    return written.getvalue().rstrip("\n")
