"""A choice that is a number for each of several outputs or stages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """A number for each, in order."""

    each: tuple[int, ...]

    def __str__(self) -> str:
        return "/".join(map(str, self.each))
