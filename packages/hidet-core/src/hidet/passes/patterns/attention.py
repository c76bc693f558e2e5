"""Attention that people write out, and keys and values that are repeated for grouped queries.

    matmul(softmax(scale * q @ k.T + mask), v) = attention(q, k, v, mask)
    matmul(v.T, softmax(scores).T)             = attention(q, k, v).T
    attention(q, repeat(k), repeat(v))         = attention(q, k, v) with enable_gqa
    attention(c * q, k, v)                     = attention(q, k, v) with c in the scale

Views may lie anywhere between: einsum merges the axes before the rows of matrices, and jax has queries that share keys
as rows of one product, and moves them to the front for the softmax. What is added between views is one mask
(`attention_mask`).

The additive mask may be -inf for some keys of a row, and fills with a large negative number are masks. Fills with -inf
are where each row surely keeps a key: where a whole row is hidden, the written-out form gives NaN and `attention` 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hidet.dtypes import DType
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.graph.move_views import RESHAPES
from hidet.passes.graph.simplify import merge_reshapes, merge_transposes, remove_identity
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.attention_mask import HIDING, Mask, cut_axes, placed_mask, summed_masks
from hidet.passes.patterns.axes import Axis, Frames, Piece, rearranged, views_below
from hidet.passes.patterns.causal import shows_a_key
from hidet.passes.patterns.products import product_of


@dataclass(slots=True)
class Scores:
    """What a softmax reads: scale * product of q and k, with masks and views, each from the outermost to the innermost.

    q, k: the inputs of `product` without factors.
    """

    product: Node
    q: Value
    k: Value
    scale: float
    masks: list[Mask] = field(default_factory=list)
    views: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """Axes of attention. batch: the last of them may be heads. group: of queries that share a head of keys."""

    batch: list[Axis]
    group: Axis
    queries: Axis
    keys: Axis

    @property
    def outer(self) -> list[Axis]:
        """The axes of queries before their rows."""
        return [*self.batch[:-1], self.batch[-1] + self.group] if self.group else self.batch

    @property
    def scores(self) -> list[Axis]:
        """The axes of scores."""
        return [*self.outer, self.queries, self.keys]

    def in_parts(self, axes: Sequence[Sequence[Axis]]) -> tuple[Layout, list[Sequence[Axis]]]:
        """A layout that has parts of the axes of scores as axes of its own, where it may, and the parts of those."""
        *outer, queries, keys = axes
        heads = [outer.pop()] if self.group else []
        batch = [part for parts in outer for part in parts]
        layout = Layout([*batch, self.batch[-1]] if self.group else batch, self.group, self.queries, self.keys)
        return layout, [*([part] for part in batch), *heads, queries, keys]


def attention(site: Site) -> Value | None:
    """softmax of scores, times values, in either order."""
    if site.node.attrs["trans_a"]:
        return None
    found = _attention(site, 0)
    return _attention(site, 1) if found is None else found


def _attention(site: Site, place: int) -> Value | None:
    """The same for weights that are input `place` of the product."""
    weights, values = site.node.inputs[place], site.node.inputs[1 - place]
    if weights is None or values is None:
        return None
    below, views = views_below(site, _without_cast(site, weights))
    softmax = site.made_by(_without_cast(site, below), "softmax")
    if softmax is None or softmax.inputs[0] is None or not site.is_read_once(softmax.outputs[0]):
        return None
    rank = softmax.outputs[0].tensor.rank
    if rank == 0 or softmax.attrs["axis"] % rank != rank - 1:
        return None
    scores = _scores(site, softmax.inputs[0], values.tensor.dtype)
    if scores is None or not _fits(scores, values):
        return None
    frames = Frames()
    made = [frames.add_shape(scores.product.outputs[0].tensor.shape)]
    for view in (*reversed(scores.views), *reversed(views)):
        frame = frames.view(made[-1], view)
        if frame is None:
            return None
        made.append(frame)
    inner, softened, outer = (frames[made[n]] for n in (0, len(scores.views), -1))
    layout = _layout(inner, softened, has_views=len(made) > 1)
    # Weights have rows of queries, or columns of them.
    is_turned = place == 1 and not site.node.attrs["trans_b"]
    batch, rows, keys = outer[:-2], outer[-1 if is_turned else -2], outer[-2 if is_turned else -1]
    if layout is None or keys != layout.keys:
        return None
    masks = [
        placed_mask(site, mask, frames[made[len(scores.views) - mask.views]], layout.scores)
        for mask in reversed(scores.masks)
    ]
    cut = cut_axes(layout.scores, masks)
    if cut is None:
        return None
    layout, parts = layout.in_parts(cut)
    is_turned = place == 1 or bool(site.node.attrs["trans_b"])
    depth: Axis = (Piece(values.tensor.shape[-2 if is_turned else -1]),)
    v = rearranged(
        site, values, [*batch, depth, keys] if is_turned else [*batch, keys, depth], [*layout.batch, keys, depth]
    )
    operands = None if v is None else _operands(site, scores, inner, layout)
    if operands is None:
        return None
    mask = summed_masks(site, masks, parts)
    if masks and mask is None:
        return None
    is_grouped = {"enable_gqa": True} if layout.group else {}
    found = site.emit("attention", *operands, v, mask, scale=scores.scale, **is_grouped)
    wanted = [*batch, depth, rows] if place == 1 else [*batch, rows, depth]
    return rearranged(site, found, [*layout.outer, layout.queries, depth], wanted)


def _layout(product: Sequence[Axis], softened: Sequence[Axis], has_views: bool) -> Layout | None:
    """The axes of attention, of those of a product of queries and keys and those of the softmax."""
    *outer, queries, keys = softened
    rows = product[-2] if product[-1] == keys else product[-1]
    if keys not in product[-2:] or any(piece not in rows for piece in queries):
        return None
    group = tuple(piece for axis in outer for piece in axis if piece in rows)
    batch = [
        tuple(piece for piece in axis if piece not in rows) for axis in outer if not axis or not {*axis} <= {*rows}
    ]
    while has_views and len(batch) > 2 and () in batch:
        batch.remove(())
    if group and len(batch) != 2:
        return None
    return Layout(batch, group, queries, keys)


def _operands(site: Site, scores: Scores, axes: Sequence[Axis], layout: Layout) -> tuple[Value, Value] | None:
    """Queries and keys of a layout. axes: of their product."""
    *batch, rows, columns = axes
    width: Axis = (Piece(scores.q.tensor.shape[-1]),)
    first = [*batch, rows, width]
    second = [*batch, columns, width] if scores.product.attrs["trans_b"] else [*batch, width, columns]
    orders = [*layout.outer, layout.queries, width], [*layout.batch, layout.keys, width]
    if columns != layout.keys:
        k, q = rearranged(site, scores.q, first, orders[1]), rearranged(site, scores.k, second, orders[0])
    else:
        q, k = rearranged(site, scores.q, first, orders[0]), rearranged(site, scores.k, second, orders[1])
    return None if q is None or k is None else (q, k)


def _without_cast(site: Site, value: Value) -> Value:
    """What a cast to or from the arithmetic type converts, if nobody else reads it."""
    node = site.made_by(value, "cast")
    if node is None or node.inputs[0] is None or not site.is_read_once(value):
        return value
    pair = (value.tensor.dtype, node.inputs[0].tensor.dtype)
    return node.inputs[0] if arithmetic_dtype(pair[0]) == arithmetic_dtype(pair[1]) else value


def _scores(site: Site, value: Value, dtype: DType) -> Scores | None:
    """`value` taken apart from the outside: masks that are added, a factor, views, the product of queries and keys.

    dtype: of the values, which queries and keys have as well before they are widened.
    """
    masks: list[Mask] = []
    views: list[Node] = []
    scale, current = 1.0, _without_cast(site, value)
    while (product := site.made_by(current, "matmul")) is None or product.attrs["dtype"] is not None:
        below, passed = views_below(site, current)
        views += passed
        found = None if passed else _below_mask(site, current, len(views))
        if found is not None:
            below, mask = found
            # What lies below a factor is scaled, too; what hides a key hides it all the more, or does not.
            if mask.fill is not None and not 0 < scale <= 1:
                return None
            masks.append(replace(mask, scale=scale))
        elif not passed:
            scaled = product_of(site, current, root=False)
            if len(scaled.factors) != 1 or scaled.factors[0] is current:
                return None
            (below,) = scaled.factors
            scale *= scaled.number
        current = _without_cast(site, below)
    if product.attrs["trans_a"] or not site.is_read_once(product.outputs[0]):
        return None
    q, k = (_operand(site, operand, dtype) for operand in product.values)
    return None if q is None or k is None else Scores(product, q[0], k[0], scale * q[1] * k[1], masks, views)


def _operand(site: Site, value: Value, dtype: DType) -> tuple[Value, float] | None:
    """(x, c) for c * x with x of `dtype`, which may be computed in the arithmetic type and rounded."""
    for rounded in (_without_cast(site, value), value):
        found = product_of(site, rounded, root=False)
        if len(found.factors) == 1:
            factor = _before_widening(site, found.factors[0], dtype)
            if factor.tensor.dtype == dtype:
                return factor, found.number
    return None


def _before_widening(site: Site, value: Value, dtype: DType) -> Value:
    """What is cast to the type that attention computes in anyway."""
    node = site.made_by(value, "cast")
    source = None if node is None else node.inputs[0]
    is_widened = source is not None and source.tensor.dtype == dtype and arithmetic_dtype(dtype) == value.tensor.dtype
    return source if source is not None and is_widened else value


def _below_mask(site: Site, value: Value, views: int) -> tuple[Value, Mask] | None:
    """(s, mask) for s + mask, s - mask, and where(flags, s, c) of scores s and c that hides a key."""
    node = site.made_by(value, "add", "sub", "where")
    if node is None or not site.is_read_once(value):
        return None
    operands = node.values[-2:]
    chosen = next((n for n in (0, 1) if _is_scores(site, operands[n])), None)
    if chosen is None or (node.op.name == "sub" and chosen == 1):
        return None
    source, other = operands[chosen], operands[1 - chosen]
    if node.op.name == "where":
        if not _hides(site, node.values[0], _number(site, other), source.tensor.dtype, kept=chosen == 0):
            return None
        found = source, Mask(node.values[0], other, views, kept=chosen == 0)
    else:
        if node.attrs["alpha"] != 1:
            return None
        found = source, Mask(site.emit("neg", other) if node.op.name == "sub" else other, None, views)
    return found if same_shape(source.tensor.shape, value.tensor.shape) else None


def _hides(site: Site, flags: Value, fill: float | None, dtype: DType, *, kept: bool) -> bool:
    """Whether a fill in the place of scores gives keys no weight, but in rows of which nothing is left: these count all
    keys alike, unless it is infinite. Then there must be none."""
    if fill is None or math.isnan(fill):
        return False
    if math.isinf(fill):
        return fill < 0 and shows_a_key(site, flags, kept=kept)
    return fill <= max(HIDING, dtype.min)


def _number(site: Site, value: Value) -> int | float | bool | None:
    """The number that every element of `value` is, which may be views of one."""
    while (node := site.made_by(value, "expand", RESHAPES)) is not None and node.inputs[0] is not None:
        value = node.inputs[0]
    return site.number(value)


def _is_scores(site: Site, value: Value | None) -> bool:
    """Whether a matrix product lies below sums, products, casts, masks and views."""
    while value is not None:
        node = site.made_by(value, "add", "sub", "mul", "div", "cast", "where", "matmul", "transpose", RESHAPES)
        if node is None or not site.is_read_once(value):
            return False
        if node.op.name == "matmul":
            return True
        if node.op.name in ("add", "sub", "where"):
            return any(_is_scores(site, operand) for operand in node.values[-2:])
        numbers = [operand for operand in node.values if site.number(operand) is None]
        value = numbers[0] if len(numbers) == 1 else None
    return False


def _fits(scores: Scores, values: Value) -> bool:
    """Whether masks that are added have one floating-point type, and values such a type."""
    added = {mask.value.tensor.dtype for mask in scores.masks if mask.fill is None}
    added |= {mask.fill.tensor.dtype for mask in scores.masks if mask.fill is not None}
    return len(added) <= 1 and all(dtype.is_float for dtype in (values.tensor.dtype, *added))


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


def scaled_queries(site: Site) -> Value | None:
    """Queries times a positive number have it in the scale, by which attention multiplies in its arithmetic type: what
    makes the queries stands alone then, as what makes keys and values."""
    node = site.node
    q, scale = node.inputs[0], node.attrs["scale"]
    if q is None or scale is None:
        return None
    below, views = views_below(site, q)
    scaled = product_of(site, below, root=False)
    if len(scaled.factors) != 1 or scaled.factors[0] is below or not 0 < scaled.number < math.inf:
        return None
    (x,) = scaled.factors
    if x.tensor.dtype != below.tensor.dtype or not same_shape(x.tensor.shape, below.tensor.shape):
        return None
    for view in reversed(views):
        x = site.emit(view.op, x, **view.attrs)
    return site.emit(node.op, x, *node.inputs[1:], **{**node.attrs, "scale": scale * scaled.number})


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
    "matmul": (attention,),
    "attention": (grouped_queries, scaled_queries),
    # What attention's batch and heads are merged for is often to take them apart again.
    RESHAPES: (merge_reshapes, remove_identity),
    "transpose": (merge_transposes, remove_identity),
}
