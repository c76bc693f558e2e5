"""Derives the polynomials of hidet.cpu.math and writes hidet/cpu/math/coefficients.py.

Each polynomial of polynomials.py is computed with 50 digits by remez.py, and rounded to f32 or f64 at the end. "single"
polynomials are for f32 arithmetic, "short" ones for f64 arithmetic whose result is rounded to f32, "double" ones for
f64 results.

    python packages/hidet-cpu/tools/derive_coefficients.py          write the file
    python packages/hidet-cpu/tools/derive_coefficients.py exp      print the rows of one function

Needs mpmath.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import mpmath as mp  # type: ignore[import-untyped]  # it has no type hints
from polynomials import Polynomial, polynomials
from remez import Number, remez

OUTPUT = Path(__file__).parents[1] / "src" / "hidet" / "cpu" / "math" / "coefficients.py"

HEADER = '''"""Constants and minimax polynomials, lowest power first, written by tools/derive_coefficients.py.

"single" rows serve f32 arithmetic, "short" rows f64 arithmetic whose result is rounded to f32, "double" rows f64
results. Errors of polynomials are relative to the result of the function.
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, tuple[float, ...]]
'''


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
