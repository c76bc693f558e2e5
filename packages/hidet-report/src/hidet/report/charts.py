"""Charts as SVG: when kernels ran, what memory they had, how near to the roofline they are, what tuning measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

from hidet.report.memory import MemoryUse
from hidet.report.profile import Profile
from hidet.report.profile_text import duration, size
from hidet.report.tuned import TunedTask

_WIDTH, _LEFT, _RIGHT = 1060, 70, 12


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


def roofline_chart(profile: Profile) -> str:
    """Arithmetic a byte against arithmetic a second, both as powers of ten, below what the device can do."""
    rows = [(number, row) for number, row in enumerate(profile.rows) if row.rate and row.bandwidth]
    if not rows or profile.roofline is None:
        return ""
    dtypes, height = {row.dtype for _, row in rows}, 360
    units = {name: rate for name, rate in profile.roofline.flops.items() if name.partition(" ")[0] in dtypes}
    roof = replace(profile.roofline, flops=units)
    intensities = [row.flops / row.nbytes for _, row in rows]
    most = max([*roof.flops.values(), *(row.rate for _, row in rows)])
    widest = max(roof.bandwidths.values(), default=1.0)
    low, high = min([*intensities, 0.1]) / 2, max([*intensities, most / min(roof.bandwidths.values(), default=1.0)]) * 2
    least = min(row.rate for _, row in rows) / 2
    x = _logarithmic(low, high, _LEFT, _WIDTH - _RIGHT)
    y = _logarithmic(least, most * 2, height - 30, 8)
    parts = []
    for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most * 2)) + 1):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.0f}" y2="{at:.0f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{at + 4:.0f}" text-anchor="end">{_rate(10.0**power)}</text>'
        )
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        parts.append(_tick(x(10.0**power), height - 28, f"{10.0**power:g}"))
    parts.append(_tick((_LEFT + _WIDTH) / 2, height - 14, "operations a byte"))
    for name, width in roof.bandwidths.items():
        # A line from the left edge, or from where it comes into sight, to the highest roof.
        start, end = max(low, least / width), min(max(roof.flops.values(), default=most) / width, high)
        if start < end:
            parts.append(_roof(x(start), y(start * width), x(end), y(end * width), name, at_start=True))
    for name, flops in roof.flops.items():
        start = max(flops / widest, low)
        if start < high and flops > least:
            parts.append(_roof(x(start), y(flops), x(high), y(flops), name, at_start=False))
    for number, row in rows:
        title = f"{row.title} {row.node}: {row.flops / row.nbytes:.3g} operations a byte, {_rate(row.rate)}" + (
            f", {row.roof:.0%} of the roof" if row.roof is not None else ""
        )
        radius = 3 + 9 * math.sqrt(row.seconds / profile.seconds)
        parts.append(
            f'<circle data-row="{number}" cx="{x(row.flops / row.nbytes):.1f}" cy="{y(row.rate):.1f}" r="{radius:.1f}">'
            f"<title>{escape(title)}</title></circle>"
        )
    return _svg(height, parts, "Roofline of the kernels; the table has the numbers", "roofline")


def tuning_chart(task: TunedTask) -> str:
    """The time of a call over the seconds of tuning: of each measurement, and of the point that is the fastest by then,
    beside the default's. "" where nothing was measured."""
    default = task.default_seconds
    trials = [(trial, trial.ratio * default) for trial in task.trials if trial.ratio is not None and default]
    if not default or not trials:
        return ""
    # Points of many times the default's time would leave no room for the others.
    most = min(max(default, *(seconds for _, seconds in trials)), 3 * default)
    start = trials[0][0].at
    length = max(trials[-1][0].at - start, 1e-3)
    height = 220
    x, y = _scale(0, length, _LEFT, _WIDTH - _RIGHT), _scale(0, most * 1.08, height - 30, 8)
    best, path, circles = default, f"M{_LEFT} {y(default):.1f}", []
    latest: dict[str, float] = {}
    for trial, seconds in trials:
        # Points are measured again, longer, when they look fast: the first measurement may have been disturbed.
        latest[trial.params] = seconds
        best = min(default, *latest.values())
        path += f"H{x(trial.at - start):.1f}V{y(best):.1f}"
        title = f"{trial.params}: {duration(seconds)}, measured after {trial.at - start:.2g} s"
        mark = ' class="taken"' if trial.params == task.params else ""
        circles.append(
            f'<circle{mark} cx="{x(trial.at - start):.1f}" cy="{y(min(seconds, most)):.1f}" r="4">'
            f"<title>{escape(title)}</title></circle>"
        )
    parts = [
        f'<text class="tick" x="{_LEFT - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{text}</text>'
        for value, text in ((0.0, "0"), (default, duration(default)))
    ]
    parts.append(_roof(_LEFT, y(default), _WIDTH - _RIGHT, y(default), "by default", at_start=False))
    parts.append(f'<path class="best" d="{path}H{_WIDTH - _RIGHT}"><title>best so far: {duration(best)}</title></path>')
    parts += circles
    parts += [_tick(x(length * share), height - 24, f"{length * share:.2g} s") for share in (0, 0.5, 1)]
    label = f"{len(trials)} measurements: the best point takes {duration(best)}, the default {duration(default)}"
    return _svg(height, parts, label, "tuning")


def _roof(x: float, y: float, a: float, b: float, name: str, *, at_start: bool) -> str:
    line = f'<line class="roof" x1="{x:.0f}" y1="{y:.0f}" x2="{a:.0f}" y2="{b:.0f}"/>'
    if at_start:
        return f'{line}<text class="tick" x="{x + 18:.0f}" y="{y - 1:.0f}">{escape(name)}</text>'
    return f'{line}<text class="tick" x="{a - 4:.0f}" y="{b - 4:.0f}" text-anchor="end">{escape(name)}</text>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _logarithmic(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    scale = _scale(math.log(low), math.log(high), start, end)
    return lambda value: scale(math.log(value))


def _rate(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}op/s"
    return f"{value:.3g} op/s"


def _shortened(text: str) -> str:
    return text if len(text) < 24 else f"{text[:22]}…"
