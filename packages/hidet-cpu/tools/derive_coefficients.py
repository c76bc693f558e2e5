"""Derives the polynomials of hidet.cpu.math and writes hidet/cpu/math/coefficients.py.

Each polynomial is the minimax approximation of a function by the exchange algorithm (Remez 1934), computed with 50
digits and rounded to f32 or f64 at the end. "single" polynomials are for f32 arithmetic, "short" ones for f64
arithmetic whose result is rounded to f32, "double" ones for f64 results.

    python packages/hidet-cpu/tools/derive_coefficients.py          write the file
    python packages/hidet-cpu/tools/derive_coefficients.py exp      print the rows of one function

Needs mpmath.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]  # it has no type hints

Number = Any
Function = Callable[[Number], Number]

OUTPUT = Path(__file__).parents[1] / "src" / "hidet" / "cpu" / "math" / "coefficients.py"
TINY = mp.mpf(10) ** -18

HEADER = '''"""Constants and minimax polynomials, lowest power first, written by tools/derive_coefficients.py.

"single" rows serve f32 arithmetic, "short" rows f64 arithmetic whose result is rounded to f32, "double" rows f64
results. Errors of polynomials are relative to the result of the function.
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, tuple[float, ...]]
'''


@dataclass(frozen=True)
class Polynomial:
    """A polynomial p(x) close to `function` on an interval: max |weight * (p - function)| is minimal.

    degrees: degree of the polynomial of each level. doc: what the polynomial is, in the code's terms.
    """

    name: str
    doc: str
    function: Function
    weight: Function
    interval: tuple[Number, Number]
    degrees: dict[str, int]


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


def with_limit(function: Function, limit: Number) -> Function:
    """`function`, and `limit` near zero where it cannot be evaluated."""
    return lambda x: mp.mpf(limit) if abs(x) < TINY else function(x)


def of_square(function: Function) -> Function:
    """`function` of sqrt(z)."""
    return lambda z: function(mp.sqrt(abs(z)))


def power_weight(power: int, scale: Number = 1) -> Function:
    """|x|^power * scale, kept above zero."""
    return lambda x: abs(x) ** power * scale + mp.mpf(10) ** -9


def constant_weight(value: Number = 1) -> Function:
    return lambda _: mp.mpf(value)


def reciprocal(function: Function) -> Function:
    return lambda x: 1 / function(x)


def erfc_scaled(u: Number) -> Number:
    """(1 + 2x) exp(x^2) erfc(x) at x = 3 (1 + u) / (1 - u)."""
    x = 3 * (1 + u) / (1 - u)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def inverse_erf_over_x(w: Number) -> Number:
    """erfinv(x) / x at x = sqrt(1 - exp(-w))."""
    if w < TINY:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    complement = mp.exp(-w) / (1 + x)
    y = mp.erfinv(x) if x < 0.9 else mp.sqrt(w)
    for _ in range(100):
        error = mp.erfc(y) - complement
        step = error / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))
        step = step / (1 - y * step) if abs(y * step) < 0.5 else step / (2 * abs(y * step))
        y += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return y / x


def _stirling(u: Number) -> Number:
    x = 1 / mp.sqrt(u)
    return (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2) * x


def _digamma_tail(u: Number) -> Number:
    x = 1 / mp.sqrt(u)
    return (mp.digamma(x) - mp.log(x) + 1 / (2 * x)) / u


def polynomials() -> list[Polynomial]:
    """Every polynomial of the package."""
    ln2, pi = mp.log(2), mp.pi
    half_ln2 = ln2 / 2 * mp.mpf("1.002")
    quarter = pi / 4 * mp.mpf("1.001")
    log_low, log_high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
    s_square = (log_high / (2 + log_high)) ** 2
    eighth = mp.mpf(1) / 8
    third = mp.mpf(1) / 3
    tenth_pi = mp.tan(pi / 8) ** 2

    def erf_near(z: Number) -> Number:
        return 2 / mp.sqrt(pi) - 1 if z < TINY else mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    def log2_erfc(t: Number) -> Number:
        return mp.log(mp.erfc(t)) / ln2

    def far_inverse(s: Number) -> Number:
        return inverse_erf_over_x(s * s)

    return [
        Polynomial(
            "EXP",
            "(exp(r) - 1 - r) / r^2, |r| <= ln(2) / 2",
            with_limit(lambda r: (mp.expm1(r) - r) / r**2, mp.mpf(1) / 2),
            power_weight(1),
            (-half_ln2, half_ln2),
            {"single": 4, "short": 5, "double": 10},
        ),
        Polynomial(
            "EXP2",
            "(2^f - 1) / f, |f| <= 1/2",
            with_limit(lambda f: (2**f - 1) / f, ln2),
            constant_weight(mp.mpf(1) / 2),
            (-0.5, 0.5),
            {"single": 5, "short": 6, "double": 11},
        ),
        Polynomial(
            "LOG",
            "(log(1 + f) - f + f^2 / 2) / f^3, 1 + f from sqrt(1/2) to sqrt(2)",
            with_limit(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, third),
            power_weight(2),
            (log_low, log_high),
            {"single": 8},
        ),
        Polynomial(
            "LOG_QUOTIENT",
            "(log((1 + s) / (1 - s)) - 2 s) / s^3 over s^2, s as of (1 + s) / (1 - s) = sqrt(2)",
            with_limit(of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3), 2 * third),
            power_weight(1, mp.mpf(1) / 2),
            (0, s_square),
            {"short": 3, "double": 6},
        ),
        Polynomial(
            "LOG_TAIL",
            "(3 atanh(s) / s - 3 - s^2) / s^4 over s^2, for the power function",
            with_limit(of_square(lambda s: (3 * mp.atanh(s) / s - 3 - s**2) / s**4), mp.mpf(3) / 5),
            power_weight(2, third),
            (0, s_square),
            {"double": 6},
        ),
        Polynomial(
            "SIN",
            "(sin(r) - r) / r^3 over r^2, |r| <= pi / 4",
            with_limit(of_square(lambda r: (mp.sin(r) - r) / r**3), -mp.mpf(1) / 6),
            power_weight(1),
            (0, quarter**2),
            {"short": 3, "double": 5},
        ),
        Polynomial(
            "COS",
            "(cos(r) - 1 + r^2 / 2) / r^4 over r^2, |r| <= pi / 4",
            with_limit(of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), mp.mpf(1) / 24),
            power_weight(2),
            (0, quarter**2),
            {"short": 2, "double": 5},
        ),
        Polynomial(
            "SIN_PI",
            "sin(pi f) / f over f^2, |f| <= 1/2",
            with_limit(of_square(lambda f: mp.sin(pi * f) / f), pi),
            constant_weight(mp.mpf(1) / 2),
            (0, 0.25),
            {"double": 8},
        ),
        Polynomial(
            "COS_PI",
            "cos(pi f) over f^2, |f| <= 1/2",
            of_square(lambda f: mp.cos(pi * f)),
            constant_weight(),
            (0, 0.25),
            {"double": 9},
        ),
        Polynomial(
            "ATAN",
            "(atan(t) - t) / t^3 over t^2, |t| <= tan(pi / 8)",
            with_limit(of_square(lambda t: (mp.atan(t) - t) / t**3), -third),
            power_weight(1),
            (0, tenth_pi),
            {"short": 5, "double": 11},
        ),
        Polynomial(
            "ASIN",
            "(asin(t) - t) / t^3 over t^2, |t| <= 1/2",
            with_limit(of_square(lambda t: (mp.asin(t) - t) / t**3), mp.mpf(1) / 6),
            power_weight(1),
            (0, 0.25),
            {"short": 5, "double": 12},
        ),
        Polynomial(
            "TANH",
            "(tanh(x) - x) / x^3 over x^2, |x| <= 3/4",
            with_limit(of_square(lambda x: (mp.tanh(x) - x) / x**3), -third),
            power_weight(1),
            (0, mp.mpf(9) / 16),
            {"single": 5},
        ),
        Polynomial(
            "ERF",
            "erf(x) / x - 1 over x^2, |x| <= 1",
            erf_near,
            constant_weight(),
            (0, 1),
            {"single": 6, "short": 7, "double": 12},
        ),
        Polynomial(
            "LOG2_ERFC",
            "log2(erfc(x)), x from 7/8 to 4",
            log2_erfc,
            lambda t: ln2 * mp.erfc(t) / mp.erf(t),
            (7 * eighth, 4),
            {"single": 7},
        ),
        Polynomial(
            "ERFC",
            "(1 + 2x) exp(x^2) erfc(x) over u = (x - 3) / (x + 3), x from 1/2 to 28",
            erfc_scaled,
            reciprocal(erfc_scaled),
            (mp.mpf(-5) / 7, mp.mpf(25) / 31),
            {"short": 12, "double": 22},
        ),
        Polynomial(
            "ERFINV_NEAR",
            "erfinv(x) / x over w - 5/2, w = -log(1 - x^2) from 0 to 5",
            lambda u: inverse_erf_over_x(abs(u + mp.mpf(5) / 2)),
            lambda u: 1 / inverse_erf_over_x(abs(u + mp.mpf(5) / 2)),
            (mp.mpf(-5) / 2, mp.mpf(5) / 2),
            {"short": 10, "double": 22},
        ),
        Polynomial(
            "ERFINV_MIDDLE",
            "erfinv(x) / x over sqrt(w) - 3, w from 5 to 16.8",
            lambda u: far_inverse(u + 3),
            lambda u: 1 / far_inverse(u + 3),
            (mp.sqrt(5) - 3, mp.sqrt(mp.mpf("16.8")) - 3),
            {"short": 10, "double": 21},
        ),
        Polynomial(
            "ERFINV_FAR",
            "erfinv(x) / x over sqrt(w) - 5, w from 16 to 37",
            lambda u: far_inverse(u + 5),
            lambda u: 1 / far_inverse(u + 5),
            (mp.mpf(-1), mp.sqrt(37) - 5),
            {"double": 18},
        ),
        Polynomial(
            "LGAMMA",
            "lgamma(2 + z) / z, |z| <= 1/2",
            with_limit(lambda z: mp.loggamma(2 + z) / z, 1 - mp.euler),
            constant_weight(),
            (-0.5, 0.5),
            {"double": 18},
        ),
        Polynomial(
            "STIRLING",
            "(lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) x over 1 / x^2, x >= 8",
            with_limit(_stirling, mp.mpf(1) / 12),
            constant_weight(eighth**2),
            (mp.mpf(10) ** -12, eighth**2),
            {"double": 6},
        ),
        Polynomial(
            "DIGAMMA",
            "(digamma(x) - log(x) + 1 / (2 x)) x^2 over 1 / x^2, x >= 8",
            with_limit(_digamma_tail, -mp.mpf(1) / 12),
            constant_weight(eighth**2),
            (mp.mpf(10) ** -12, eighth**2),
            {"double": 6},
        ),
    ]


def rounded(coefficients: list[Number], level: str) -> tuple[float, ...]:
    """Coefficients in the arithmetic of a level, as Python floats."""
    if level != "single":
        return tuple(float(c) for c in coefficients)
    return tuple(struct.unpack("<f", struct.pack("<f", float(c)))[0] for c in coefficients)


def derive(polynomial: Polynomial, level: str) -> tuple[tuple[float, ...], float]:
    """Rounded coefficients of one row, and the base-2 logarithm of its error before rounding."""
    coefficients, error = remez(polynomial.function, polynomial.weight, *polynomial.interval, polynomial.degrees[level])
    return rounded(coefficients, level), float(mp.log(error, 2))


def leading_bits(value: Number, bits: int) -> Number:
    """`value` rounded to `bits` significant bits."""
    exponent = mp.floor(mp.log(value, 2)) + 1 - bits
    return mp.nint(mp.ldexp(value, -int(exponent))) * mp.mpf(2) ** exponent


def two_parts(value: Number, bits: int, level: str) -> tuple[float, ...]:
    """(leading bits of value, the rest), both of a level's arithmetic."""
    high = leading_bits(value, bits)
    return rounded([high, value - high], level)


def digits_of(value: Number, first_bit: int, bits: int) -> Number:
    """The bits of a fraction from number `first_bit` (1 is worth 1/2) on, as an integer of `bits` bits."""
    return mp.floor(mp.ldexp(value, first_bit - 1 + bits)) % 2**bits


def constants() -> list[tuple[str, str, dict[str, tuple[float, ...]]]]:
    """(name, what it is, rows) of the constants that need more digits than a float has."""
    # Products with an exponent of 8 (f32) or 11 (f64) bits are exact when this many bits are left.
    exact = {"single": 15, "short": 41, "double": 41}
    full = {"short": 53, "double": 53}
    ln2, log10_2 = mp.log(2), mp.log(2) / mp.log(10)
    turn = 1 / (2 * mp.pi)
    short_digits = [float(mp.ldexp(digits_of(turn, 29 * k + 1, 29), -29 * (k + 1))) for k in range(5)]
    short_tails = [float(mp.frac(mp.ldexp(turn, 29 * (k + 2))) * mp.mpf(2) ** (-29 * (k + 2))) for k in range(4)]
    table = [float(mp.ldexp(digits_of(turn, 26 * m + 1, 52), -52)) for m in range(44)]
    return [
        ("LN2", "log(2) as a short number and the rest", {k: two_parts(ln2, n, k) for k, n in exact.items()}),
        ("LOG2_E", "log2(e) in two parts", {k: two_parts(1 / ln2, n, k) for k, n in full.items()}),
        ("TWO_LOG2_E", "2 log2(e) in two parts", {"single": two_parts(2 / ln2, 24, "single")}),
        ("LOG10_E", "log10(e) in two parts", {k: two_parts(1 / mp.log(10), n, k) for k, n in full.items()}),
        (
            *("LOG10_2", "log10(2) as a short number and the rest"),
            {k: two_parts(log10_2, exact[k], k) for k in ("short", "double")},
        ),
        ("TWO_PI", "2 pi in two parts", {"double": two_parts(2 * mp.pi, 53, "double")}),
        ("HALF_PI", "pi / 2 in two parts", {k: two_parts(mp.pi / 2, 53, k) for k in ("short", "double")}),
        (
            "INVERSE_TWO_PI",
            "1 / (2 pi): 29 bits an entry; what follows the second of each pair of entries; 52 bits at every 26th",
            {"short": tuple(short_digits), "short_tail": tuple(short_tails), "double": tuple(table)},
        ),
    ]


def render_constant(name: str, doc: str, rows: dict[str, tuple[float, ...]]) -> str:
    """One table of constants as Python source."""
    lines = [f"# {doc}", f"{name}: Table = {{"]
    for level, values in rows.items():
        lines += _row(level, values)
    return "\n".join([*lines, "}"])


def render(polynomial: Polynomial) -> str:
    """One table as Python source."""
    lines = [f"# {polynomial.doc}", f"{polynomial.name}: Table = {{"]
    for level in polynomial.degrees:
        coefficients, error = derive(polynomial, level)
        lines += [f"    # error 2^{error:.1f}", *_row(level, coefficients)]
    return "\n".join([*lines, "}"])


def _row(level: str, values: tuple[float, ...]) -> list[str]:
    """One entry of a table, laid out as `ruff format` does."""
    words = [repr(value) for value in values]
    line = f'    "{level}": ({", ".join(words)}),'
    return [line] if len(line) <= 120 else [f'    "{level}": (', *_wrapped(words), "    ),"]


def _wrapped(words: list[str]) -> list[str]:
    """The numbers of one row, a few a line, each line its own unpacked tuple."""
    lines = []
    while words:
        taken = 0
        while taken < len(words) and len(", ".join(words[: taken + 1])) <= 100:
            taken += 1
        lines.append(f"        *({', '.join(words[:taken])}{',' if taken == 1 else ''}),")
        words = words[taken:]
    return lines


def main() -> None:
    """Write the file, or print the tables whose names are given."""
    # 1 / (2 pi) is needed to 1250 bits; everything else is content with far fewer.
    mp.mp.dps = 400
    fixed = [render_constant(*row) for row in constants()]
    mp.mp.dps = 50
    wanted = {name.upper() for name in sys.argv[1:]}
    chosen = [p for p in polynomials() if not wanted or p.name in wanted]
    text = "\n".join(render(p) for p in chosen)
    if wanted:
        print(text)
    else:
        OUTPUT.write_text("\n".join([HEADER, *fixed, text, ""]))


if __name__ == "__main__":
    main()
