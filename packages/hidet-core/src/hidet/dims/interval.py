"""Interval arithmetic over the integers: sound bounds of a result from bounds of its operands.

An interval is `(lower, upper)`, both ends included; None as lower means minus infinity, as upper plus infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

Interval = tuple[int | None, int | None]


def add(a: Interval, b: Interval) -> Interval:
    """All sums of a member of `a` and one of `b`."""
    return (
        None if a[0] is None or b[0] is None else a[0] + b[0],
        None if a[1] is None or b[1] is None else a[1] + b[1],
    )


def multiply(a: Interval, b: Interval) -> Interval:
    """All products of a member of `a` and one of `b`."""
    if a == (0, 0) or b == (0, 0):
        return (0, 0)
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return (a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1])
    corners = [x * y for x in a if x is not None for y in b if y is not None]
    # The product is unbounded on a side when an infinite end meets a factor of the sign that leads there; else the
    # extreme is at a corner.
    downwards = any(
        (x[0] is None and _reaches_above_zero(y)) or (x[1] is None and _reaches_below_zero(y))
        for x, y in ((a, b), (b, a))
    )
    upwards = any(
        (x[1] is None and _reaches_above_zero(y)) or (x[0] is None and _reaches_below_zero(y))
        for x, y in ((a, b), (b, a))
    )
    return (None if downwards else min(corners), None if upwards else max(corners))


def _reaches_above_zero(a: Interval) -> bool:
    return a[1] is None or a[1] > 0


def _reaches_below_zero(a: Interval) -> bool:
    return a[0] is None or a[0] < 0


def floordiv(a: Interval, b: Interval) -> Interval:
    """All floor quotients of a member of `a` by one of `b` that is at least 1."""
    smallest, largest = max(b[0] or 1, 1), b[1]
    lower, upper = a
    if lower is not None:
        if lower < 0:
            lower = lower // smallest
        else:
            lower = 0 if largest is None else lower // largest
    if upper is not None:
        if upper >= 0:
            upper = upper // smallest
        else:
            upper = -1 if largest is None else upper // largest
    return (lower, upper)


def modulo(a: Interval, b: Interval, step: int) -> Interval:
    """All remainders (Python's %) of a member of `a` by one of `b` that is at least 1.

    step: a number that divides every remainder.
    """
    upper = None if b[1] is None else b[1] - 1
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        upper = a[1] if upper is None else min(upper, a[1])
    return (0, None if upper is None else upper - upper % step)


def minimum(intervals: Sequence[Interval]) -> Interval:
    """All minima of one member of each interval."""
    lowers = [lower for lower, _ in intervals]
    uppers = [upper for _, upper in intervals if upper is not None]
    return (
        None if None in lowers else min(lower for lower in lowers if lower is not None),
        min(uppers) if uppers else None,
    )


def maximum(intervals: Sequence[Interval]) -> Interval:
    """All maxima of one member of each interval."""
    lower, upper = minimum([(_negate(high), _negate(low)) for low, high in intervals])
    return (_negate(upper), _negate(lower))


def _negate(end: int | None) -> int | None:
    return None if end is None else -end
