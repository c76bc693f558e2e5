"""Deciding equalities and inequalities between dims: True is proved, False refuted, None unknown.

True means that the relation holds for every value of the symbols that fits their facts, False that it holds for none.
What stays None becomes a check at run time. Normal forms and their interval bounds decide.
"""

from __future__ import annotations

from hidet.dims.expr import Dim, add, bounds, divisibility, multiply


def prove_equal(a: Dim, b: Dim) -> bool | None:
    """Whether a == b."""
    difference = add(a, multiply(b, -1))
    if isinstance(difference, int):
        return difference == 0
    lower, upper = bounds(difference)
    if (lower is not None and lower > 0) or (upper is not None and upper < 0):
        return False
    if difference.constant % divisibility(add(difference, -difference.constant)):
        return False
    return None


def prove_le(a: Dim, b: Dim) -> bool | None:
    """Whether a <= b."""
    lower, upper = bounds(add(b, multiply(a, -1)))
    if lower is not None and lower >= 0:
        return True
    return False if upper is not None and upper < 0 else None


def prove_lt(a: Dim, b: Dim) -> bool | None:
    """Whether a < b."""
    return prove_le(add(a, 1), b)
