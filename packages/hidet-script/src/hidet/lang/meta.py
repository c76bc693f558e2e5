"""Loops and parameters that are written out while a script is translated.

    for i in meta.range(4): ...                       the body four times, i a number each time
    for name in meta.each(("a", "b")): ...            the body once for each item
    def launch(args: meta.types([i32, ~f32])): ...    two parameters: args[0] and args[1]

Inside of scripts `range` is a loop of the program.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any

from hidet.lang.types import TypeList


def range(*bounds: int) -> tuple[int, ...]:
    """The numbers of Python's range; a loop over them is written out."""
    return tuple(builtins.range(*bounds))


def each(items: Iterable[Any]) -> tuple[Any, ...]:
    """The items; a loop over them is written out."""
    return tuple(items)


def types(kinds: Sequence[Any]) -> TypeList:
    """The annotation of a parameter that stands for several, one of each type: `f32`, `~f32`, `f32[m, n]`, int, …"""
    return TypeList(tuple(kinds))
