"""Blocks that a sequence repeats, such as the layers of a transformer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

_LEAST_PERIOD = 3
"""Shorter blocks are drawn as they are."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` equal runs of `period` items each, from number `start` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The number of the first item behind the last run."""
        return self.start + self.period * self.count


def find_repeats(items: Sequence[Hashable]) -> list[Repeat]:
    """The repeats of a sequence, in order; none overlap. The one that covers most is taken first."""
    numbers: dict[Hashable, int] = {}
    codes = np.asarray([numbers.setdefault(item, len(numbers)) for item in items], np.int64)
    found: list[Repeat] = []
    _find(codes, 0, found)
    return sorted(found, key=lambda repeat: repeat.start)


def _find(codes: np.ndarray[tuple[int], np.dtype[np.int64]], offset: int, found: list[Repeat]) -> None:
    best = _longest(codes)
    if best is None:
        return
    found.append(Repeat(offset + best.start, best.period, best.count))
    _find(codes[: best.start], offset, found)
    _find(codes[best.end :], offset + best.end, found)


def _longest(codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Repeat | None:
    """The repeat that covers most items, of the shortest period."""
    best: Repeat | None = None
    for period in range(_LEAST_PERIOD, len(codes) // 2 + 1):
        equal = codes[period:] == codes[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        if not len(lengths) or lengths.max() < period:
            continue
        longest = int(lengths.argmax())
        repeat = Repeat(int(starts[longest]), period, int(lengths[longest]) // period + 1)
        if best is None or repeat.end - repeat.start > best.end - best.start:
            best = repeat
    return best
