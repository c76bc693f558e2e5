"""Writes tests/math/reference.json: exact values of the functions of hidet.cpu.math at f64 arguments.

Each row is [x, y] or [x, x2, y] with floats in hexadecimal, y being the exact value rounded once. Arguments spread
over all magnitudes where the function is finite, and gather where it is hard: near zeros, poles and multiples of pi.

    python packages/hidet-cpu/tools/make_reference_values.py

Needs mpmath.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]  # it has no type hints

OUTPUT = Path(__file__).parents[1] / "tests" / "math" / "reference.json"
COUNT = 40
RANDOM = random.Random(1)


def erfinv(x: Any) -> Any:
    """The inverse of erf by Newton's iteration on the complement, which keeps its digits near 1."""
    if abs(x) < 0.9:
        return mp.erfinv(x)
    complement = 1 - abs(x)
    y = mp.sqrt(-mp.log(complement))
    for _ in range(200):
        step = (mp.erfc(y) - complement) / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))
        y += step / (1 - y * step) if abs(y * step) < 0.5 else step / (2 * abs(y * step))
    return mp.sign(x) * y


def lgamma(x: Any) -> Any:
    """log |gamma(x)|."""
    if x > 0:
        return mp.re(mp.loggamma(x))
    return mp.log(mp.pi / abs(mp.sin(mp.pi * (x - mp.nint(x))))) - mp.re(mp.loggamma(1 - x))


def sample(low: float, high: float) -> list[float]:
    """Numbers from a range: half of them spread evenly, half over the magnitudes in it."""
    even = [RANDOM.uniform(low, high) for _ in range(COUNT // 2)]
    largest = max(abs(low), abs(high))
    sizes = [largest * 2.0 ** -RANDOM.uniform(0, 60) for _ in range(COUNT // 2)]
    signed = [size if high >= size and (low > -size or RANDOM.random() < 0.5) else -size for size in sizes]
    return even + [x for x in signed if low <= x <= high]


def anywhere(positive: bool = False) -> list[float]:
    """Numbers of every magnitude of f64."""
    sizes = [math.ldexp(RANDOM.uniform(1, 2), RANDOM.randint(-1070, 1022)) for _ in range(COUNT)]
    return sizes if positive else [RANDOM.choice((-1, 1)) * size for size in sizes]


def near(*centres: float) -> list[float]:
    """Numbers at many small distances from some centres."""
    return [c + RANDOM.choice((-1, 1)) * 2.0 ** -RANDOM.randint(2, 50) for c in centres for _ in range(8)]


# The f64 closest to a multiple of pi / 2: 6381956970095103 * 2^797 (Muller et al., Handbook of Floating-Point
# Arithmetic, 2018, 10.2).
ANGLES = [*anywhere(), *sample(-20, 20), *near(math.pi / 2, math.pi, 2 * math.pi, 1e6), 6381956970095103.0 * 2.0**797]
RANGES: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "exp": (mp.exp, [*sample(-745, 709), *near(0.0, 1.0)]),
    "exp2": (lambda x: mp.mpf(2) ** x, [*sample(-1074, 1023), *near(0.0, 1.0)]),
    "expm1": (mp.expm1, [*sample(-40, 709), *near(0.0, -0.5)]),
    "log": (mp.log, [*anywhere(True), *near(1.0, 0.7, 1.4)]),
    "log2": (lambda x: mp.log(x) / mp.log(2), [*anywhere(True), *near(1.0, 0.7, 1.4)]),
    "log10": (mp.log10, [*anywhere(True), *near(1.0, 0.7, 1.4)]),
    "log1p": (mp.log1p, [*anywhere(True), *sample(-1 + 1e-9, 1), *near(0.0, 0.4)]),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), anywhere(True)),
    "sin": (mp.sin, ANGLES),
    "cos": (mp.cos, ANGLES),
    "tan": (mp.tan, ANGLES),
    "asin": (mp.asin, [*sample(-1, 1), 0.5, *(x for x in near(0.5, 1.0, -1.0) if abs(x) <= 1)]),
    "acos": (mp.acos, [*sample(-1, 1), 0.5, *(x for x in near(0.5, 1.0, -1.0) if abs(x) <= 1)]),
    "atan": (mp.atan, [*anywhere(), *sample(-5, 5), *near(0.4142135623730951, 1.0, 2.414213562373095)]),
    "sinh": (mp.sinh, [*sample(-710, 710), *near(0.0, 22.0)]),
    "cosh": (mp.cosh, [*sample(-710, 710), *near(0.0, 22.0)]),
    "tanh": (mp.tanh, [*sample(-20, 20), *near(0.0, 0.5)]),
    "asinh": (mp.asinh, [*anywhere(), *sample(-5, 5), *near(0.0, 1.0)]),
    "acosh": (mp.acosh, [*sample(1, 100), *(1 + abs(x - 1) for x in near(1.0)), 1e300]),
    "atanh": (mp.atanh, [*sample(-1 + 1e-9, 1 - 1e-9), *near(0.0, 0.5)]),
    "erf": (mp.erf, [*sample(-6, 6), *near(0.0, 1.0)]),
    "erfc": (mp.erfc, [*sample(-6, 26.5), *near(0.0, 0.5, 1.0)]),
    "erfinv": (erfinv, [*sample(-1 + 1e-12, 1 - 1e-12), *(x for x in near(0.0, 1.0, 0.5) if abs(x) < 1)]),
    "lgamma": (lgamma, [*sample(1e-9, 200), *near(1.0, 2.0, 8.0), 1e30, -1e-300, -0.5, 1e-308]),
    "digamma": (mp.digamma, [*sample(2, 200), *near(8.0), 0.25, 1e30, -0.25, -1e-300, -3.75]),
}
PAIRS: dict[str, tuple[Callable[..., Any], list[tuple[float, float]]]] = {
    "pow": (
        lambda x, y: mp.mpf(x) ** mp.mpf(y),
        [(b, e) for b, e in zip(sample(0.01, 100), sample(-150, 150), strict=False)]
        + [(1 + RANDOM.uniform(-0.01, 0.01), RANDOM.uniform(-60000, 60000)) for _ in range(COUNT)],
    ),
    "atan2": (mp.atan2, [*zip(anywhere(), anywhere(), strict=True), *zip(sample(-5, 5), sample(-5, 5), strict=False)]),
    "hypot": (mp.hypot, [*zip(anywhere(), anywhere(), strict=True), *zip(sample(-5, 5), sample(-5, 5), strict=False)]),
}


def main() -> None:
    """Write the file."""
    table: dict[str, list[list[str]]] = {}
    for name, (function, arguments) in RANGES.items():
        mp.mp.dps = 400 if function in (mp.sin, mp.cos, mp.tan) else 50
        table[name] = [[x.hex(), float(function(mp.mpf(x))).hex()] for x in arguments]
    mp.mp.dps = 50
    for name, (function, pairs) in PAIRS.items():
        rows = [(x, y, float(function(mp.mpf(x), mp.mpf(y)))) for x, y in pairs]
        table[name] = [[v.hex() for v in row] for row in rows if math.isfinite(row[2])]
    lines = ",\n".join(f'"{name}": {json.dumps(rows)}' for name, rows in table.items())
    OUTPUT.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
