"""Floor division, ceiling division and remainder, simplified as far as divisibility and ranges allow.

Semantics are Python's: the quotient is rounded towards minus infinity, the remainder is not negative. The divisor must
be provably positive. Everything rests on one identity: floordiv(q * b + r, b) == q + floordiv(r, b) for integers q, r;
a dividend is split into such a q, as large as possible, and a rest.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from hidet.dims.expr import (
    Coefficient,
    Dim,
    DimExpr,
    FloorDiv,
    Mod,
    Monomial,
    add,
    atom_dim,
    bounds,
    dim_from_terms,
    multiply,
    term_divisibility,
)
from hidet.errors import ShapeError, SizeDivisionError

MAX_DIVISION_STEPS = 64


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b. Raises ShapeError when b is not provably positive."""
    _require_positive(a, b, "floordiv")
    return floordiv_unchecked(a, b)


def floordiv_unchecked(a: Dim, b: Dim) -> Dim:
    """floordiv for a divisor that is known to be positive, whether or not its bounds show it.

    Raises SizeDivisionError when its bounds show that it never is.
    """
    _require_possible(a, b, "floordiv")
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        return a if b == 1 else _floordiv_by_constant(a, b)
    constant = _constant_quotient(a, b)
    if constant is not None:
        return constant
    quotient, rest = _split(a, b)
    constant = _constant_quotient(rest, b)
    if constant is not None:
        return add(quotient, constant)
    numerator, denominator = _cancel(rest, b)
    if denominator != b:
        return add(quotient, floordiv_unchecked(numerator, denominator))
    if isinstance(rest, DimExpr):
        inner = _single_quotient(rest)
        if inner is not None:
            return add(quotient, _merge_quotients(inner, rest.constant, b))
    return add(quotient, atom_dim(FloorDiv(rest, b)))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """The quotient rounded towards plus infinity, as floordiv(a + b - 1, b).

    Raises ShapeError when b is not provably positive.
    """
    return floordiv(add(add(a, b), -1), b)


def mod(a: Dim, b: Dim) -> Dim:
    """a % b, at least 0 and below b. Raises ShapeError when b is not provably positive."""
    _require_positive(a, b, "mod")
    return mod_unchecked(a, b)


def mod_unchecked(a: Dim, b: Dim) -> Dim:
    """mod for a divisor that is known to be positive, whether or not its bounds show it.

    Raises SizeDivisionError when its bounds show that it never is.
    """
    _require_possible(a, b, "mod")
    if isinstance(b, int):
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else _mod_by_constant(a, b)
    _, rest = _split(a, b)
    for candidate in (a, rest):
        constant = _constant_quotient(candidate, b)
        if constant is not None:
            return add(candidate, multiply(b, -constant))
    return atom_dim(Mod(rest, b))


def _require_possible(a: Dim, b: Dim, operation: str) -> None:
    upper = bounds(b)[1]
    if upper is not None and upper < 1:
        raise SizeDivisionError(
            f"{operation}({a}, {b}): the divisor must be positive, and it is at most {upper}",
            hint="a size that is divided by is zero for all inputs: look at the shapes that it is made of",
        )


def _require_positive(a: Dim, b: Dim, operation: str) -> None:
    lower = bounds(b)[0]
    if lower is not None and lower >= 1:
        return
    from hidet.dims.prove import prove_lt

    if not isinstance(b, int) and prove_lt(0, b):
        return
    raise ShapeError(
        f"{operation}({a}, {b}): the divisor must be positive for every value of its symbols, "
        f"and its known lower bound is {'none' if lower is None else lower}",
        hint="give the symbols in the divisor a lower bound, e.g. Symbol(name, lower=1)",
    )


