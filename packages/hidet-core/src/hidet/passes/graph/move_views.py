"""Views moved out of the way of fusion: between an anchor and what is element-wise after it, and between sums.

What is element-wise is asked of definitions (`hidet.compute.elementwise`), so that operators of plug-ins are moved
through like those of core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hidet.compute.elementwise import element_function, is_elementwise
from hidet.compute.rowwise import row_function
from hidet.dims import Dim, product
from hidet.graph.builder import node_meaning
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.reshape import matching_groups
from hidet.passes.local import Site
from hidet.plugins.isolation import Failure, attempt

RESHAPES = "family:reshape"
"""Operators that keep all elements in their row-major order and change the shape alone."""
_ANCHORS = ("matmul", "convolution")
"""Families of operators that what is element-wise after them is fused into."""


def split_rows_before_product(site: Site) -> Value | None:
    """reshape(linear(x)), rows split, = linear(reshape(x)): what follows can then be fused into the product.

    Frameworks flatten the rows of a product and split them again after it, or after what is element-wise on it.
    """
    source = site.node.inputs[0]
    if source is None or not _splits_rows(source, site.node.outputs[0]):
        return None
    path = _path_to_anchor(site, source, _is_product_of_rows)
    if not path:
        return None
    *chain, anchor = path
    target = site.node.outputs[0].tensor.shape
    moved = _split_rows(site, anchor, target)
    if moved is None:
        return None
    below = anchor.outputs[0]
    for node in reversed(chain):
        operands = _reshaped_operands(site, node, below, moved, target)
        moved = None if operands is None else apply_elementwise(site, node, operands, target)
        if moved is None:
            return None
        below = node.outputs[0]
    return moved


def _reshaped_operands(
    site: Site, node: Node, known: Value, reshaped: Value | None, target: Sequence[Dim]
) -> list[Value | None] | None:
    """What an element-wise node reads when its result is reshaped to `target`; None where that cannot be said.

    reshaped: what stands for the operand `known`.
    """
    whole = node.outputs[0].tensor.shape
    made: dict[Value, Value | None] = {known: reshaped}
    for operand in node.values:
        if operand not in made:
            # The whole operand keeps leading axes of extent 1, which the result has.
            is_whole = same_shape(operand.tensor.shape, whole)
            shape = target if is_whole else broadcast_after_reshape(operand.tensor.shape, whole, target)
            if shape is None:
                return None
            made[operand] = site.emit("reshape", operand, shape=shape)
    return [None if operand is None else made[operand] for operand in node.inputs]


def is_passed(node: Node) -> bool:
    """Whether views may be moved through a node."""
    op = node.op
    is_plain = op.kind == "compute" and not (op.is_random or op.has_effect)
    return is_plain and bool(node.values) and is_elementwise(node.definition)


def apply_elementwise(site: Site, node: Node, operands: Sequence[Value | None], shape: Sequence[Dim]) -> Value | None:
    """The operator of an element-wise node on other operands, with a result of `shape`; None where it would be another
    function of elements.

    A definition says what an operator means for the shapes that it was made for alone: an attribute may name an axis,
    a size may count, and operators of plug-ins need not take every shape.
    """
    meaning = attempt(partial(node_meaning, node.op, operands, node.attrs))
    if isinstance(meaning, Failure):
        return None
    before, (after, _) = node.definition, meaning
    if before is None or after is None or not is_elementwise(after) or not same_shape(after.outputs[0].shape, shape):
        return None
    return site.emit(node.op, *operands, **node.attrs) if element_function(after) == element_function(before) else None


def split_axes_before_transpose(site: Site) -> Value | None:
    """reshape(transpose(reshape(x))), the outer one splitting axes only, = transpose(reshape(x)).

    Frameworks merge a batch with its heads and split them again; what is left is a view more often than the parts are.
    """
    result = site.node.outputs[0]
    view = site.made_by(site.node.inputs[0], "transpose")
    merged = None if view is None else view.inputs[0]
    if view is None or merged is None or site.made_by(merged, RESHAPES) is None or site.must_own_memory(result):
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
    """Whether a reshape leaves columns alone, merges no rows and keeps a matrix; axes of extent 1 do not count. False
    for one that changes nothing."""
    before, after = old.tensor.shape, new.tensor.shape
    if not before or len(after) < 2 or not same_shape(after[-1:], before[-1:]) or same_shape(before, after):
        return False
    rows, split = ([extent for extent in shape[:-1] if extent != 1] for shape in (before, after))
    return len(split) >= len(rows) and same_shape([product(split)], [product(rows)])


def _is_product_of_rows(node: Node) -> bool:
    """Whether a node is a product that makes each row of its result of the same row of its first input."""
    return node.op.family == "matmul" and node.inputs[0] is not None and row_function(node.definition) is not None


def _split_rows(site: Site, product: Node, shape: Sequence[Dim]) -> Value | None:
    """A product of rows with the rows of its first input split, so that the result has `shape`; None where that would
    be another function of rows, or the operator refuses them."""
    x = product.inputs[0]
    assert x is not None
    rows = site.emit("reshape", x, shape=(*shape[:-1], x.tensor.shape[-1]))
    operands = [rows, *product.inputs[1:]]
    meaning = attempt(partial(node_meaning, product.op, operands, product.attrs))
    if isinstance(meaning, Failure):
        return None
    definition, _ = meaning
    if row_function(definition) != row_function(product.definition):
        return None
    return site.emit(product.op, *operands, **product.attrs)


def _is_anchor(node: Node) -> bool:
    return node.op.family in _ANCHORS


def _path_to_anchor(site: Site, value: Value, is_anchor: Callable[[Node], bool]) -> list[Node]:
    """The nodes from the one that computes `value` to an anchor that it is computed from element by element, which is
    the last one. Nobody else reads the result of any of them. Empty where there is none."""
    shape = value.tensor.shape
    above: dict[Value, Value | None] = {value: None}
    stack = [value]
    while stack:
        current = stack.pop()
        node = site.producer(current)
        if node is None or len(node.outputs) != 1 or not site.is_read_once(current):
            continue
        if is_anchor(node):
            path = [node]
            reader = above[current]
            while reader is not None:
                found = site.producer(reader)
                assert found is not None
                path.append(found)
                reader = above[reader]
            return path[::-1]
        if is_passed(node):
            operands = [v for v in node.values if v not in above and same_shape(v.tensor.shape, shape)]
            above.update(dict.fromkeys(operands, current))
            stack += reversed(operands)
    return []


def transpose_after_elementwise(site: Site) -> Value | None:
    """f(transpose(y), z) = transpose(f(y, transposed z)), for y of an anchor, whose epilogue f then becomes."""
    node = site.node
    if node.op.kind != "compute":
        return None
    for moved in node.values:
        view = site.made_by(moved, "transpose")
        if view is None or view.inputs[0] is None or not site.is_read_once(moved):
            continue
        result = node.outputs[0]
        if not is_passed(node) or site.must_own_memory(result):
            return None
        if not same_shape(moved.tensor.shape, result.tensor.shape):
            continue
        if not _path_to_anchor(site, view.inputs[0], _is_anchor):
            continue
        rank = moved.tensor.rank
        perm = [axis % rank for axis in view.attrs["perm"]]
        inverse = tuple(sorted(range(rank), key=perm.__getitem__))
        known = {moved: view.inputs[0]}
        known.update({v: _transposed(site, v, inverse) for v in node.values if v is not moved})
        shape = tuple(result.tensor.shape[axis] for axis in inverse)
        applied = apply_elementwise(site, node, [None if v is None else known[v] for v in node.inputs], shape)
        return None if applied is None else site.emit("transpose", applied, perm=tuple(perm))
    return None


def _transposed(site: Site, value: Value, perm: Sequence[int]) -> Value:
    """`value` with its axes in another order, after missing leading ones are added; a number stays what it is."""
    missing = len(perm) - value.tensor.rank
    if value.tensor.rank == 0:
        return value
    whole = site.emit("reshape", value, shape=(*[1] * missing, *value.tensor.shape)) if missing else value
    return site.emit("transpose", whole, perm=tuple(perm))


def reshape_before_elementwise(site: Site) -> Value | None:
    """reshape(f(reshape(x), y)) = f(x, reshape(y)), for x of the final shape; y may be broadcast."""
    outer = site.node
    node = None if outer.inputs[0] is None else site.producer(outer.inputs[0])
    if node is None or not is_passed(node) or not site.is_read_once(node.outputs[0]):
        return None
    target = outer.outputs[0].tensor.shape
    for operand in node.values:
        inner = site.made_by(operand, RESHAPES)
        if inner is None or inner.inputs[0] is None or not same_shape(inner.inputs[0].tensor.shape, target):
            continue
        operands = _reshaped_operands(site, node, operand, inner.inputs[0], target)
        if operands is not None:
            return apply_elementwise(site, node, operands, target)
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


def drop_expand(site: Site) -> Value | None:
    """f(expand(x), y) = f(x, y) where y alone has the result's shape: operators broadcast what they read themselves."""
    node = site.node
    if node.op.kind != "compute" or not any(site.made_by(value, "expand") for value in node.values):
        return None
    if not is_passed(node):
        return None
    shape, operands, found = node.outputs[0].tensor.shape, list(node.inputs), None
    for number, operand in enumerate(node.inputs):
        view = site.made_by(operand, "expand")
        if view is None or sum(v is not None and same_shape(v.tensor.shape, shape) for v in operands) < 2:
            continue
        shorter = [*operands[:number], view.inputs[0], *operands[number + 1 :]]
        made = apply_elementwise(site, node, shorter, shape)
        if made is not None:
            operands, found = shorter, made
    return found
