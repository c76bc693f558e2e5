"""Charts of pages: as SVG when kernels ran and what memory they had, and numbers for those that uPlot draws: how near
kernels are to the roofline, and what tuning measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from html import escape
from typing import Any

from hidet.report.memory import MemoryUse
from hidet.report.profile import Profile
from hidet.report.profile_text import duration, size
from hidet.report.tuned import TunedTask

_WIDTH, _LEFT, _RIGHT = 1060, 70, 12
_MOST_TRIALS = 2000
"""Measurements of a task that its chart shows."""


def _svg(height: int, parts: Sequence[str], label: str, name: str) -> str:
    return (
        f'<svg class="chart {name}" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def timeline_chart(profile: Profile) -> str:
    """One call: a bar for each kernel, on a line for each kind of operator."""
    end = max((finish for _, _, finish in profile.timeline), default=0.0) or 1.0
    kinds: dict[str, int] = {}
    for number, _, _ in profile.timeline:
        kinds.setdefault(profile.rows[number].operator.partition("(")[0], len(kinds))
    line = 22
    height = line * len(kinds) + 34
    x = _scale(0.0, end, 170, _WIDTH - _RIGHT)
    parts = [
        f'<text class="tick" x="164" y="{line * place + 15}" text-anchor="end">{escape(_shortened(kind))}</text>'
        f'<line class="grid" x1="170" x2="{_WIDTH - _RIGHT}" y1="{line * (place + 1)}" y2="{line * (place + 1)}"/>'
        for kind, place in kinds.items()
    ]
    for number, begin, finish in profile.timeline:
        row = profile.rows[number]
        y = line * kinds[row.operator.partition("(")[0]]
        width = max(x(finish) - x(begin), 0.8)
        title = f"{row.title} {row.node} {row.line}: {duration(finish - begin)}"
        parts.append(
            f'<rect class="{row.kind}" data-row="{number}" x="{x(begin):.1f}" y="{y + 3}" width="{width:.1f}" '
            f'height="{line - 6}"><title>{escape(title)}</title></rect>'
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_tick(x(end * share), height - 18, duration(end * share) if share else "0"))
    return _svg(height, parts, f"Kernels over the {duration(end)} of a call", "timeline")


def _tick(x: float, y: float, text: str) -> str:
    anchor = "end" if x > _WIDTH - 40 else "middle"
    return f'<text class="tick" x="{x:.0f}" y="{y:.0f}" dy="10" text-anchor="{anchor}">{escape(text)}</text>'


def memory_chart(use: MemoryUse) -> str:
    """The arena: where each temporary tensor lies (upwards) from the first task that needs it to the last."""
    height = 260
    x = _scale(0, max(use.steps, 1), _LEFT, _WIDTH - _RIGHT)
    y = _scale(0, max(use.arena, 1), height - 24, 8)
    parts = []
    for number, block in enumerate(use.blocks):
        if not block.nbytes:
            continue
        title = f"{size(block.nbytes)} at {block.offset}, tasks {block.first} to {block.last}"
        top, bottom = y(block.offset + block.nbytes), y(block.offset)
        parts.append(
            f'<rect class="block shade{number % 3}" x="{x(block.first):.1f}" y="{top:.1f}" '
            f'width="{max(x(block.last + 1) - x(block.first), 1):.1f}" height="{max(bottom - top, 1):.1f}">'
            f"<title>{escape(title)}</title></rect>"
        )
    used = use.over_time
    line = "".join(
        f"{'M' if step == 0 else 'L'}{x(step):.1f} {y(nbytes):.1f}L{x(step + 1):.1f} {y(nbytes):.1f}"
        for step, nbytes in enumerate(used)
    )
    parts.append(f'<path class="in-use" d="{line}"><title>bytes in use</title></path>')
    for share in (0, 0.5, 1):
        parts.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y(use.arena * share) + 4:.0f}" text-anchor="end">'
            f"{size(round(use.arena * share))}</text>"
        )
    parts += [_tick(x(use.steps * share), height - 20, f"task {round(use.steps * share)}") for share in (0, 0.5, 1)]
    return _svg(height, parts, f"Temporary memory of {size(use.arena)} over {use.steps} tasks", "memory")


def roofline_data(profile: Profile) -> dict[str, Any]:
    """A roofline for the page's script: arithmetic a byte against arithmetic a second, below what the device can do.
    Empty where neither is known of any kernel."""
    rows = [(number, row) for number, row in enumerate(profile.rows) if row.rate and row.bandwidth]
    if not rows or profile.roofline is None:
        return {}
    dtypes = {row.dtype for _, row in rows}
    units = {name: rate for name, rate in profile.roofline.flops.items() if name.partition(" ")[0] in dtypes}
    places = [
        {
            "number": number,
            "name": " ".join(filter(None, (row.title, row.node))),
            "intensity": row.flops / row.nbytes,
            "rate": row.rate,
        }
        for number, row in rows
    ]
    return {
        "roofline": asdict(replace(profile.roofline, flops=units)),
        "places": apart(places),
        "series": [("as it runs", "rate", "--after")],
    }


def apart(places: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Places of a roofline, no two with the same arithmetic a byte: the script finds them by that."""
    taken: set[float] = set()
    found = []
    for place in places:
        intensity = place["intensity"]
        while intensity in taken:
            intensity *= 1 + 1e-9
        taken.add(intensity)
        found.append({**place, "intensity": intensity})
    return found


def tuning_data(tasks: Sequence[TunedTask]) -> list[dict[str, Any]]:
    """Curves of tuning for the page's script: seconds of a call with the default, and for each measurement, over the
    seconds of tuning, those of the point that it was of, and of the best one by then."""
    return [{"default_seconds": task.default_seconds or 0.0, "trials": _trials(task)} for task in tasks]


def _trials(task: TunedTask) -> list[dict[str, Any]]:
    default = task.default_seconds or 0.0
    latest: dict[str, float] = {}
    found = []
    for trial in task.trials[:_MOST_TRIALS]:
        seconds = None if trial.ratio is None else trial.ratio * default
        if seconds is not None:
            # Points are measured again, longer, when they look fast: the first measurement may have been disturbed.
            latest[trial.params] = seconds
        best = min(default, *latest.values()) if latest else default
        told = {"at": trial.at, "params": trial.params, "failure": trial.failure}
        found.append({**told, "seconds": seconds, "best": best})
    return found


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _shortened(text: str) -> str:
    return text if len(text) < 24 else f"{text[:22]}…"
