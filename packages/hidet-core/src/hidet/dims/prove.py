"""Deciding equalities and inequalities between dims: True is proved, False refuted, None unknown.

True means that the relation holds for every value of the symbols that fits their facts, False that it holds for none.
What stays None becomes a check at run time. The normal form and the interval bounds of a difference decide most
questions. Inequalities then try estimates (`hidet.dims.estimate`); equalities try a second normal form, estimates, and
every remainder of a symbol by the divisors that it meets.
"""

from __future__ import annotations

from math import lcm

from hidet.dims.atom import Symbol
from hidet.dims.divide import divide_exactly, floordiv_unchecked, shared_factor
from hidet.dims.estimate import is_nonnegative
from hidet.dims.evaluate import Algebra, fold, reparametrize
from hidet.dims.expr import (
    Dim,
    DimExpr,
    FloorDiv,
    add,
    as_dim,
    bounds,
    dim_from_terms,
    divisibility,
    has_nodes,
    multiply,
    scale,
)
from hidet.dims.extrema import minimum
from hidet.errors import ShapeError, SizeDivisionError

# How many cases of symbols' remainders one equality may try.
MAX_CASES = 32


def prove_equal(a: Dim, b: Dim) -> bool | None:
    """Whether a == b."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    try:
        return _is_zero(add(a, multiply(b, -1)))
    except ShapeError:
        # Some form of the difference is beyond MAX_TERMS or MAX_DEPTH.
        return None


def prove_le(a: Dim, b: Dim) -> bool | None:
    """Whether a <= b."""
    try:
        difference = add(b, multiply(a, -1))
        if is_nonnegative(difference):
            return True
        return False if is_nonnegative(add(multiply(difference, -1), -1)) else None
    except ShapeError:
        # Some estimate of the difference is beyond MAX_TERMS or MAX_DEPTH.
        return None


def prove_lt(a: Dim, b: Dim) -> bool | None:
    """Whether a < b."""
    return prove_le(add(a, 1), b)


def _is_zero(difference: Dim) -> bool | None:
    known = _is_zero_by_facts(difference)
    if known is not None or isinstance(difference, int) or not has_nodes(difference):
        return known
    opposite = multiply(difference, -1)
    if is_nonnegative(add(difference, -1)) or is_nonnegative(add(opposite, -1)):
        return False
    if is_nonnegative(difference) and is_nonnegative(opposite):
        return True
    return _is_zero_by_cases(difference, MAX_CASES)


def _is_zero_by_facts(difference: Dim) -> bool | None:
    if isinstance(difference, int):
        return difference == 0
    lower, upper = bounds(difference)
    if (lower is not None and lower > 0) or (upper is not None and upper < 0):
        return False
    if difference.constant % divisibility(add(difference, -difference.constant)):
        return False
    return None


def _is_zero_by_cases(difference: Dim, cases: int) -> bool | None:
    """Try the second normal form, then split a symbol s into period * k + remainder, one case a remainder.

    Quotients of s by divisors of the period dissolve in each case.
    """
    algebra: Algebra[Dim] = _SecondForm()
    expanded = fold(difference, algebra)
    known = _is_zero_by_facts(expanded)
    if known is not None or isinstance(expanded, int):
        return known
    periods = _periods(expanded)
    if not periods:
        return None
    symbol, period = min(periods.items(), key=lambda item: (item[1], item[0].key))
    remainders = range(0, period, symbol.divisor)
    if len(remainders) > cases:
        return None
    answers: set[bool | None] = set()
    for remainder in remainders:
        lower = -((remainder - symbol.lower) // period)
        upper = None if symbol.upper is None else (symbol.upper - remainder) // period
        if upper is None or lower <= upper:
            quotient = as_dim(Symbol(symbol.name, lower, upper))
            try:
                case = reparametrize(expanded, {symbol.name: add(multiply(quotient, period), remainder)})
                answers.add(_is_zero_by_cases(case, cases // len(remainders)))
            except SizeDivisionError:
                # No value fits this case: a divisor that was taken to be positive (`floordiv_unchecked`) is not.
                continue
        if None in answers or len(answers) > 1:
            return None
    return answers.pop() if answers else None


def _periods(difference: DimExpr) -> dict[Symbol, int]:
    """Per symbol in a constant's quotient: a common multiple of those constants and the symbol's divisor."""
    periods: dict[Symbol, int] = {}
    for monomial, _ in difference.terms:
        for atom in monomial:
            if isinstance(atom, FloorDiv) and isinstance(atom.denominator, int) and isinstance(atom.numerator, DimExpr):
                for inner, _ in atom.numerator.terms:
                    for factor in inner:
                        if isinstance(factor, Symbol):
                            known = periods.get(factor, factor.divisor)
                            periods[factor] = lcm(known, atom.denominator)
    return periods


class _SecondForm:
    """Dims in which mod, max and negative coefficients in numerators are expressed by floordiv, min and positive ones.

    Longer than the usual form and with looser bounds, but more sums of nodes cancel.
    """

    integer = staticmethod(int)
    symbol = staticmethod(as_dim)
    add = staticmethod(add)
    multiply = staticmethod(multiply)

    def floordiv(self, a: Dim, b: Dim) -> Dim:
        if isinstance(a, int) or not isinstance(b, int):
            return floordiv_unchecked(a, b)
        # Adding b once is enough: what exceeds b in larger coefficients leaves the quotient by itself.
        lifted = dim_from_terms({monomial: 1 for monomial, coefficient in a.terms if coefficient < 0}, 0)
        return add(floordiv_unchecked(add(a, multiply(lifted, b)), b), multiply(lifted, -1))

    def mod(self, a: Dim, b: Dim) -> Dim:
        return add(a, multiply(multiply(self.floordiv(a, b), b), -1))

    def minimum(self, a: Dim, b: Dim) -> Dim:
        """b + g * min((a - b) / g, 0), a and b ordered so that the first coefficient is positive."""
        difference = add(a, multiply(b, -1))
        if isinstance(difference, int):
            return add(b, min(difference, 0))
        if difference.terms[0][1] < 0:
            difference, b = scale(difference, -1), a
        factor = shared_factor(difference, difference.constant)
        return add(b, multiply(minimum(divide_exactly(difference, factor), 0), factor))

    def maximum(self, a: Dim, b: Dim) -> Dim:
        return add(add(a, b), multiply(self.minimum(a, b), -1))
