"""Writes `hidet/operators/special_coefficients.py`: polynomials of the special functions, by interpolation at 60 digits.

    python packages/hidet-core/tools/special_coefficients.py > packages/hidet-core/src/hidet/operators/special_coefficients.py

Each polynomial interpolates at Chebyshev points, in a variable that goes from -1 to 1 over its interval; its degree is
the least at which halfway points are met within 2e-17 of the largest value. It is written by powers: pieces are short
enough for these coefficients to stay near the values. Series with positive terms are cut where they no longer count.
"""

from __future__ import annotations

# ruff: noqa: E501
from collections.abc import Callable
from typing import Any

import mpmath as mp

Number = Any
Function = Callable[[Number], Number]

mp.mp.dps = 60
_GOAL = mp.mpf(2) ** -55


def fitted(function: Function, low: Number, high: Number) -> list[Number]:
    """Coefficients, lowest power first, over t = (2 x - (low + high)) / (high - low)."""
    low, high = mp.mpf(low), mp.mpf(high)

    def at(t: Number) -> Number:
        return function((low + high) / 2 + t * (high - low) / 2)

    for count in range(6, 64):
        nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
        values = [at(t) for t in nodes]
        series = []
        for j in range(count):
            total = mp.fsum(v * mp.cos(mp.pi * j * (2 * k + 1) / (2 * count)) for k, v in enumerate(values))
            series.append(total * (1 if j == 0 else 2) / count)
        size = max(abs(v) for v in values)
        probes = [mp.cos(mp.pi * (k + mp.mpf(1) / 3) / 17) for k in range(17)]
        if all(abs(_chebyshev(series, t) - at(t)) < _GOAL * size for t in probes):
            return _by_powers(series)
    raise ArithmeticError(f"no polynomial over [{low}, {high}]")


def _chebyshev(series: list[Number], t: Number) -> Number:
    return mp.fsum(c * mp.cos(j * mp.acos(t)) for j, c in enumerate(series))


def _by_powers(series: list[Number]) -> list[Number]:
    before, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * len(series)
    for c in series:
        for k, a in enumerate(before):
            total[k] += c * a
        following = [mp.mpf(0), *(2 * a for a in current)]
        for k, a in enumerate(before):
            following[k] -= a
        before, current = current, following
    return total


def cut(term: Function, most: Number) -> list[Number]:
    """Coefficients of a series of positive terms in u <= most, as far as they count there."""
    terms: list[Number] = []
    total = mp.mpf(0)
    while len(terms) < 4 or terms[-1] * mp.mpf(most) ** (len(terms) - 1) > _GOAL / 16 * total:
        terms.append(term(len(terms)))
        total += terms[-1] * mp.mpf(most) ** (len(terms) - 1)
    return terms


def _harmonic(k: int) -> Number:
    return mp.fsum(mp.mpf(1) / j for j in range(1, k + 1))


def _phase(order: int, shift: Number, is_second: bool) -> Function:
    """Of v = 8 / x: the factors P, and Q x / 8, of cosine and sine in J and Y of an order, for x >= 8."""

    def value(v: Number) -> Number:
        if v == 0:
            return (4 * mp.mpf(order) ** 2 - 1) / 64 if is_second else mp.mpf(1)
        x = 8 / v
        cosine, sine = mp.cos(x - shift), mp.sin(x - shift)
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        root = mp.sqrt(mp.pi * x / 2)
        return root * (y * cosine - j * sine) / v if is_second else root * (j * cosine + y * sine)

    return value


def _square(function: Function) -> Function:
    return lambda w: function(mp.sqrt(abs(w)))


def _at_infinity(function: Function, limit: Number) -> Function:
    """`function(x)` of u = 1 / x."""
    return lambda u: mp.mpf(limit) if u < mp.mpf(10) ** -40 else function(1 / u)


def _airy_phase(is_second: bool) -> Function:
    """Of w = 1 / z^2, z = 2/3 x^1.5: the factors of Ai(-x) = (P sin(z + pi/4) - Q cos(z + pi/4)) / (sqrt(pi) x^0.25)."""

    def value(w: Number) -> Number:
        if w < mp.mpf(10) ** -25:
            w = mp.mpf(10) ** -25
        z = 1 / mp.sqrt(w)
        x = (3 * z / 2) ** (mp.mpf(2) / 3)
        root = mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
        ai, bi = root * mp.airyai(-x), root * mp.airybi(-x)
        angle = z + mp.pi / 4
        return (
            (-ai * mp.cos(angle) - (-bi) * mp.sin(angle)) * z if is_second else ai * mp.sin(angle) + bi * mp.cos(angle)
        )

    return value


