"""Time that tuning may take: an account that all graphs of a model are charged to."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hidet.errors import OptionError

DEFAULT_SECONDS = 60.0
"""The budget of a model whose tuning is asked for without one: by mode "max-autotune", or by option search_space."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget:
    """Seconds of wall-clock time. Graphs that are compiled one after the other share a budget by being given the same
    one: what the first leaves is the next one's.

    seconds: in all. is_implied: whether nobody named a budget, so that nothing is wrong where no plug-in tunes.
    """

    def __init__(self, seconds: float, is_implied: bool = False) -> None:
        self.seconds = seconds
        self.is_implied = is_implied
        self._spent = 0.0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, given: Budget | str | float) -> Budget:
        """From seconds, or text such as "90s", "2m", "0.5h". OptionError for anything else."""
        if isinstance(given, Budget):
            return given
        text = "" if isinstance(given, bool) else str(given)
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text)
        if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
            raise OptionError(f'the budget of tuning is {given!r}, expected seconds, or text such as "90s" or "2m"')
        return cls(float(found[1]) * _UNITS[found[2]])

    @property
    def left(self) -> float:
        """Seconds that are not spent; 0.0 where all are."""
        return max(self.seconds - self._spent, 0.0)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge the time that passes in the block."""
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._spent += time.monotonic() - start

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.seconds:g} s, {self.left:.1f} s left>"
