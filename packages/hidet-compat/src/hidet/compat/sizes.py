"""Whole numbers, as `hidet.utils` of hidet 0.6 has them: how often one goes into another, and what divides it."""

from __future__ import annotations

import math


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def gcd(a: int, b: int) -> int:
    """The greatest number that divides both."""
    return math.gcd(a, b)


def lcm(a: int, b: int) -> int:
    """The least number that both divide."""
    return math.lcm(a, b)


def factorize(n: int) -> list[int]:
    """The numbers that divide n, in order."""
    small = [number for number in range(1, math.isqrt(n) + 1) if n % number == 0]
    return sorted({*small, *(n // number for number in small)})
