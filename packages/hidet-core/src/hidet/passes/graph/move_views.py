"""Views moved out of the way of fusion: between an anchor and what is element-wise after it, and between sums."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.dims import Dim, product
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.ops.reshape import matching_groups
from hidet.passes.local import Site

RESHAPES = ("reshape", "flatten", "squeeze", "unsqueeze")
PRODUCTS = ("linear", "matmul")
ANCHORS = (*PRODUCTS, "conv")
ELEMENTWISE = ("add", "sub", "mul", "gelu", "relu", "silu", "sigmoid", "tanh")


def split_rows_before_product(site: Site) -> Value | None:
    """reshape(linear(x)), rows split, = linear(reshape(x)): what follows can then be fused into the product.

    Frameworks flatten the rows of a product and split them again after it, or after adding a bias.
    """
    source = site.node.inputs[0]
    if source is None or not _splits_rows(source, site.node.outputs[0]) or not _is_product(site, source):
        return None
    node = site.made_by(source, *PRODUCTS, *ELEMENTWISE)
    assert node is not None
    target = site.node.outputs[0].tensor.shape
    if node.op.name in PRODUCTS:
        x = node.inputs[0]
        assert x is not None
        rows = site.emit("reshape", x, shape=(*target[:-1], x.tensor.shape[-1]))
        return site.emit(node.op, rows, *node.inputs[1:], **node.attrs)
    moved: list[Value] = []
    for operand in node.values:
        whole = same_shape(operand.tensor.shape, source.tensor.shape)
        # The whole operand keeps leading axes of extent 1, which the result has.
        shape = target if whole else broadcast_after_reshape(operand.tensor.shape, source.tensor.shape, target)
        if shape is None:
            return None
        moved.append(site.emit("reshape", operand, shape=shape))
    return site.emit(node.op, *moved, **node.attrs)


def split_axes_before_transpose(site: Site) -> Value | None:
    """reshape(transpose(reshape(x))), the outer one splitting axes only, = transpose(reshape(x)).

    Frameworks merge a batch with its heads and split them again; what is left is a view more often than the parts are.
    """
    result = site.node.outputs[0]
    view = site.made_by(site.node.inputs[0], "transpose")
    merged = None if view is None else view.inputs[0]
    if view is None or merged is None or site.made_by(merged, *RESHAPES) is None or site.must_own_memory(result):
        return None
    target = result.tensor.shape
    if 0 in target:
        return None
    groups = matching_groups(view.outputs[0].tensor.shape, target)
    if any(len(sources) != 1 for sources, _ in groups) or all(len(targets) == 1 for _, targets in groups):
        return None
    parts = {sources[0]: targets for sources, targets in groups}
    perm = [axis % len(view.attrs["perm"]) for axis in view.attrs["perm"]]
    grouped = [axis for place in range(len(perm)) for axis in parts.get(perm.index(place), ())]
    order = [*(axis for axis in range(len(target)) if axis not in grouped), *grouped]
    split = site.emit("reshape", merged, shape=tuple(target[axis] for axis in order))
    return site.emit("transpose", split, perm=tuple(order.index(axis) for axis in range(len(target))))


def _splits_rows(old: Value, new: Value) -> bool:
    """Whether a reshape leaves columns alone, merges no rows and keeps a matrix; axes of extent 1 do not count."""
    before, after = old.tensor.shape, new.tensor.shape
    if not before or len(after) < 2 or not same_shape(after[-1:], before[-1:]):
        return False
    rows, split = ([extent for extent in shape[:-1] if extent != 1] for shape in (before, after))
    return len(split) >= len(rows) and same_shape([product(split)], [product(rows)])


def _is_product(site: Site, value: Value) -> bool:
    """Whether a product with one matrix on the right lies below element-wise operators that nobody else reads."""
    node = _anchor_below(site, value, PRODUCTS)
    if node is None or node.inputs[1] is None:
        return False
    return node.inputs[1].tensor.rank == 2 and not node.attrs.get("trans_a", False)


def _anchor_below(site: Site, value: Value, anchors: Sequence[str]) -> Node | None:
    """The anchor of one of these operators that `value` is, or is computed from element by element, by nodes that
    nobody else reads."""
    node = site.made_by(value, *anchors, *ELEMENTWISE)
    if node is None or not site.is_read_once(value):
        return None
    if node.op.name in anchors:
        return node
    shape = value.tensor.shape
    below = (_anchor_below(site, v, anchors) for v in node.values if same_shape(v.tensor.shape, shape))
    return next((anchor for anchor in below if anchor is not None), None)


def transpose_after_elementwise(site: Site) -> Value | None:
    """f(transpose(y), z) = transpose(f(y, transposed z)), for y of an anchor, whose epilogue f then becomes."""
    node = site.node
    result = node.outputs[0]
    if site.must_own_memory(result):
        return None
    for moved in node.values:
        view = site.made_by(moved, "transpose")
        if view is None or view.inputs[0] is None or not site.is_read_once(moved):
            continue
        if not same_shape(moved.tensor.shape, result.tensor.shape) or not _anchor_below(site, view.inputs[0], ANCHORS):
            continue
        rank = moved.tensor.rank
        perm = [axis % rank for axis in view.attrs["perm"]]
        inverse = tuple(sorted(range(rank), key=perm.__getitem__))
        operands = [view.inputs[0] if v is moved else _transposed(site, v, inverse) for v in node.values]
        return site.emit("transpose", site.emit(node.op, *operands, **node.attrs), perm=tuple(perm))
    return None


def _transposed(site: Site, value: Value, perm: Sequence[int]) -> Value:
    """`value` with its axes in another order, after missing leading ones are added; a number stays what it is."""
    missing = len(perm) - value.tensor.rank
    if value.tensor.rank == 0:
        return value
    whole = site.emit("reshape", value, shape=(*[1] * missing, *value.tensor.shape)) if missing else value
    return site.emit("transpose", whole, perm=tuple(perm))


def reshape_before_sum(site: Site) -> Value | None:
    """reshape(reshape(x) + y) = x + reshape(y), for x of the final shape; y may be broadcast."""
    outer = site.node
    total = site.made_by(outer.inputs[0], "add", "sub", "mul")
    if total is None or not site.is_read_once(total.outputs[0]):
        return None
    target = outer.outputs[0].tensor.shape
    for position in (0, 1):
        inner = site.made_by(total.inputs[position], *RESHAPES)
        other = total.inputs[1 - position]
        if inner is None or inner.inputs[0] is None or other is None:
            continue
        source = inner.inputs[0]
        if not same_shape(source.tensor.shape, target):
            continue
        shape = broadcast_after_reshape(other.tensor.shape, total.outputs[0].tensor.shape, target)
        if shape is None:
            continue
        moved = site.emit("reshape", other, shape=shape)
        pair = (source, moved) if position == 0 else (moved, source)
        return site.emit(total.op, *pair, **total.attrs)
    return None


def broadcast_after_reshape(
    shape: Sequence[Dim], whole: Sequence[Dim], target: Sequence[Dim]
) -> tuple[Dim, ...] | None:
    """The shape that broadcasts to `target` as `shape` does to `whole`, where `target` is a reshape of `whole`.

    Leading axes of extent 1 are left out. None where a merged group of axes is broadcast in part.
    """
    if 0 in whole or 0 in target:
        return None
    aligned = [1] * (len(whole) - len(shape)) + list(shape)
    result: list[Dim] = [1] * len(target)
    for sources, targets in matching_groups(whole, target):
        extents = [aligned[axis] for axis in sources]
        if all(extent == 1 for extent in extents):
            continue
        if not same_shape(extents, [whole[axis] for axis in sources]):
            return None
        for axis in targets:
            result[axis] = target[axis]
    while result and result[0] == 1:
        del result[0]
    return tuple(result)
