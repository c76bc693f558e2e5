"""Choices for sizes that nobody has measured: those of the nearest sizes that somebody has."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping

from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Entry, Same

FARTHEST = 2.0
"""An extent, or a stride, may be this many times as large or as small. One of 1 is near to 1 alone."""

_NUMBER = re.compile(r"(?<![\w.])\d+")


def nearest(meaning: Meaning, known: Mapping[Meaning, Entry]) -> Entry | None:
    """The choice for the same task, rule and machine whose sizes are the nearest, all of them within `FARTHEST`; None
    where there is none.

    Near is a short distance between the logarithms of sizes: 512 is as far from 1024 as from 256.
    """
    wanted = _logarithms(meaning.sizes)
    found: list[tuple[float, Entry]] = []
    for entry in _by_kind(Same(known)).get(_kind(meaning), ()):
        other = _logarithms(entry.meaning.sizes)
        steps = [abs(mine - theirs) for mine, theirs in zip(wanted, other, strict=True)]
        is_near = all(
            step <= math.log2(FARTHEST) + 1e-9 and (step == 0 or (mine and theirs))
            for step, mine, theirs in zip(steps, wanted, other, strict=True)
        )
        if is_near:
            found.append((math.hypot(*steps), entry))
    return min(found, key=lambda each: (each[0], each[1].meaning), default=(0.0, None))[1]


@functools.lru_cache(maxsize=2)
def _by_kind(same: Same) -> Mapping[tuple[str, ...], list[Entry]]:
    """The entries of a store by what they have in common when sizes are left out."""
    found: dict[tuple[str, ...], list[Entry]] = {}
    for meaning, entry in same.known.items():
        found.setdefault(_kind(meaning), []).append(entry)
    return found


def _kind(meaning: Meaning) -> tuple[str, ...]:
    return meaning.task, _NUMBER.sub("", meaning.sizes), meaning.arch, meaning.rule, meaning.version


@functools.lru_cache(maxsize=4096)
def _logarithms(sizes: str) -> tuple[float, ...]:
    """Of extents and strides; 0.0 for those of 0 as for those of 1."""
    return tuple(math.log2(max(int(number), 1)) for number in _NUMBER.findall(sizes))
