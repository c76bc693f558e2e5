"""Where the boxes of a directed graph stand: in layers from top to bottom, so that edges point down.

Long edges go through places of their own in the layers between, and boxes stand in the order of the middle of what they
read (Sugiyama's method, with a few sweeps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_GAP, _LAYER_GAP = 24.0, 38.0
_LANE = 10.0
"""Width of the place of an edge in a layer that it passes."""
_SWEEPS = 4
_MOST_LANES = 12
"""Places that an edge may take; a longer one is drawn straight."""


@dataclass(frozen=True, slots=True)
class Box:
    """The size of a box."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Middles of boxes, points that each edge goes through, in the order of the edges, and the size of the drawing."""

    places: tuple[tuple[float, float], ...]
    edges: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def lay_out(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes. edges: pairs of their numbers; each leads to a higher number."""
    layer_of = _layers(len(boxes), edges)
    widths = [box.width for box in boxes]
    heights = [box.height for box in boxes]
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for number, layer in enumerate(layer_of):
        layers[layer].append(number)
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    lanes: list[list[int]] = []
    for source, target in edges:
        chain = [source]
        span = layer_of[target] - layer_of[source]
        for layer in range(layer_of[source] + 1, layer_of[target]) if span <= _MOST_LANES else ():
            lane = len(widths)
            widths.append(_LANE)
            heights.append(0.0)
            layers[layer].append(lane)
            chain.append(lane)
        chain.append(target)
        for upper, lower in pairwise(chain):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
        lanes.append(chain)
    xs = _across(layers, above, below, widths)
    ys, at = [0.0] * len(widths), 0.0
    for layer_items in layers:
        height = max((heights[item] for item in layer_items), default=0.0)
        for item in layer_items:
            ys[item] = at + height / 2
        at += height + _LAYER_GAP
    left = min((x - width / 2 for x, width in zip(xs, widths, strict=True)), default=0.0) - _GAP
    xs = [x - left for x in xs]
    right = max((x + width / 2 for x, width in zip(xs, widths, strict=True)), default=0.0) + _GAP
    places = tuple((xs[number], ys[number] + _GAP) for number in range(len(boxes)))
    paths = []
    for chain in lanes:
        first, last = chain[0], chain[-1]
        inner = [(xs[lane], ys[lane] + _GAP) for lane in chain[1:-1]]
        start = (xs[first], ys[first] + _GAP + heights[first] / 2)
        end = (xs[last], ys[last] + _GAP - heights[last] / 2)
        paths.append((start, *inner, end))
    return Layout(places, tuple(paths), right, max(at - _LAYER_GAP, 0.0) + 2 * _GAP)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below the lowest that it reads; what reads nothing stands right above its reader."""
    layers = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layers[target] = max(layers[target], layers[source] + 1)
    readers: dict[int, list[int]] = {}
    has_source = {target for _, target in edges}
    for source, target in edges:
        readers.setdefault(source, []).append(target)
    for number in range(count):
        if number not in has_source and number in readers:
            layers[number] = min(layers[target] for target in readers[number]) - 1
    return layers


def _across(
    layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]], widths: Sequence[float]
) -> list[float]:
    xs = [0.0] * len(widths)
    for items in layers:
        _spread(items, xs, widths)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for items in layers if down else reversed(layers):
            for item in items:
                near = neighbours.get(item)
                if near:
                    xs[item] = sum(xs[other] for other in near) / len(near)
            items.sort(key=xs.__getitem__)
            _spread(items, xs, widths)
    return xs


def _spread(items: Sequence[int], xs: list[float], widths: Sequence[float]) -> None:
    """Push boxes apart that overlap, and the layer back to where its boxes want to be in the mean."""
    if not items:
        return
    wanted = sum(xs[item] for item in items) / len(items)
    for left, right in pairwise(items):
        xs[right] = max(xs[right], xs[left] + (widths[left] + widths[right]) / 2 + _GAP)
    shift = wanted - sum(xs[item] for item in items) / len(items)
    for item in items:
        xs[item] += shift
