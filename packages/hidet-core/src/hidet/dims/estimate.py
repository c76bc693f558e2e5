"""Proving that a dim is never negative, by replacing its nodes with polynomial estimates from below.

Each step trades one floordiv, mod, min or max for something that it is at least (or, under a negative coefficient, at
most), so that what depends on the same symbols can cancel: s - floordiv(s, 2) has the interval bounds (-inf, inf), but
twice it is at least 2*s - s. A bounded number of steps is tried; failing proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from hidet.dims.atom import Atom, Symbol
from hidet.dims.evaluate import reparametrize, symbols
from hidet.dims.expr import (
    Dim,
    DimExpr,
    FloorDiv,
    Max,
    Min,
    Mod,
    add,
    as_dim,
    atom_dim,
    bounds,
    dim_from_terms,
    divisibility,
    multiply,
)

# Work for one question, in terms looked at, and the largest polynomial worth it: an estimate by a symbolic divisor
# multiplies everything else by that divisor.
MAX_WORK = 160
MAX_ESTIMATED_TERMS = 24
MAX_DEGREE = 4


@lru_cache(maxsize=1 << 12)
def is_nonnegative(dim: Dim) -> bool:
    """Whether dim >= 0 is proved; False leaves it open. A compilation asks the same again for each kernel of a task."""
    return _holds(dim, [MAX_WORK])


def _holds(dim: Dim, budget: list[int]) -> bool:
    """is_nonnegative with the work left in `budget[0]`."""
    lower, upper = bounds(dim)
    if lower is not None and lower >= 0:
        return True
    if isinstance(dim, int) or (upper is not None and upper < 0) or budget[0] <= 0:
        return False
    budget[0] -= len(dim.terms)
    degree = len(dim.terms[0][0])
    if degree > MAX_DEGREE or len(dim.terms) > MAX_ESTIMATED_TERMS:
        return False
    if degree > 1 and any(_nonnegative_bound(moved) for moved in _moved(dim)):
        return True
    return any(all(_holds(part, budget) for part in parts) for parts in _estimates(dim))


def _nonnegative_bound(dim: Dim) -> bool:
    lower = bounds(dim)[0]
    return lower is not None and lower >= 0


def _moved(dim: DimExpr) -> Iterator[Dim]:
    """The same values as polynomials of the symbols' distances from one of their bounds.

    Intervals are blind to what products share: s*t - s with s, t >= 1 becomes s*t + t for distances s, t >= 0.
    """
    from_lower = {entry.name: _distance_from_lower(entry) for entry in symbols(dim) if entry.lower != 0}
    if from_lower:
        yield reparametrize(dim, from_lower)
    negative = {factor for monomial, coefficient in dim.terms if coefficient < 0 for factor in monomial}
    from_upper = {
        entry.name: add(entry.upper, multiply(as_dim(_distance(entry)), -1))
        for entry in symbols(dim)
        if entry.upper is not None and entry in negative
    }
    if from_upper:
        yield reparametrize(dim, {**from_lower, **from_upper})


def _distance(entry: Symbol) -> Symbol:
    """A symbol for the distance from a bound; it replaces every occurrence of `entry`, so it may have its name."""
    return Symbol(entry.name, 0, None if entry.upper is None else entry.upper - entry.lower, entry.divisor)


def _distance_from_lower(entry: Symbol) -> Dim:
    return add(as_dim(_distance(entry)), entry.lower)


def _estimates(dim: DimExpr) -> Iterator[tuple[Dim, ...]]:
    """Alternatives; when all Dims of one are nonnegative, so is `dim`. They replace one node of `dim`."""
    for monomial, coefficient in dim.terms:
        if not isinstance(coefficient, int):
            continue
        for index, atom in enumerate(monomial):
            others = monomial[:index] + monomial[index + 1 :]
            if isinstance(atom, Symbol) or not all(_is_nonnegative_atom(other) for other in others):
                continue
            rest = add(dim, multiply(dim_from_terms({monomial: coefficient}, 0), -1))
            weight = dim_from_terms({others: coefficient}, 0) if others else coefficient
            yield from _replacements(atom, weight, coefficient > 0, rest)
            return


def _is_nonnegative_atom(atom: Atom) -> bool:
    return atom.lower is not None and atom.lower >= 0


def _replacements(atom: Atom, weight: Dim, positive: bool, rest: Dim) -> Iterator[tuple[Dim, ...]]:
    """Alternatives for rest + weight * atom, where weight >= 0 (positive) or weight <= 0."""
    match atom:
        case FloorDiv(numerator, denominator):
            # denominator * atom lies in [numerator + step - denominator, numerator], and an integer is nonnegative when
            # its product with the denominator is above -denominator.
            step = gcd(divisibility(numerator), divisibility(denominator))
            least = add(add(numerator, step), multiply(denominator, -1))
            estimate = multiply(weight, least if positive else numerator)
            scaled = add(multiply(rest, denominator), estimate)
            yield (add(add(scaled, denominator), -1),)
        case Mod(value, modulus):
            if not positive:
                yield (add(rest, multiply(weight, add(modulus, -1))),)
                # The remainder of a number that is not negative is at most that number.
                yield (value, add(rest, multiply(weight, value)))
            quotient = atom_dim(FloorDiv(value, modulus))
            yield (add(rest, multiply(weight, add(value, multiply(multiply(quotient, modulus), -1)))),)
        case Min(operands) | Max(operands):
            one_suffices = positive == isinstance(atom, Max)
            parts = [add(rest, multiply(weight, operand)) for operand in operands]
            if one_suffices:
                yield from ((part,) for part in parts)
            else:
                yield tuple(parts)
