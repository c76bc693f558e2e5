"""The exchange algorithm (Remez 1934) for minimax approximations by polynomials, in mpmath's precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]  # it has no type hints

Number = Any
Function = Callable[[Number], Number]


def remez(function: Function, weight: Function, low: Number, high: Number, degree: int) -> tuple[list[Number], Number]:
    """Coefficients in powers of x, lowest first, and the largest weighted error."""
    count = degree + 2
    low, high = mp.mpf(low), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [mp.cos(mp.pi * (1 - mp.mpf(i) / (count - 1))) for i in range(count)]
    grid = [mp.cos(mp.pi * (1 - mp.mpf(i) / (32 * count))) for i in range(32 * count + 1)]
    values = [function(middle + half * t) for t in grid]
    weights = [weight(middle + half * t) for t in grid]
    coefficients: list[Number] = []
    largest = mp.inf
    for _ in range(20):
        matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
        for i, t in enumerate(points):
            for j in range(degree + 1):
                matrix[i, j] = t**j
            x = middle + half * t
            matrix[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = function(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[j] for j in range(degree + 1)]
        errors = [w * (mp.polyval(coefficients[::-1], t) - v) for t, v, w in zip(grid, values, weights, strict=True)]
        largest = max(abs(error) for error in errors)
        extrema = _alternating_extrema(errors, count)
        if extrema is None or largest < abs(solution[degree + 1]) * mp.mpf("1.005"):
            break
        points = [grid[k] for k in extrema]
    return _powers(coefficients, middle, half), largest


def _alternating_extrema(errors: list[Number], count: int) -> list[int] | None:
    """Places of `count` extrema of alternating sign; None when rounding has hidden some of them."""
    found: list[int] = []
    for k, error in enumerate(errors):
        if not found or (error > 0) != (errors[found[-1]] > 0):
            found.append(k)
        elif abs(error) > abs(errors[found[-1]]):
            found[-1] = k
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found if len(found) == count else None


def _powers(coefficients: list[Number], middle: Number, half: Number) -> list[Number]:
    """From powers of (x - middle) / half to powers of x."""
    result = [mp.mpf(0)] * len(coefficients)
    basis = [mp.mpf(1)]
    for coefficient in coefficients:
        for power, value in enumerate(basis):
            result[power] += coefficient * value
        shifted = [mp.mpf(0), *(value / half for value in basis)]
        for power, value in enumerate(basis):
            shifted[power] -= value * middle / half
        basis = shifted
    return result