def _airy_tail(u: Number) -> Number:
    """2 sqrt(pi) x^0.25 exp(z) Ai(x) of u = 1 / z."""
    if u < mp.mpf(10) ** -40:
        return mp.mpf(1)
    x = (3 / (2 * u)) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * x ** mp.mpf("0.25") * mp.exp(1 / u) * mp.airyai(x)


def _erfcx(x: Number) -> Number:
    return mp.exp(x * x) * mp.erfc(x)


def _normal_tail(u: Number) -> Number:
    """x of the normal distribution's upper tail y = exp(-r^2 / 2), minus r, of u = 1 / r."""
    r = 1 / u
    goal = -r * r / 2
    return mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2) - goal, r - mp.log(r) / r - 1 / r) - r


def _normal_centre(w: Number) -> Number:
    """ndtri(1/2 + q) / q of w = q^2."""
    q = mp.sqrt(w) if w > mp.mpf(10) ** -40 else mp.mpf(10) ** -20
    return mp.sqrt(2) * mp.erfinv(2 * q) / q


def tables() -> dict[str, tuple[str, list[Number]]]:
    """Name -> what it is, coefficients."""
    half_pi, gamma = mp.pi / 2, mp.euler
    found: dict[str, tuple[str, list[Number]]] = {}
    factorial = mp.factorial
    found["I0_SERIES"] = ("I0(x) in x^2 / 4, x <= 8", cut(lambda k: 1 / factorial(k) ** 2, 16))
    found["I1_SERIES"] = ("I1(x) 2 / x in x^2 / 4, x <= 8", cut(lambda k: 1 / (factorial(k) * factorial(k + 1)), 16))
    for n in (0, 1):
        found[f"I{n}_TAIL"] = (
            f"exp(-x) sqrt(x) I{n}(x) over 1 / x in [0, 1/8]",
            fitted(
                _at_infinity(lambda x, n=n: mp.exp(-x) * mp.sqrt(x) * mp.besseli(n, x), 1 / mp.sqrt(2 * mp.pi)),
                0,
                "0.125",
            ),
        )
        found[f"K{n}_MIDDLE"] = (
            f"exp(x) sqrt(x) K{n}(x) over x in [1, 4]",
            fitted(lambda x, n=n: mp.exp(x) * mp.sqrt(x) * mp.besselk(n, x), 1, 4),
        )
        found[f"K{n}_TAIL"] = (
            f"exp(x) sqrt(x) K{n}(x) over 1 / x in [0, 1/4]",
            fitted(_at_infinity(lambda x, n=n: mp.exp(x) * mp.sqrt(x) * mp.besselk(n, x), mp.sqrt(half_pi)), 0, "0.25"),
        )
    found["K0_SERIES"] = (
        "K0(x) + ln(x / 2) I0(x) in x^2 / 4, x <= 1",
        [-gamma, *cut(lambda k: (_harmonic(k + 1) - gamma) / factorial(k + 1) ** 2, "0.25")],
    )
    found["K1_SERIES"] = (
        "(K1(x) - 1 / x - ln(x / 2) I1(x)) (-4 / x) in x^2 / 4, x <= 1",
        [
            1 - 2 * gamma,
            *cut(lambda k: (mp.psi(0, k + 2) + mp.psi(0, k + 3)) / (factorial(k + 1) * factorial(k + 2)), "0.25"),
        ],
    )
    for n in (0, 1):
        shift = mp.pi / 4 + n * half_pi
        for name, low, high in (("NEAR", 0, 4), ("MIDDLE", 4, 8)):
            if n and not low:
                # Its zero is divided out, so that the relative error stays small beside it.
                divided = fitted(lambda x: mp.besselj(1, x) / x if x else mp.mpf("0.5"), low, high)
                found["J1_NEAR"] = (f"J1(x) / x over [{low}, {high}]", divided)
            else:
                found[f"J{n}_{name}"] = (
                    f"J{n}(x) over [{low}, {high}]",
                    fitted(lambda x, n=n: mp.besselj(n, x), low, high),
                )

            def rest(x: Number, n: int = n) -> Number:
                x = max(x, mp.mpf(10) ** -30)
                whole = mp.bessely(n, x) - 2 / mp.pi * mp.log(x) * mp.besselj(n, x)
                return whole + 2 / (mp.pi * x) if n else whole

            text = f"Y{n}(x) - 2 / pi ln(x) J{n}(x){' + 2 / (pi x)' if n else ''} over [{low}, {high}]"
            found[f"Y{n}_{name}"] = (text, fitted(rest, low, high))
        found[f"BESSEL{n}_P"] = (
            f"P of order {n} over (8 / x)^2 in [0, 1]",
            fitted(_square(_phase(n, shift, False)), 0, 1),
        )
        found[f"BESSEL{n}_Q"] = (
            f"Q x / 8 of order {n} over (8 / x)^2 in [0, 1]",
            fitted(_square(_phase(n, shift, True)), 0, 1),
        )
    for name, low, high in (("FAR", -6, -4), ("LEFT", -4, -1), ("CENTRE", -1, 2)):
        found[f"AIRY_{name}"] = (f"Ai(x) over [{low}, {high}]", fitted(mp.airyai, low, high))
    least = mp.mpf(2) / 3 * mp.mpf(6) ** mp.mpf("1.5")
    found["AIRY_P"] = ("P of Ai(-x) over 1 / z^2, z = 2/3 x^1.5, x >= 6", fitted(_airy_phase(False), 0, 1 / least**2))
    found["AIRY_Q"] = ("Q z of Ai(-x), as P", fitted(_airy_phase(True), 0, 1 / least**2))
    start = mp.mpf(2) / 3 * mp.mpf(2) ** mp.mpf("1.5")
    found["AIRY_TAIL"] = ("2 sqrt(pi) x^0.25 exp(z) Ai(x) over 1 / z, x >= 2", fitted(_airy_tail, 0, 1 / start))
    found["ERFCX_NEAR"] = ("exp(x^2) erfc(x) over [0, 1]", fitted(_erfcx, 0, 1))
    found["ERFCX_MIDDLE"] = ("exp(x^2) erfc(x) over [1, 3]", fitted(_erfcx, 1, 3))
    found["ERFCX_FAR"] = (
        "x exp(x^2) erfc(x) over (3 / x)^2 in [0, 1], x >= 3",
        fitted(
            lambda w: 1 / mp.sqrt(mp.pi) if w < mp.mpf(10) ** -30 else (lambda x: x * _erfcx(x))(3 / mp.sqrt(w)), 0, 1
        ),
    )
    found["NDTRI_CENTRE"] = ("ndtri(1/2 + q) / q over q^2 in [0, 0.14]", fitted(_normal_centre, 0, "0.14"))
    found["NDTRI_NEAR"] = ("x - r over 1 / r in [1/4, 1/2]", fitted(_normal_tail, "0.25", "0.5"))
    found["NDTRI_MIDDLE"] = ("x - r over 1 / r in [1/9, 1/4]", fitted(_normal_tail, mp.mpf(1) / 9, "0.25"))
    found["NDTRI_FAR"] = ("x - r over 1 / r in [1/39, 1/9]", fitted(_normal_tail, mp.mpf(1) / 39, mp.mpf(1) / 9))
    found["ZETA_TERMS"] = (
        "B_2j / (2 j)!, j = 1 to 12",
        [mp.bernoulli(2 * j) / factorial(2 * j) for j in range(1, 13)],
    )
    return found


def main() -> None:
    """Print the module."""
    print(
        '"""Polynomials of the special functions, lowest power first, in t from -1 to 1 over the interval named or, where'
    )
    print('none is, in the variable itself. Written by packages/hidet-core/tools/special_coefficients.py."""')
    print("\nfrom __future__ import annotations\n\n# ruff: noqa: E501")
    for name, (text, numbers) in tables().items():
        print(f"\n# {text}\n{name} = (")
        for start in range(0, len(numbers), 4):
            row = [repr(float(number)) for number in numbers[start : start + 4]]
            print(f"    *({', '.join(row)}{',' if len(row) == 1 else ''}),")
        print(")")


if __name__ == "__main__":
    main()