def _floordiv_by_constant(a: DimExpr, c: int) -> Dim:
    constant = _constant_quotient(a, c)
    if constant is not None:
        return constant
    quotient: dict[Monomial, Coefficient] = {}
    rest: dict[Monomial, Coefficient] = {}
    common = c
    for monomial, coefficient in a.terms:
        known = term_divisibility(monomial, coefficient)
        if known % c == 0:
            quotient[monomial] = coefficient_quotient(coefficient, c)
            continue
        # A multiple of `period` rounded towards zero, so that quotient and rest keep the sign of the term and their
        # bounds stay tight.
        period = _period(monomial, c)
        whole = abs(coefficient.numerator) // (coefficient.denominator * period) * period
        if coefficient < 0:
            whole = -whole
        if whole:
            quotient[monomial] = coefficient_quotient(whole, c)
        rest[monomial] = coefficient - whole
        common = gcd(common, known)
    whole_constant, left_over = divmod(a.constant, c)
    # The terms of the rest are multiples of `common`, and so is c: what `left_over` exceeds such a multiple by is lost.
    numerator = dim_from_terms(rest, left_over - left_over % common)
    result = dim_from_terms(quotient, whole_constant)
    if isinstance(numerator, int):
        return add(result, numerator // c)
    constant = _constant_quotient(numerator, c)
    if constant is not None:
        return add(result, constant)
    shared = shared_factor(numerator, c)
    if shared > 1:
        numerator, c = divide_exactly(numerator, shared), c // shared
    inner = _single_quotient(numerator)
    if inner is not None:
        return add(result, _merge_quotients(inner, numerator.constant, c))
    return add(result, atom_dim(FloorDiv(numerator, c)))


def _mod_by_constant(a: DimExpr, c: int) -> Dim:
    constant = _constant_quotient(a, c)
    if constant is not None:
        return add(a, -c * constant)
    rest: dict[Monomial, Coefficient] = {}
    opened: list[Dim] = []
    common = c
    for monomial, coefficient in a.terms:
        known = term_divisibility(monomial, coefficient)
        if known % c == 0:
            continue
        inner = monomial[0] if len(monomial) == 1 else None
        if isinstance(inner, Mod) and isinstance(inner.modulus, int) and coefficient * inner.modulus % c == 0:
            opened.append(multiply(inner.value, int(coefficient)))
            continue
        # The representative in (-period/2, period/2].
        period = _period(monomial, c)
        rest[monomial] = coefficient + period * ((period - 2 * coefficient) // (2 * period))
        common = gcd(common, known)
    value = dim_from_terms(rest, a.constant % c)
    if opened:
        for part in opened:
            value = add(value, part)
        return mod_unchecked(value, c)
    if isinstance(value, int):
        return value % c
    constant = _constant_quotient(value, c)
    if constant is not None:
        return add(value, -c * constant)
    # All terms and c are multiples of `common`: the rest of the constant passes through the remainder unchanged.
    passing = value.constant % common
    value = DimExpr(value.terms, value.constant - passing)
    shared = gcd(shared_factor(value, c), value.constant)
    if shared > 1:
        remainder = mod_unchecked(divide_exactly(value, shared), c // shared)
        return add(multiply(remainder, shared), passing)
    return add(atom_dim(Mod(value, c)), passing)


def _constant_quotient(a: Dim, b: Dim) -> int | None:
    """floordiv(a, b) when ranges show that it is one known number."""
    if isinstance(b, int):
        lower, upper = bounds(a)
        if lower is not None and upper is not None and lower // b == upper // b:
            return lower // b
        return None
    for quotient in (0, -1):
        rest = add(a, multiply(b, -quotient))
        lower = bounds(rest)[0]
        if lower is not None and lower >= 0:
            distance = bounds(add(b, multiply(rest, -1)))[0]
            if distance is not None and distance >= 1:
                return quotient
    return None


def coefficient_quotient(coefficient: Coefficient, divisor: int) -> Coefficient:
    """coefficient / divisor, an int where possible."""
    if isinstance(coefficient, int) and coefficient % divisor == 0:
        return coefficient // divisor
    return Fraction(coefficient) / divisor


def shared_factor(a: DimExpr, other: int) -> int:
    """The greatest common divisor of the coefficients' numerators and `other`; the constant does not count."""
    return gcd(other, *(coefficient.numerator for _, coefficient in a.terms))


def divide_exactly(a: DimExpr, factor: int) -> DimExpr:
    """a / factor for a factor that all coefficients share; the constant is rounded down."""
    terms = tuple((monomial, coefficient_quotient(coefficient, factor)) for monomial, coefficient in a.terms)
    return DimExpr(terms, a.constant // factor)


def _period(monomial: Monomial, c: int) -> int:
    """The smallest coefficient that makes the monomial a multiple of c."""
    return c // gcd(c, term_divisibility(monomial, 1))


def _single_quotient(a: DimExpr) -> FloorDiv | None:
    """The atom of an expression of the form FloorDiv + constant."""
    if len(a.terms) == 1:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], FloorDiv):
            return monomial[0]
    return None


def _merge_quotients(inner: FloorDiv, constant: int, b: Dim) -> Dim:
    """floordiv(inner + constant, b): two roundings down in a row are one by the product of the divisors."""
    numerator = add(inner.numerator, multiply(inner.denominator, constant))
    return floordiv_unchecked(numerator, multiply(inner.denominator, b))


def _split(a: Dim, b: DimExpr) -> tuple[Dim, Dim]:
    """(q, r) with a == q * b + r, by polynomial long division.

    With several terms in b the division counts only when it leaves a constant: a partial one would make forms longer
    without making them equal more often.
    """
    quotient: Dim = 0
    rest = a
    settled: dict[Monomial, Coefficient] = {}
    for _ in range(MAX_DIVISION_STEPS):
        step = _next_quotient_term(rest, b, settled) if isinstance(rest, DimExpr) else 0
        if isinstance(step, int) and step == 0:
            break
        quotient = add(quotient, step)
        rest = add(rest, multiply(multiply(b, step), -1))
    single = len(b.terms) == 1 and b.constant == 0
    return (quotient, rest) if single or isinstance(rest, int) else (0, a)


def _next_quotient_term(a: DimExpr, b: DimExpr, settled: dict[Monomial, Coefficient]) -> Dim:
    """What times the leading term of b cancels the first possible term of `a`, or most of it; 0 when none is left.

    settled: terms of `a` that cannot be cancelled further; extended here.
    """
    lead, lead_coefficient = b.terms[0]
    for monomial, coefficient in a.terms:
        factor = _without(monomial, lead)
        if factor is None or settled.get(monomial) == coefficient:
            continue
        ratio = Fraction(coefficient) / lead_coefficient
        if ratio.denominator > 1 and term_divisibility(factor, ratio.numerator) % ratio.denominator:
            ratio = Fraction(int(ratio))
        settled[monomial] = coefficient - ratio * lead_coefficient
        if ratio:
            return dim_from_terms({factor: ratio}, 0) if factor else int(ratio)
    return 0


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The monomial divided by another one; None when it is not a multiple of it."""
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _cancel(a: Dim, b: DimExpr) -> tuple[Dim, Dim]:
    """Numerator and denominator of a floor quotient without the positive factors that they share."""
    if isinstance(a, int):
        return a, b
    shared = gcd(shared_factor(a, b.constant), shared_factor(b, b.constant))
    if shared > 1:
        a, b = divide_exactly(a, shared), divide_exactly(b, shared)
    if a.constant or b.constant:
        return a, b
    factor, *others = [monomial for monomial, _ in (*a.terms, *b.terms)]
    for monomial in others:
        factor = _common(factor, monomial)
    positive = tuple(atom for atom in factor if atom.lower is not None and atom.lower >= 1)
    fractional = any(isinstance(coefficient, Fraction) for _, coefficient in (*a.terms, *b.terms))
    # A fractional coefficient is an integer only together with the atoms of its monomial.
    if not positive or fractional:
        return a, b
    return _remove(a, positive), _remove(b, positive)


def _common(one: Monomial, other: Monomial) -> Monomial:
    """The atoms that two monomials share, repetitions included."""
    left = list(other)
    shared = []
    for atom in one:
        if atom in left:
            left.remove(atom)
            shared.append(atom)
    return tuple(shared)


def _remove(a: DimExpr, factor: Monomial) -> Dim:
    """a divided by a monomial that all its terms are multiples of."""
    constant = 0
    terms: dict[Monomial, Coefficient] = {}
    for monomial, coefficient in a.terms:
        left = _without(monomial, factor)
        if left:
            terms[left] = coefficient
        else:
            constant += int(coefficient)
    return dim_from_terms(terms, constant)
