"""Python's collector of cycles during a compilation."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HAS_FROZEN = threading.Event()
"""Whether somebody has frozen objects of this process."""


@contextmanager
def paused_gc() -> Iterator[None]:
    """Keep the cycle collector out of a compilation: IR has no cycles, and one full collection of a process that holds
    a framework costs more than compiling a small model.

    What is still alive at the end counts as old: else the collector would look at it, and at all the rest, right away.
    The next full collection does. Where somebody has frozen objects, which would not be any more, it stays young.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _is_any_frozen():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _is_any_frozen() -> bool:
    # Counting them takes 70 ms a million, and none is counted at once.
    if not _HAS_FROZEN.is_set() and gc.get_freeze_count():
        _HAS_FROZEN.set()
    return _HAS_FROZEN.is_set()
