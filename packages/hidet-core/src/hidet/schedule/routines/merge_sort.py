"""Stable merge sort of sort keys in memory, from the bottom up: runs by insertion, then merged without branches on data
(Knuth, "The Art of Computer Programming", vol. 3, 5.2.4)."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.schedule.routines.sort_key import copy_sort_key

# Below this length insertion moves sort keys faster than merging does.
_RUN = 8


def merge_sort(k: IRBuilder, parts: Sequence[Var], start: Expr, count: Expr) -> Var:
    """Sort `count` sort keys from place `start` on by their first part, ascending and stably.

    The sort keys are followed by room for as many, through which they move. Gives the place where the sorted sort keys
    start.
    """
    with k.for_range("run", count, step=_RUN) as run:
        length = build.minimum(build.index(_RUN), count - run)
        with k.for_range("offset", length - 1, start=1) as offset:
            place = k.let("place", start + run + offset)
            held = k.let_each("held", (build.load(part, place) for part in parts))
            insert(k, parts, held, start + run, place)
    source, target = k.let("source", start), k.let("target", start + count)
    width = k.let("width", build.index(_RUN))
    with k.while_(width < count):
        _merge_runs(k, parts, source, target, width, count)
        swapped = k.let("swapped", source)
        k.assign(source, target)
        k.assign(target, swapped)
        k.assign(width, width * 2)
    return source


def insert(k: IRBuilder, parts: Sequence[Var], sort_key: Sequence[Expr], first: Expr, place: Expr) -> None:
    """Move sort keys before `place` (down to `first`) up by one while they come after `sort_key`, and put it there."""
    gap = k.let("gap", place)
    before = gap - 1
    with k.while_(gap > first):
        with k.if_(build.load(parts[0], before) <= sort_key[0]):
            k.break_()
        copy_sort_key(k, parts, gap, before)
        k.assign(gap, before)
    k.store_each(parts, gap, sort_key)


def _merge_runs(k: IRBuilder, parts: Sequence[Var], source: Var, target: Var, width: Var, count: Expr) -> None:
    """Merge neighbouring sorted runs of `width` sort keys pairwise."""
    first = k.let("first", build.index(0))
    with k.while_(first < count):
        middle = k.let("middle", build.minimum(first + width, count))
        end = k.let("end", build.minimum(middle + width, count))
        left, right, place = k.let("left", first), k.let("right", middle), k.let("place", first)
        with k.while_(build.logical_and(left < middle, right < end)):
            from_left = k.let_each("left", (build.load(part, source + left) for part in parts))
            from_right = k.let_each("right", (build.load(part, source + right) for part in parts))
            is_right = from_right[0] < from_left[0]
            taken = k.let("taken", build.select(is_right, build.index(1), build.index(0)))
            chosen = [build.select(is_right, b, a) for a, b in zip(from_left, from_right, strict=True)]
            k.store_each(parts, target + place, chosen)
            k.assign(right, right + taken)
            k.assign(left, left + (1 - taken))
            k.assign(place, place + 1)
        for side, until in ((left, middle), (right, end)):
            with k.while_(side < until):
                copy_sort_key(k, parts, target + place, source + side)
                k.assign(side, side + 1)
                k.assign(place, place + 1)
        k.assign(first, end)
