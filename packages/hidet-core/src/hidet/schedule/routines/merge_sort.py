"""Stable merge sort of sort keys in memory, from the bottom up: runs by insertion, then merged without branches on data
(Knuth, "The Art of Computer Programming", vol. 3, 5.2.4)."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Break, Declare, For, If, Stmt, Store, While
from hidet.schedule.routines.sort_key import copy_sort_key

# Below this length insertion moves sort keys faster than merging does.
_RUN = 8


def merge_sort(parts: Sequence[Var], start: Expr, count: Expr) -> tuple[list[Stmt], Var]:
    """Statements that sort `count` sort keys from place `start` on by their first part, ascending and stably.

    The sort keys are followed by room for as many, through which they move. The variable is the place where the sorted
    sort keys start afterwards.
    """
    source, target, width = (build.size_var(name) for name in ("source", "target", "width"))
    swapped = build.size_var("swapped")
    merge_all = build.seq(
        [
            _merge_runs(parts, source, target, width, count),
            Declare(swapped, source),
            Assign(source, target),
            Assign(target, swapped),
            Assign(width, width * 2),
        ]
    )
    return [
        _sort_runs(parts, start, count),
        Declare(source, start),
        Declare(target, start + count),
        Declare(width, build.index(_RUN)),
        While(width < count, merge_all),
    ], source


def insert(parts: Sequence[Var], sort_key: Sequence[Expr], first: Expr, place: Expr) -> list[Stmt]:
    """Move sort keys before `place` (down to `first`) up by one while they come after `sort_key`, and put it there."""
    gap = build.size_var("gap")
    before = gap - 1
    move = [
        If(build.load(parts[0], before) <= sort_key[0], Break()),
        *copy_sort_key(parts, gap, before),
        Assign(gap, before),
    ]
    return [
        Declare(gap, place),
        While(gap > first, build.seq(move)),
        *(Store(part, (gap,), value) for part, value in zip(parts, sort_key, strict=True)),
    ]


def _sort_runs(parts: Sequence[Var], start: Expr, count: Expr) -> Stmt:
    run, offset, place = (build.size_var(name) for name in ("run", "offset", "place"))
    held = [Var(f"held{n}", part.dtype) for n, part in enumerate(parts)]
    body: list[Stmt] = [
        Declare(place, start + run + offset),
        *(Declare(var, build.load(part, place)) for var, part in zip(held, parts, strict=True)),
        *insert(parts, held, start + run, place),
    ]
    length = build.minimum(build.index(_RUN), count - run)
    return For(run, build.index(0), count, For(offset, build.index(1), length - 1, build.seq(body)), step=_RUN)


def _merge_runs(parts: Sequence[Var], source: Var, target: Var, width: Var, count: Expr) -> Stmt:
    """Merge neighbouring sorted runs of `width` sort keys pairwise."""
    first, left, right, place = (build.size_var(name) for name in ("first", "left", "right", "place"))
    middle, end = build.size_var("middle"), build.size_var("end")
    from_left = [Var(f"left{n}", part.dtype) for n, part in enumerate(parts)]
    from_right = [Var(f"right{n}", part.dtype) for n, part in enumerate(parts)]
    taken = build.size_var("taken")
    step: list[Stmt] = []
    for var, part in zip(from_left, parts, strict=True):
        step.append(Declare(var, build.load(part, source + left)))
    for var, part in zip(from_right, parts, strict=True):
        step.append(Declare(var, build.load(part, source + right)))
    is_right = from_right[0] < from_left[0]
    step.append(Declare(taken, build.select(is_right, build.index(1), build.index(0))))
    for part, a, b in zip(parts, from_left, from_right, strict=True):
        step.append(Store(part, (target + place,), build.select(is_right, b, a)))
    step += [Assign(right, right + taken), Assign(left, left + (1 - taken)), Assign(place, place + 1)]

    def copy_rest(side: Var, until: Var) -> Stmt:
        moved = copy_sort_key(parts, target + place, source + side)
        return While(side < until, build.seq([*moved, Assign(side, side + 1), Assign(place, place + 1)]))

    merge: list[Stmt] = [
        Declare(middle, build.minimum(first + width, count)),
        Declare(end, build.minimum(middle + width, count)),
        Declare(left, first),
        Declare(right, middle),
        Declare(place, first),
        While(build.logical_and(left < middle, right < end), build.seq(step)),
        copy_rest(left, middle),
        copy_rest(right, end),
        Assign(first, end),
    ]
    return build.seq([Declare(first, build.index(0)), While(first < count, build.seq(merge))])
