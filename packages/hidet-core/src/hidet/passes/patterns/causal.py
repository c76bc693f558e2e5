"""Masks that say what `is_causal` says: a row sees keys up to its own number.

Models compare positions to make them, before or while they are compiled. What else a mask of bools says stays a mask,
often a smaller one: which keys are padding.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from hidet.graph.graph import Value
from hidet.graph.types import same_shape
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.attention_mask import HIDING
from hidet.passes.patterns.positions import Affine, Condition, Positions, fitted_condition, negated


def causal_mask(site: Site) -> Value | None:
    """attention(q, k, v, mask) without the part of the mask that `is_causal` says, or that says nothing."""
    q, k, v, mask = (*site.node.inputs, None)[:4]
    if q is None or k is None or mask is None or mask.tensor.rank < 2:
        return None
    positions = Positions(site)
    if mask.tensor.dtype.is_bool:
        terms = _terms(site, mask)
        known = [positions.condition(term) for term in terms]
    else:
        terms, known = [mask], [shown(site, positions, mask)]
    scores = (q.tensor.shape[-2], k.tensor.shape[-2])
    is_said = [
        each is True or (is_causal(each) and same_shape(term.tensor.shape[-2:], scores))
        for term, each in zip(terms, known, strict=True)
    ]
    if not any(is_said):
        return None
    rest = [term for term, said in zip(terms, is_said, strict=True) if not said]
    left = functools.reduce(functools.partial(site.emit, "logical_and"), rest) if rest else None
    makes_causal = any(said and each is not True for said, each in zip(is_said, known, strict=True))
    attrs = {**site.node.attrs, "is_causal": site.node.attrs["is_causal"] or makes_causal}
    return site.emit(site.node.op, q, k, v, left, **attrs)


def is_causal(condition: Condition | None) -> bool:
    """Whether it holds where the last index is not above the one before, whatever the others are."""
    if not isinstance(condition, Affine) or condition.offset != 0 or len(condition.steps) < 2:
        return False
    *outer, row, key = condition.steps
    return row == 1 and key == -1 and not any(step != 0 for step in outer)


def shows_a_key(site: Site, flags: Value, *, kept: bool) -> bool:
    """Whether flags of scores, which are `kept` where that is what they are, surely keep one of each row."""
    positions = Positions(site)
    found = positions.condition(flags)
    found = found if kept else negated(found)
    if found is True:
        return True
    if isinstance(found, Affine) and len(found.steps) > 1:
        *outer, row, key = found.steps
        starts = isinstance(found.offset, int) and found.offset >= 0
        return starts and row == 1 and key == -1 and not any(step != 0 for step in outer)
    data = site.elements(flags)
    return data is not None and data.ndim > 0 and bool(((data != 0) == kept).any(axis=-1).all())


def shown(site: Site, positions: Positions, mask: Value) -> Condition | None:
    """Where a mask that is added to scores is 0, if it hides all else; None where that is not known."""
    data = site.elements(mask)
    if data is not None:
        if data.ndim < 2 or not data.size or data.flat[0] != 0:
            return None
        is_shown = data == 0
        is_hidden = data <= data.dtype.type(max(HIDING, mask.tensor.dtype.min))
        return fitted_condition(is_shown) if (is_shown | is_hidden).all() else None
    node = site.made_by(mask, "where", "cast", "triu")
    if node is None or node.inputs[0] is None:
        return None
    if node.op.name == "cast":
        return shown(site, positions, node.inputs[0]) if node.inputs[0].tensor.dtype.is_float else None
    if node.op.name == "triu":
        number, offset = positions.number(node.inputs[0]), node.attrs["offset"]
        if number is None or number > max(HIDING, mask.tensor.dtype.min) or not isinstance(offset, int):
            return None
        return Affine(offset - 1, (*[0] * (mask.tensor.rank - 2), 1, -1))
    flags, *sides = node.values
    numbers = [site.number(side) for side in sides]
    hides = [number is not None and number <= max(HIDING, mask.tensor.dtype.min) for number in numbers]
    if numbers[0] == 0 and hides[1]:
        return positions.condition(flags)
    return negated(positions.condition(flags)) if numbers[1] == 0 and hides[0] else None


def _terms(site: Site, mask: Value) -> Sequence[Value]:
    """Flags that all have to hold for a mask to show a key."""
    node = site.made_by(mask, "logical_and", "bitwise_and")
    if node is None or any(not value.tensor.dtype.is_bool for value in node.values):
        return [mask]
    return [term for value in node.values for term in _terms(site, value)]


RULES: Mapping[str, Sequence[Rule]] = {"attention": (causal_mask,)}
