"""Updates of a part of a part. Frameworks write `cache[0][:, 3] = rows` as the update of a slice, put back in place:

    update(x, update(part of x, rows))  =  one update of x
    update of all of x                  =  what it is updated with

A KV cache is then written where rows are new, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet.dims import Dim, prove_equal
from hidet.errors import ShapeError
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.view import selected_position, slice_ranges
from hidet.passes.local import Site

_SLICE = ("starts", "stops", "steps")


@dataclass(frozen=True, slots=True)
class Places:
    """Where on one axis: `count` positions from `first`, every `step`; a selected position drops the axis."""

    first: Dim
    count: Dim
    step: int
    is_dropped: bool = False


def merge_update(site: Site) -> Value | None:
    """One rule for slice_scatter and select_scatter."""
    node = site.node
    x, part = node.inputs
    assert x is not None and part is not None
    outer = _region(node, x.tensor.shape)
    if all(p.first == 0 and p.step == 1 and p.count == n for p, n in zip(outer, x.tensor.shape, strict=True)):
        return None if site.must_own_memory(node.outputs[0]) else _with_dropped_axes(site, part, outer)
    update = site.made_by(part, "slice_scatter", "select_scatter")
    if update is None or not site.is_read_once(part):
        return None
    view = site.made_by(update.inputs[0], "slice", "select")
    if view is None or view.inputs[0] is not x or _region(view, x.tensor.shape) != outer:
        return None
    source = update.inputs[1]
    assert source is not None
    return _emit_update(site, x, source, _composed(outer, _region(update, part.tensor.shape)))


def _region(node: Node, shape: Sequence[Dim]) -> list[Places]:
    """The part of a tensor of `shape` that a slice, a select or the update of one is about, axis by axis."""
    if "axis" not in node.attrs:
        return [Places(*axis) for axis in slice_ranges(shape, *(node.attrs[name] for name in _SLICE))]
    chosen = node.attrs["axis"] % len(shape)
    whole = [Places(0, extent, 1) for extent in shape]
    whole[chosen] = Places(selected_position(shape[chosen], node.attrs["index"]), 1, 1, is_dropped=True)
    return whole


def _composed(outer: Sequence[Places], inner: Sequence[Places]) -> list[Places]:
    """The part of the part, on the axes of the whole."""
    remaining = iter(inner)
    result = []
    for place in outer:
        if place.is_dropped:
            result.append(place)
            continue
        within = next(remaining)
        result.append(
            Places(place.first + within.first * place.step, within.count, place.step * within.step, within.is_dropped)
        )
    return result


def _emit_update(site: Site, x: Value, source: Value, region: Sequence[Places]) -> Value | None:
    """slice_scatter of `source` into `region` of x; None where its attributes cannot say that exactly."""
    starts = tuple(place.first for place in region)
    stops = tuple(place.first + (place.count - 1) * place.step + 1 for place in region)
    steps = tuple(place.step for place in region)
    try:
        ranges = slice_ranges(x.tensor.shape, starts, stops, steps)
    except ShapeError:
        return None
    wanted = [(place.first, place.count, place.step) for place in region]
    if any(step < 1 for _, _, step in wanted) or not all(map(_same_range, ranges, wanted)):
        return None
    rows = _with_dropped_axes(site, source, region)
    return site.emit("slice_scatter", x, rows, starts=starts, stops=stops, steps=steps)


def _same_range(a: tuple[Dim, Dim, int], b: tuple[Dim, Dim, int]) -> bool:
    return same_shape(a[:2], b[:2]) and prove_equal(a[2], b[2]) is True


def _with_dropped_axes(site: Site, source: Value, region: Sequence[Places]) -> Value:
    """`source` with an axis of extent 1 for each one that the region drops."""
    dropped = tuple(axis for axis, place in enumerate(region) if place.is_dropped)
    return site.emit("unsqueeze", source, axes=dropped) if dropped else source
