"""What a region of scalars computes, as a term: by which reductions, comparators and updates are recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

Term = Any
"""("argument", number), ("constant", number or "nan"), or an operator's name with its operands' terms; `compare` has
its direction before these, and "TOTALORDER" where it is by that."""

_MOST = 256
"""Operations of regions that are looked at."""


def terms_of(body: Body) -> tuple[Term, ...] | None:
    """The results of a region; None where it does something that terms have no words for."""
    block = body.block
    if len(block.operations) > _MOST:
        return None
    found: dict[int, Term] = {number: ("argument", place) for place, number in enumerate(block.arguments)}
    for number in body.free:
        held = body.number_outside(number)
        found[number] = ("outer", number) if held is None else _constant(held)
    sizes: dict[int, int] = {}
    for operation in block.operations:
        if operation.regions or len(operation.results) != 1:
            return None
        (result,) = operation.results
        if operation.name == "constant":
            value = operation.attributes.get("value")
            if not isinstance(value, numpy.ndarray) or value.size != 1:
                return None
            found[result] = _constant(value.reshape(-1)[0].item())
            continue
        if any(number not in found for number in operation.operands):
            return None
        head: tuple[Any, ...] = (operation.name,)
        if operation.name == "compare":
            by = operation.attributes.get("compare_type")
            head = ("compare", operation.attributes.get("comparison_direction"))
            head = (*head, by) if by == "TOTALORDER" else head
        sizes[result] = 1 + sum(sizes.get(number, 1) for number in operation.operands)
        if sizes[result] > _MOST:
            return None
        found[result] = (*head, *(found[number] for number in operation.operands))
    return tuple(found.get(number, ("outer", number)) for number in block.returned)


def _constant(number: bool | int | float) -> Term:
    """NaN is not itself, so it is a word."""
    return ("constant", "nan" if number != number else number)


def argument(number: int) -> Term:
    """The term of an argument."""
    return ("argument", number)


def combination(body: Body) -> str | None:
    """The operator by which a region joins its two arguments, "add"; "first" or "second" where it returns one of them;
    None for others."""
    terms = terms_of(body)
    if terms is None or len(terms) != 1 or len(body.block.arguments) != 2:
        return None
    (term,) = terms
    if term in (argument(0), argument(1)):
        return ("first", "second")[term[1]]
    if len(term) == 3 and {term[1:], term[:0:-1]} == {(argument(0), argument(1)), (argument(1), argument(0))}:
        return str(term[0])
    return None


def without_canonical_forms(term: Term) -> Term:
    """A term without what makes NaNs one NaN and zeros one zero before they are compared: sorting does so anyway."""
    if not isinstance(term, tuple) or term[0] in ("argument", "constant", "outer"):
        return term
    parts = tuple(without_canonical_forms(part) if isinstance(part, tuple) else part for part in term)
    if parts[0] == "select" and len(parts) == 4:
        test, chosen, x = parts[1:]
        if test == ("compare", "EQ", x, ("constant", 0.0)) and chosen == ("constant", 0.0):
            return x
        if test == ("compare", "NE", x, x) and chosen == ("constant", "nan"):
            return x
    return parts
