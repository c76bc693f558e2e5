"""Minimum and maximum, without the operands that ranges show to be superfluous."""

from __future__ import annotations

from hidet.dims.expr import Dim, DimExpr, Max, Min, add, atom_dim, bounds, multiply, structural_key


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    kept = _without_superfluous([*_operands(a, Min), *_operands(b, Min)], sign=1)
    return kept[0] if len(kept) == 1 else atom_dim(Min(kept))


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    kept = _without_superfluous([*_operands(a, Max), *_operands(b, Max)], sign=-1)
    return kept[0] if len(kept) == 1 else atom_dim(Max(kept))


def _operands(a: Dim, kind: type[Min] | type[Max]) -> tuple[Dim, ...]:
    """The operands of a lone node of `kind`, else the Dim itself."""
    if isinstance(a, DimExpr) and a.constant == 0 and len(a.terms) == 1:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], kind):
            return monomial[0].operands
    return (a,)


def _without_superfluous(operands: list[Dim], sign: int) -> tuple[Dim, ...]:
    """The operands, sorted, without those that are never the only smallest (sign 1) or largest (sign -1)."""
    kept: list[Dim] = []
    for operand in sorted(operands, key=structural_key):
        if any(_never_above(other, operand, sign) for other in kept):
            continue
        kept = [other for other in kept if not _never_above(operand, other, sign)]
        kept.append(operand)
    return tuple(kept)


def _never_above(a: Dim, b: Dim, sign: int) -> bool:
    """Whether sign * a <= sign * b for all values."""
    difference = bounds(multiply(add(b, multiply(a, -1)), sign))[0]
    return difference is not None and difference >= 0
