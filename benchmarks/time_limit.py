"""A limit to how long something may take."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """Something took longer than it may. No Exception: what compiles models catches those and goes on without."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End the `with` block after `seconds` with TimeLimitExceeded, as soon as the interpreter has its turn.

    For the main thread of a process on a system with timers.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
