"""How long a function takes, work on a GPU included."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def benchmark_func(
    run_func: Callable[..., object],
    *args: Any,
    warmup: int = 1,
    number: int = 5,
    repeat: int = 5,
    median: bool = True,
) -> float | list[float]:
    """Milliseconds of a call: the median of `repeat` means of `number` calls, or all of these means.

    The device is waited for before and after each of them. args: what the function is called with.
    """
    for _ in range(warmup):
        run_func(*args)
    means = []
    for _ in range(repeat):
        _finish_devices()
        start = time.perf_counter()
        for _ in range(number):
            run_func(*args)
        _finish_devices()
        means.append((time.perf_counter() - start) * 1e3 / number)
    return statistics.median(means) if median else means


def do_bench(
    fn: Callable[[], object], warmup: float = 25, rep: float = 100, percentiles: Sequence[float] = (0.2, 0.5, 0.8)
) -> list[float]:
    """Milliseconds of a call at some percentiles. warmup, rep: milliseconds to spend before and while measuring."""
    _until(fn, warmup)
    durations = sorted(_until(fn, rep))
    return [durations[min(int(share * len(durations)), len(durations) - 1)] for share in percentiles]


def _until(fn: Callable[[], object], milliseconds: float) -> list[float]:
    durations: list[float] = []
    while sum(durations) < milliseconds:
        _finish_devices()
        start = time.perf_counter()
        fn()
        _finish_devices()
        durations.append((time.perf_counter() - start) * 1e3)
    return durations


def _finish_devices() -> None:
    """Wait for the devices that this process uses, through the libraries that it has loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        return
    devices: Any = sys.modules.get("hidet.cuda.devices") if "hidet.cuda.memory" in sys.modules else None
    if devices is not None and devices.available():
        devices.synchronize()
