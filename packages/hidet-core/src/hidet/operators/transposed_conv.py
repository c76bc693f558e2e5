"""conv_transpose as a convolution: for targets that have schedules of those alone.

Results whose places are equal modulo the stride see the same taps of the filters: along an axis of stride s and k taps,
place s * t + r sees taps r, r + s, r + 2 s, ... of the inputs at t, t - 1, t - 2, ... So each of the s parts is a
convolution of ceil(k / s) taps, all of them are one convolution with s times the filters, and no product is with a zero
that was put in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from hidet.dims import Dim, ceildiv, floordiv, maximum, product
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Value


@dataclass(frozen=True, slots=True)
class Window:
    """Attributes of a conv_transpose, with an entry an axis."""

    steps: tuple[int, ...]
    spreads: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    extras: tuple[int, ...]
    groups: int


def as_convolution(builder: GraphBuilder, x: Value, weight: Value, bias: Value | None, window: Window) -> Value:
    """What conv_transpose gives for these inputs, through `conv`."""
    steps, spreads, pads, extras = window.steps, window.spreads, window.pads, window.extras
    rank, groups = len(steps), window.groups
    weight = _spread(builder, weight, spreads)
    batch, channels, *space = x.tensor.shape
    _, group_filters, *kernel = weight.tensor.shape
    filters = group_filters * groups
    # Results behind the last tap's reach are those of taps that are zero.
    beyond = [maximum(extra - after, 0) for extra, (_, after) in zip(extras, pads, strict=True)]
    taps = [ceildiv(k + more, step) for k, more, step in zip(kernel, beyond, steps, strict=True)]
    parts = product(steps)

    filled = [(0, t * step - k) for t, step, k in zip(taps, steps, kernel, strict=True)]
    whole = builder.emit("pad", weight, pads=((0, 0), (0, 0), *filled))
    width = floordiv(channels, groups)
    shape = (groups, width, group_filters, *chain.from_iterable(zip(taps, steps, strict=True)))
    whole = builder.emit("reshape", whole, shape=shape)
    tap_axes, part_axes = ([3 + 2 * axis + other for axis in range(rank)] for other in (0, 1))
    whole = builder.emit("transpose", whole, perm=(0, 2, *part_axes, 1, *tap_axes))
    whole = builder.emit("reshape", whole, shape=(filters * parts, width, *taps))
    turned = builder.emit("flip", whole, axes=tuple(range(2, 2 + rank)))

    shifts = None
    if bias is not None:
        each = builder.emit("expand", builder.emit("unsqueeze", bias, axes=(1,)), shape=(filters, parts))
        shifts = builder.emit("reshape", each, shape=(filters * parts,))
    around = tuple((t - 1, t - 1) for t in taps)
    made = builder.emit("conv", x, turned, shifts, padding=around, groups=groups)
    places = made.tensor.shape[2:]
    made = builder.emit("reshape", made, shape=(batch, filters, *steps, *places))
    order = chain.from_iterable((2 + rank + axis, 2 + axis) for axis in range(rank))
    made = builder.emit("transpose", made, perm=(0, 1, *order))
    joined = [place * step for place, step in zip(places, steps, strict=True)]
    made = builder.emit("reshape", made, shape=(batch, filters, *joined))
    starts = (0, 0, *(before for before, _ in pads))
    stops = (
        batch,
        filters,
        *(
            (extent - 1) * step + k - after + extra
            for extent, step, k, (_, after), extra in zip(space, steps, kernel, pads, extras, strict=True)
        ),
    )
    return builder.emit("slice", made, starts=starts, stops=stops, steps=(1,) * len(stops))


def _spread(builder: GraphBuilder, weight: Value, spreads: Sequence[int]) -> Value:
    """Filters with zeros between their taps, in place of a dilation."""
    if all(spread == 1 for spread in spreads):
        return weight
    rows, filters, *kernel = weight.tensor.shape
    apart = tuple(chain.from_iterable((k, 1) for k in kernel))
    zeros = tuple(chain.from_iterable(((0, 0), (0, spread - 1)) for spread in spreads))
    made = builder.emit("reshape", weight, shape=(rows, filters, *apart))
    made = builder.emit("pad", made, pads=((0, 0), (0, 0), *zeros))
    long: list[Dim] = [k * spread for k, spread in zip(kernel, spreads, strict=True)]
    made = builder.emit("reshape", made, shape=(rows, filters, *long))
    stops = (rows, filters, *((k - 1) * spread + 1 for k, spread in zip(kernel, spreads, strict=True)))
    return builder.emit("slice", made, starts=(0,) * len(stops), stops=stops, steps=(1,) * len(stops))
