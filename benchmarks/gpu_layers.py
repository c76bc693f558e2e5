"""Which of our kernels a model spends its time in, with the schedules that made them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from hidet.runtime.compiled import CompileReport, ProgramUse

_CALLS = 5


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel in one call of a model: launches, seconds in all of them, and the program that it belongs to.

    A kernel that starts while the one before it ends waits for that one: its time begins when that one has ended.
    use is None for kernels that are not ours.
    """

    name: str
    launches: float
    seconds: float
    use: ProgramUse | None


def profile_kernels(run: Callable[[], object], reports: Sequence[CompileReport]) -> list[KernelTime]:
    """Kernels of a call by falling time. RuntimeError where torch's profiler sees no work of the device."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(_CALLS):
            run()
        torch.cuda.synchronize()
    on_device = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    if not on_device:
        raise RuntimeError("torch's profiler saw no kernels: CUPTI is missing, or may not be used here")
    spans = [(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in on_device]
    return kernel_times(own_times(spans), [use for report in reports for use in report.uses], _CALLS)


def own_times(spans: Iterable[tuple[str, float, float]]) -> list[tuple[str, float]]:
    """Launches (name, seconds) from spans (name, start, end) on one device, without what overlaps an earlier launch."""
    times: list[tuple[str, float]] = []
    latest = float("-inf")
    for name, start, end in sorted(spans, key=lambda span: span[1:]):
        times.append((name, max(end - max(start, latest), 0.0)))
        latest = max(latest, end)
    return times


def kernel_times(launches: Iterable[tuple[str, float]], uses: Sequence[ProgramUse], calls: int) -> list[KernelTime]:
    """Launches (name, seconds) of several calls, summed by name and divided by the calls, by falling time."""
    counts: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, duration in launches:
        counts[name] += 1
        seconds[name] += duration
    times = [
        KernelTime(name, counts[name] / calls, seconds[name] / calls, _use_of(name, uses))
        for name in sorted(seconds, key=lambda name: -seconds[name])
    ]
    return times


def _use_of(kernel: str, uses: Sequence[ProgramUse]) -> ProgramUse | None:
    return next((use for use in uses if kernel.startswith(use.symbol)), None)


def print_kernels(console: Console, row: str, times: Sequence[KernelTime], most: int) -> None:
    """The slowest kernels, one a line, and the sum of all."""
    total = sum(time.seconds for time in times)
    console.print(f"{row}: {total * 1e6:.0f} us in {sum(time.launches for time in times):.0f} launches", style="bold")
    table = Table()
    for heading, justify in (("us", "right"), ("%", "right"), ("launches", "right"), ("schedule", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]  # rich takes these words
    table.add_column("kernel, and what it computes", overflow="fold")
    for time in times[:most]:
        what = Counter(time.use.tasks).most_common(3) if time.use is not None else []
        lines = [time.name, *(f"  {task} x{count}" for task, count in what)]
        if time.use is not None and len(set(time.use.tasks)) > len(what):
            lines.append(f"  and {len(set(time.use.tasks)) - len(what)} more shapes")
        share, schedule = time.seconds / total * 100, "-" if time.use is None else time.use.rule
        table.add_row(f"{time.seconds * 1e6:.1f}", f"{share:.0f}", f"{time.launches:.0f}", schedule, "\n".join(lines))
    console.print(table)
