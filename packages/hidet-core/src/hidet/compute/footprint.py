"""Which axes every intermediate array of an expression extends over: what a blocked evaluation bounds its memory by."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute import contract
from hidet.compute.space import Space
from hidet.ir.expr import Expr, Reduce, Var
from hidet.ir.visit import walk


def reductions(exprs: Sequence[Expr]) -> list[Reduce]:
    """The reductions inside `exprs`, each once, outer ones before those inside them."""
    found = {id(n): n for expr in exprs for n in walk(expr) if isinstance(n, Reduce)}
    return list(found.values())


def footprint(exprs: Sequence[Expr], space: Space) -> list[int]:
    """For each array that evaluating `exprs` over `space` holds, the axes it extends over, as bits."""
    known: dict[int, int] = {}
    masks: list[int] = []

    def mask_of(expr: Expr) -> int:
        mask = known.get(id(expr))
        if mask is not None:
            return mask
        if isinstance(expr, Var):
            mask = 1 << space.positions[expr] if expr in space.positions else 0
        else:
            product = contract.factors(expr) if isinstance(expr, Reduce) else None
            parts = (*expr.extents, *product) if product and isinstance(expr, Reduce) else expr.children()
            mask = 0
            for part in parts:
                mask |= mask_of(part) if isinstance(part, Expr) else 0
        if isinstance(expr, Reduce):
            own = sum(1 << space.positions[var] for var in expr.axes)
            if contract.factors(expr) is None:
                masks.append(mask | own)
            mask &= ~own
        known[id(expr)] = mask
        masks.append(mask)
        return mask

    for expr in exprs:
        mask_of(expr)
    return masks
