"""Axes followed through views: of which pieces of axes of a tensor those of a reshaped and transposed one are made.

People who write products by einsum, or map functions over an axis, leave reshapes and transposes between operators that
belong together. Seen as runs of pieces, the axes of all these tensors can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet.dims import Dim, product
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.reshape import matching_groups
from hidet.passes.graph.move_views import RESHAPES
from hidet.passes.local import Site


class Piece:
    """A part of an axis that views move as a whole."""

    __slots__ = ("extent",)

    def __init__(self, extent: Dim) -> None:
        self.extent = extent


Axis = tuple[Piece, ...]
"""Pieces from the outermost to the innermost; none for extent 1."""


class Frames:
    """The axes of several tensors, made of common pieces. A piece that a view splits is split in all of them."""

    def __init__(self) -> None:
        self._frames: list[list[Axis]] = []

    def __getitem__(self, frame: int) -> list[Axis]:
        return self._frames[frame]

    def add(self, axes: Sequence[Axis]) -> int:
        """The number of a frame of these axes."""
        self._frames.append(list(axes))
        return len(self._frames) - 1

    def add_shape(self, shape: Sequence[Dim]) -> int:
        """The number of a frame of new pieces, one an axis."""
        return self.add([() if extent == 1 else (Piece(extent),) for extent in shape])

    def view(self, frame: int, node: Node) -> int | None:
        """The number of the frame of what a reshape or transpose makes of a tensor; None where a reshape mixes axes."""
        if node.op.name == "transpose":
            axes = self[frame]
            return self.add([axes[axis % len(axes)] for axis in node.attrs["perm"]])
        target = node.outputs[0].tensor.shape
        source = [extent_of(axis) for axis in self[frame]]
        if 0 in target or 0 in source:
            return None
        made: list[Axis] = [()] * len(target)
        for sources, targets in matching_groups(source, target):
            parts = self._split(frame, sources, [target[axis] for axis in targets])
            if parts is None:
                return None
            for axis, part in zip(targets, parts, strict=True):
                made[axis] = part
        return self.add(made)

    def _split(self, frame: int, sources: Sequence[int], extents: Sequence[Dim]) -> list[Axis] | None:
        """The pieces of some axes, one after the other, as axes of these extents."""
        pieces = [piece for axis in sources for piece in self[frame][axis]]
        if len(extents) == 1:
            return [tuple(pieces)]
        if len(pieces) != 1:
            return None
        parts = [Piece(extent) for extent in extents]
        for axes in self._frames:
            axes[:] = [
                tuple(made for piece in axis for made in (parts if piece is pieces[0] else [piece])) for axis in axes
            ]
        return [(part,) for part in parts]


def extent_of(axis: Axis) -> Dim:
    """How many elements an axis has."""
    return product([piece.extent for piece in axis])


def views_below(site: Site, value: Value) -> tuple[Value, list[Node]]:
    """What views make `value` of, and these from the last to the first, where nobody else reads what they make."""
    views: list[Node] = []
    while site.is_read_once(value):
        node = site.made_by(value, "transpose", RESHAPES)
        if node is None or node.inputs[0] is None:
            break
        views.append(node)
        value = node.inputs[0]
    return value, views


def views_between(site: Site, value: Value, source: Value) -> list[Node] | None:
    """The views that make `value` of `source`, from the last to the first; None where something else does."""
    views: list[Node] = []
    while value is not source:
        node = site.made_by(value, "transpose", RESHAPES)
        if node is None or node.inputs[0] is None:
            return None
        views.append(node)
        value = node.inputs[0]
    return views


def rearranged(site: Site, value: Value, axes: Sequence[Axis], order: Sequence[Axis]) -> Value | None:
    """A tensor of these axes with axes in another order, split and merged; where it has extent 1, it stays that.

    None where it has another shape than these axes, or an axis would be repeated in part.
    """
    missing = len(axes) - value.tensor.rank
    if list(axes[missing:]) == list(order[missing:]) and list(axes[:missing]) == list(order[:missing]):
        return value
    shape = (*[1] * missing, *value.tensor.shape)
    extents: dict[Piece, Dim] = {}
    for axis, extent in zip(axes, shape, strict=True):
        if extent != 1 and not same_shape([extent], [extent_of(axis)]):
            return None
        extents.update({piece: 1 if extent == 1 else piece.extent for piece in axis})
    known = [piece for axis in order for piece in axis]
    if len(known) != len(extents) or any(piece not in extents for piece in known):
        return None
    if any(len({extents[piece] == 1 for piece in axis}) > 1 for axis in order):
        return None
    pieces = list(extents)
    split = _reshaped(site, value, [extents[piece] for piece in pieces])
    moved = [pieces.index(piece) for piece in known]
    turned = split if moved == sorted(moved) else site.emit("transpose", split, perm=tuple(moved))
    return _reshaped(site, turned, [product([extents[piece] for piece in axis]) for axis in order])


def _reshaped(site: Site, value: Value, shape: Sequence[Dim]) -> Value:
    return value if same_shape(value.tensor.shape, shape) else site.emit("reshape", value, shape=tuple(shape))
