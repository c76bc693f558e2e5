"""What is added to the scores of attention, as one mask of them.

Terms are added between views, so that one may be repeated along a part of an axis of another: shifted windows have a
term for each head and one for each window of an image, and images and windows are one axis of the scores. Where such an
axis counts heads or batches, attention has its parts as axes of its own, and nothing is repeated. Along queries and
keys the sum is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hidet.dims import Dim, product
from hidet.graph.graph import Value
from hidet.graph.types import same_shape
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.graph.move_views import RESHAPES, broadcast_after_reshape
from hidet.passes.local import Site
from hidet.passes.patterns.axes import Axis, Piece, extent_of, rearranged

HIDING = -1e30
"""What hides a key when it is added: it is what sums of it and scores are rounded to, and far enough from the largest
numbers for kernels that multiply scores by log2(e)."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What is added to scores; with a fill, flags of the scores that it stands in the place of, or of all others.

    kept: what flags of scores that stay are. views: how many views are between it and the softmax. scale: a factor on
    what is added.
    """

    value: Value
    fill: Value | None
    views: int
    kept: bool = True
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class PlacedMask:
    """A mask, and the axes of the scores where it is added, which it broadcasts to."""

    mask: Mask
    axes: Sequence[Axis]

    def repeats(self) -> dict[Piece, bool] | None:
        """Whether it is repeated along each piece; None where it has another shape than its axes."""
        shape = self.mask.value.tensor.shape
        found: dict[Piece, bool] = {}
        for axis, extent in zip(self.axes, (*[1] * (len(self.axes) - len(shape)), *shape), strict=True):
            if extent != 1 and not same_shape([extent], [extent_of(axis)]):
                return None
            found.update(dict.fromkeys(axis, extent == 1))
        return found


def placed_mask(site: Site, mask: Mask, axes: Sequence[Axis], order: Sequence[Axis]) -> PlacedMask:
    """A mask at its axes, which broadcasts instead of being repeated where these are not `order` anyway."""
    value = mask.value if list(axes) == list(order) else _narrowed(site, mask.value)
    return PlacedMask(replace(mask, value=value), axes)


def cut_axes(order: Sequence[Axis], masks: Sequence[PlacedMask]) -> list[list[Axis]] | None:
    """Each axis of `order` in parts, along which every mask is repeated as a whole or not at all.

    None where a mask has another shape than its axes.
    """
    repeats = [mask.repeats() for mask in masks]

    def along(piece: Piece) -> tuple[bool, ...]:
        return tuple(found[piece] for found in repeats if found is not None)

    if None in repeats:
        return None
    return [[tuple(part) for _, part in itertools.groupby(axis, along)] or [()] for axis in order]


def summed_masks(site: Site, masks: Sequence[PlacedMask], axes: Sequence[Sequence[Axis]]) -> Value | None:
    """One mask that is added to scores, of masks from the innermost to the outermost; None where one does not fit.

    axes: of the scores, each in parts, along which no mask is repeated in part.
    """
    parts = [part for axis in axes for part in axis]
    total: Value | None = None
    for placed in masks:
        mask = placed.mask
        value = rearranged(site, mask.value, placed.axes, parts)
        if value is None:
            return None
        if mask.fill is not None:
            total = _filled(site, mask, value, total)
            continue
        if mask.scale != 1:
            value = site.emit("mul", value, site.constant(mask.scale, value))
        total = value if total is None else site.emit("add", *_of_one_type(site, value, total))
    return None if total is None else _merged(site, total, axes)


def _filled(site: Site, mask: Mask, flags: Value, below: Value | None) -> Value:
    """What is added where flags keep scores, and hides keys elsewhere.

    Where a whole row is hidden, all keys count alike in either form: a number hides, for which 16 bits become 32.
    """
    assert mask.fill is not None
    dtype = mask.fill.tensor.dtype
    fill = mask.fill if dtype.min <= HIDING else site.emit("cast", mask.fill, dtype=arithmetic_dtype(dtype))
    kept, hidden = site.constant(0, fill), site.constant(HIDING, fill)
    if below is not None:
        kept, hidden = _of_one_type(site, below, hidden)
    return site.emit("where", flags, *((kept, hidden) if mask.kept else (hidden, kept)))


def _of_one_type(site: Site, a: Value, b: Value) -> tuple[Value, Value]:
    """Two terms in the type of the one with more bits."""
    dtype = max((a.tensor.dtype, b.tensor.dtype), key=lambda each: each.bits)
    first, second = (x if x.tensor.dtype == dtype else site.emit("cast", x, dtype=dtype) for x in (a, b))
    return first, second


def _merged(site: Site, value: Value, axes: Sequence[Sequence[Axis]]) -> Value:
    """A tensor that broadcasts to the parts of some axes, as one that does to the axes: repeated along those parts of
    an axis that others of it are not repeated along."""
    if all(len(parts) == 1 for parts in axes):
        return value
    given: list[Dim] = [*[1] * (sum(map(len, axes)) - value.tensor.rank), *value.tensor.shape]
    whole: list[Dim] = []
    merged: list[Dim] = []
    for parts in axes:
        extents = given[len(whole) : len(whole) + len(parts)]
        if any(extent != 1 for extent in extents):
            extents = [extent_of(part) for part in parts]
        whole += extents
        merged.append(product(extents))
    if not same_shape(whole, given):
        value = site.emit("expand", value, shape=tuple(whole))
    return site.emit("reshape", value, shape=tuple(merged))


def _narrowed(site: Site, value: Value) -> Value:
    """What broadcasts to `value`, and has its rank, where it is a view of something smaller."""
    node = site.made_by(value, "expand", RESHAPES)
    source = None if node is None else node.inputs[0]
    if node is None or source is None:
        return value
    small = _narrowed(site, source)
    shape: Sequence[Dim] | None = small.tensor.shape
    if node.op.name != "expand":
        if small is source:
            return value
        shape = broadcast_after_reshape(small.tensor.shape, source.tensor.shape, value.tensor.shape)
    if shape is None:
        return value
    shape = (*[1] * (value.tensor.rank - len(shape)), *shape)
    return small if same_shape(small.tensor.shape, shape) else site.emit("reshape", small, shape=shape)
