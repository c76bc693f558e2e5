"""Attention that people write out, and keys and values that are repeated for grouped queries.

    matmul(softmax(scale * q @ k.T + mask), v) = attention(q, k, v, mask)
    matmul(v.T, softmax(scores).T)             = matmul(softmax(scores), v).T
    attention(q, repeat(k), repeat(v))         = attention(q, k, v) with enable_gqa

Products may have the axes before the rows of their matrices merged that the softmax has apart, as einsum makes them.

The additive mask may be -inf for some keys of a row, and fills with a large negative number are masks. Fills with -inf
are not recognised: where they hide a whole row, the written-out form gives NaN and `attention` gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.graph.move_views import RESHAPES
from hidet.passes.graph.simplify import merge_reshapes, remove_identity
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.products import product_of


@dataclass(frozen=True, slots=True)
class Scores:
    """scale * q @ k.T + the sum of masks; k is [..., t, d]."""

    q: Value
    k: Value
    scale: float
    masks: tuple[Value, ...]


def attention(site: Site) -> Value | None:
    """softmax of scores, times values."""
    weights, values = site.node.inputs
    if weights is None or values is None or site.node.attrs["trans_a"]:
        return None
    softmax = site.made_by(_without_cast(site, _other_batch(site, weights)), "softmax")
    if softmax is None or softmax.inputs[0] is None or not site.is_read_once(softmax.outputs[0]):
        return None
    rank = softmax.outputs[0].tensor.rank
    if softmax.attrs["axis"] % rank != rank - 1:
        return None
    scores = _scores(site, softmax.inputs[0])
    if scores is None or not _fits(site, scores, values):
        return None
    mask = scores.masks[0] if scores.masks else None
    for further in scores.masks[1:]:
        mask = site.emit("add", mask, further)
    v = _in_batch(site, values, weights, softmax.outputs[0])
    if v is None:
        return None
    v = _swapped(site, v) if site.node.attrs["trans_b"] else v
    found = site.emit("attention", scores.q, scores.k, v, mask, scale=scores.scale)
    wanted = site.node.outputs[0].tensor.shape
    return found if same_shape(found.tensor.shape, wanted) else site.emit("reshape", found, shape=wanted)


def weights_first(site: Site) -> Value | None:
    """v.T @ softmax(scores).T = (softmax(scores) @ v).T, as einsum orders the operands of a product."""
    first, second = site.node.inputs
    if first is None or second is None or site.node.attrs["trans_a"]:
        return None
    weights: Value | None = second
    if not site.node.attrs["trans_b"]:
        turned = site.made_by(second, "transpose")
        rank = second.tensor.rank
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if turned is None or not site.is_read_once(second) or tuple(a % rank for a in turned.attrs["perm"]) != swapped:
            return None
        weights = turned.inputs[0]
    if weights is None or site.made_by(_without_cast(site, _other_batch(site, weights)), "softmax") is None:
        return None
    return _swapped(site, site.emit("matmul", weights, _swapped(site, first)))


def _other_batch(site: Site, value: Value) -> Value:
    """What a reshape makes `value` of, if nobody else reads it and its last two axes are the same; else `value`."""
    node = site.made_by(value, RESHAPES)
    source = None if node is None else node.inputs[0]
    if source is None or not site.is_read_once(value) or source.tensor.rank < 2:
        return value
    return source if same_shape(source.tensor.shape[-2:], value.tensor.shape[-2:]) else value


def _in_batch(site: Site, operand: Value, product: Value, scores: Value) -> Value | None:
    """An operand of `product`, or what reads it, with the leading axes of `scores`, which is a reshape of `product`.
    None where the operand broadcasts and they differ."""
    batch = scores.tensor.shape[:-2]
    if same_shape(product.tensor.shape[:-2], batch):
        return operand
    if not same_shape(operand.tensor.shape[:-2], product.tensor.shape[:-2]):
        return None
    shape = (*batch, *operand.tensor.shape[-2:])
    view = site.made_by(operand, RESHAPES)
    source = operand if view is None or view.inputs[0] is None else view.inputs[0]
    return source if same_shape(source.tensor.shape, shape) else site.emit("reshape", source, shape=shape)


def _without_cast(site: Site, value: Value) -> Value:
    """What a cast to or from the arithmetic type converts, if nobody else reads it."""
    node = site.made_by(value, "cast")
    if node is None or node.inputs[0] is None or not site.is_read_once(value):
        return value
    pair = (value.tensor.dtype, node.inputs[0].tensor.dtype)
    return node.inputs[0] if arithmetic_dtype(pair[0]) == arithmetic_dtype(pair[1]) else value


def _scores(site: Site, value: Value) -> Scores | None:
    """`value` taken apart from the outside: masks that are added, a factor, the product of queries and keys."""
    masks: list[Value] = []
    has_fill = False
    current = _without_cast(site, value)
    while True:
        filled = _filled(site, current)
        if filled is not None:
            below, fill = filled
            masks.append(fill)
            has_fill = True
            current = _without_cast(site, below)
            continue
        total = site.made_by(current, "add")
        if total is None or total.attrs["alpha"] != 1 or not site.is_read_once(current):
            break
        chosen = next((n for n in (0, 1) if _is_scores(site, total.inputs[n])), None)
        if chosen is None:
            break
        source, mask = total.inputs[chosen], total.inputs[1 - chosen]
        assert source is not None and mask is not None
        if not same_shape(source.tensor.shape, current.tensor.shape):
            return None
        masks.append(mask)
        current = _without_cast(site, source)
    scaled = product_of(site, current, root=False)
    # A fill and another mask may add up to -inf, where the fill stays a number.
    if len(scaled.factors) != 1 or (has_fill and len(masks) > 1):
        return None
    product = site.made_by(_without_cast(site, _other_batch(site, scaled.factors[0])), "matmul")
    if product is None or product.attrs["trans_a"] or not site.is_read_once(product.outputs[0]):
        return None
    q, k = (product_of(site, v, root=False) for v in product.values)
    if len(q.factors) != 1 or len(k.factors) != 1:
        return None
    queries, keys = (_in_batch(site, p.factors[0], product.outputs[0], value) for p in (q, k))
    if queries is None or keys is None:
        return None
    keys = keys if product.attrs["trans_b"] else _swapped(site, keys)
    return Scores(queries, keys, scaled.number * q.number * k.number, tuple(masks))


_HIDING = -1e30
"""What hides a key when it is added: it is what sums of it and scores are rounded to, and far enough from the largest
numbers for kernels that multiply scores by log2(e)."""


def _filled(site: Site, value: Value) -> tuple[Value, Value] | None:
    """(s, where(flags, 0, `_HIDING`)) for where(flags, s, c) of scores s and c not above that: a mask that is added.

    Where it hides a whole row, all keys count alike in either form.
    """
    node = site.made_by(value, "where")
    if node is None or not site.is_read_once(value):
        return None
    flags, source, fill = node.values
    number = site.number(fill)
    if number is None or not math.isfinite(number) or number > _HIDING or not _is_scores(site, source):
        return None
    if not same_shape(source.tensor.shape, value.tensor.shape):
        return None
    return source, site.emit("where", flags, site.constant(0, fill), site.constant(_HIDING, fill))


def _is_scores(site: Site, value: Value | None) -> bool:
    """Whether a matrix product lies below sums, products and casts."""
    while value is not None:
        node = site.made_by(value, "add", "mul", "div", "cast", "matmul", RESHAPES)
        if node is None or not site.is_read_once(value):
            return False
        if node.op.name == "matmul":
            return True
        if node.op.name == "add":
            return any(_is_scores(site, operand) for operand in node.inputs)
        numbers = [operand for operand in node.values if site.number(operand) is None]
        value = numbers[0] if len(numbers) == 1 else None
    return False


def _swapped(site: Site, value: Value) -> Value:
    """The last two axes exchanged."""
    rank = value.tensor.rank
    return site.emit("transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))


def _fits(site: Site, scores: Scores, values: Value) -> bool:
    """Whether the operands have one floating-point type and masks broadcast to the scores."""
    dtype = site.node.outputs[0].tensor.dtype
    if not dtype.is_float or any(v.tensor.dtype != dtype for v in (scores.q, scores.k, values)):
        return False
    return all(mask.tensor.dtype.is_float for mask in scores.masks) and len({m.tensor.dtype for m in scores.masks}) <= 1


def grouped_queries(site: Site) -> Value | None:
    """Key and value heads that are repeated one by one are read where they are."""
    node = site.node
    q, k, v = node.inputs[:3]
    if q is None or k is None or v is None or node.attrs["enable_gqa"]:
        return None
    keys, values = _repeated(site, k), _repeated(site, v)
    if keys is None or values is None or not same_shape(keys.tensor.shape[:2], values.tensor.shape[:2]):
        return None
    if not same_shape(q.tensor.shape[:2], k.tensor.shape[:2]):
        return None
    return site.emit(node.op, q, keys, values, *node.inputs[3:], **{**node.attrs, "enable_gqa": True})


def _repeated(site: Site, value: Value) -> Value | None:
    """x of [b, g, s, d] whose heads, each n times in a row, make `value` of [b, g * n, s, d]."""
    direct = site.made_by(value, "repeat_interleave")
    if direct is not None and direct.inputs[0] is not None and direct.attrs["axis"] % value.tensor.rank == 1:
        return direct.inputs[0] if value.tensor.rank == 4 else None
    spread = site.made_by(_input_of(site.made_by(value, RESHAPES)), "expand")
    single = _input_of(spread)
    inserted = site.made_by(single, RESHAPES)
    source = _input_of(inserted)
    if spread is None or single is None or source is None or value.tensor.rank != 4 or source.tensor.rank != 4:
        return None
    batch, heads, *rest = source.tensor.shape
    times = spread.outputs[0].tensor.shape[2:3]
    is_inserted = same_shape(single.tensor.shape, (batch, heads, 1, *rest))
    is_spread = same_shape(spread.outputs[0].tensor.shape, (batch, heads, *times, *rest))
    merged = is_spread and same_shape(value.tensor.shape, (batch, heads * times[0], *rest))
    return source if is_inserted and merged else None


def _input_of(node: Node | None) -> Value | None:
    return None if node is None else node.inputs[0]


RULES: Mapping[str, Sequence[Rule]] = {
    "matmul": (attention, weights_first),
    "attention": (grouped_queries,),
    # What attention's batch and heads are merged for is often to take them apart again.
    RESHAPES: (merge_reshapes, remove_identity),
}
