"""Reshaping: which axes of the old and the new shape belong together, index expressions and strides that follow.

Axes are matched in groups of provably equal element count, the smallest possible. An axis that keeps its extent is
passed through; only groups that really merge or split pay for multiplications, divisions and remainders:

    [b, s, 12*64] -> [b, s, 12, 64]      old index (i, j, 64*k + l)
    [b, 12, 64]   -> [b, 768]            old index (i, j // 64, j % 64)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hidet.compute.definition import Definition, Operand, compute
from hidet.dims import Dim, floordiv_unchecked, product, prove_equal
from hidet.errors import ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec, View
from hidet.graph.types import TensorType, contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import require_dtype, shape_text

Group = tuple[tuple[int, ...], tuple[int, ...]]


def resolve_shape(operator: str, old: Sequence[Dim], new: Sequence[Dim]) -> tuple[Dim, ...]:
    """`new` with its one -1, if any, replaced by what is left of the elements of `old`.

    ShapeError when -1 occurs twice, or the element counts provably differ.
    """
    unknown = [axis for axis, extent in enumerate(new) if extent == -1]
    if len(unknown) > 1:
        raise ShapeError(f"operator {operator}: -1 stands twice in the new shape {shape_text(new)}")
    total = product(old)
    result = list(new)
    if unknown:
        known = product([extent for extent in new if extent != -1])
        if known == 0:
            raise ShapeError(f"operator {operator}: -1 in {shape_text(new)} could be any extent, beside an extent of 0")
        # Extents of 0 or below in `new` are found at the call, if not here: products must be equal, extents no less.
        result[unknown[0]] = floordiv_unchecked(total, known)
    if prove_equal(product(result), total) is False:
        raise ShapeError(
            f"operator {operator} cannot turn shape {shape_text(old)} ({total} elements) "
            f"into {shape_text(new)} ({product(result)} elements)"
        )
    return tuple(result)


def matching_groups(old: Sequence[Dim], new: Sequence[Dim]) -> list[Group]:
    """Pairs of runs of old and new axes with equal element counts, each as short as can be proved.

    Axes of extent 1 are in no group. The last group takes what is left: its counts are equal because all are. Shapes
    must have no extent 0.
    """
    left = [axis for axis, extent in enumerate(old) if extent != 1]
    right = [axis for axis, extent in enumerate(new) if extent != 1]
    groups: list[Group] = []
    while left and right:
        i, j = _shortest_match([old[axis] for axis in left], [new[axis] for axis in right])
        groups.append((tuple(left[:i]), tuple(right[:j])))
        left, right = left[i:], right[j:]
    if left or right:
        before = groups.pop() if groups else ((), ())
        groups.append((before[0] + tuple(left), before[1] + tuple(right)))
    return groups


def _shortest_match(old: Sequence[Dim], new: Sequence[Dim]) -> tuple[int, int]:
    """Lengths of the shortest leading runs with provably equal products; everything if none is found."""
    old_products, new_products = _running_products(old), _running_products(new)
    for total in range(2, len(old) + len(new) + 1):
        for i in range(max(1, total - len(new)), min(len(old), total - 1) + 1):
            if prove_equal(old_products[i - 1], new_products[total - i - 1]):
                return i, total - i
    return len(old), len(new)


def _running_products(extents: Sequence[Dim]) -> list[Dim]:
    products: list[Dim] = []
    running: Dim = 1
    for extent in extents:
        running = running * extent
        products.append(running)
    return products


def reshape_indices(old: Sequence[Dim], new: Sequence[Dim], axes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where in a tensor of shape `old` the element `axes` of the row-major tensor of shape `new` is."""
    indices: list[Expr] = [build.index(0)] * len(old)
    if 0 in old and 0 in new:
        nowhere = axes[list(new).index(0)]
        return tuple(nowhere if extent == 0 else index for extent, index in zip(old, indices, strict=True))
    for sources, targets in matching_groups(old, new):
        extents = [new[axis] for axis in targets]
        linear = build.flatten([axes[axis] for axis in targets], contiguous_strides(extents))
        inner: Dim = 1
        for position, axis in reversed(list(enumerate(sources))):
            index = linear if inner == 1 else linear // build.index(inner)
            indices[axis] = index if position == 0 else index % build.index(old[axis])
            inner = inner * old[axis]
    return tuple(indices)


def reshape_strides(shape: Sequence[Dim], strides: Sequence[Dim], new: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Strides of `new` over the storage of a tensor of `shape` and `strides`; None where only a copy can do it."""
    if 0 in shape or 0 in new:
        return contiguous_strides(new)
    result: list[Dim | None] = [None] * len(new)
    for sources, targets in matching_groups(shape, new):
        for outer, inner in pairwise(sources):
            if not prove_equal(strides[outer], shape[inner] * strides[inner]):
                return None
        running: Dim = strides[sources[-1]] if sources else 1
        for axis in reversed(targets):
            result[axis] = running
            running = running * new[axis]
    following: Dim = 1
    for axis in reversed(range(len(new))):
        stride = result[axis]
        if stride is None:
            result[axis] = stride = following
        following = stride * new[axis]
    return tuple(stride for stride in result if stride is not None)


def _reshape(x: Operand, *, shape: Sequence[Dim]) -> Definition:
    require_dtype("reshape", x, "data")
    new = resolve_shape("reshape", x.shape, shape)
    stage = compute("reshape", new, lambda *axes: x[reshape_indices(x.shape, new, axes)])
    return Definition((x,), (stage,), (stage.result,), equal=((product(new), product(x.shape)),))


def _reshape_view(x: TensorType, attrs: Attrs, result: TensorType) -> View | None:
    strides = reshape_strides(x.shape, x.element_strides, result.shape)
    return None if strides is None else View(0, strides)


def _flatten(x: Operand, *, start: int, end: int) -> Definition:
    return _reshape(x, shape=flattened_shape(x.shape, start, end))


def flattened_shape(shape: Sequence[Dim], start: int, end: int) -> tuple[Dim, ...]:
    """`shape` with the axes `start` to `end` (both included, negative from the end) as one."""
    rank = max(len(shape), 1)
    first, last = start % rank, end % rank
    if not shape:
        return (1,)
    if first > last:
        raise ShapeError(f"operator flatten: axis {start} comes after axis {end} in shape {shape_text(shape)}")
    return (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :])


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="reshape",
        family="reshape",
        inputs=("x",),
        attributes=(Attribute("shape", doc="new extents; one may be -1"),),
        kind="view",
        define=_reshape,
        view=_reshape_view,
        doc="The same elements in row-major order under another shape, as torch.reshape; any element type.",
    ),
    OperatorSpec(
        name="flatten",
        family="reshape",
        inputs=("x",),
        attributes=(Attribute("start", 0), Attribute("end", -1)),
        kind="view",
        define=_flatten,
        view=_reshape_view,
        doc="The axes start to end, both included, merged into one, as torch.flatten; any element type.",
    ),
)
