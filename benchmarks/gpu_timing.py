"""Time of calls as the GPU's own clock sees it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_WARM_CALLS = 3
_LEAST_CALLS = 5


def time_on_gpu(run: Callable[[], object], seconds: float) -> list[float]:
    """Durations, in seconds, of calls made for about `seconds`, each from its first work on the device to its last.

    The device waits for the host before every call, so that a call whose launches take longer than its kernels shows.
    """
    for _ in range(_WARM_CALLS):
        run()
    torch.cuda.synchronize()
    durations: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(durations) < _LEAST_CALLS or time.perf_counter() < deadline:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        start.record()  # type: ignore[no-untyped-call]  # as above
        run()
        end.record()  # type: ignore[no-untyped-call]  # as above
        end.synchronize()  # type: ignore[no-untyped-call]  # as above
        durations.append(start.elapsed_time(end) / 1e3)  # type: ignore[no-untyped-call]  # as above
    return durations
