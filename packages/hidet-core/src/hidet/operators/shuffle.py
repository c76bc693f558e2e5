"""Rearrangements between channels and space of images [..., c, *space], and between images and columns of patches.

Every operator takes any element type; only col2im does arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import SUM, Definition, Operand, compute, reduce, single
from hidet.dims import Dim, floordiv, product
from hidet.errors import ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.reshape import reshape_indices
from hidet.operators.rules import require_dtype, require_rank, same_extent, widen
from hidet.operators.windows import DILATION, PADDING, STRIDE, Numbers, Padding, windows_of


def _divided(name: str, what: str, extent: Dim, divisor: int) -> Dim:
    if divisor < 1 or (isinstance(extent, int) and extent % divisor):
        raise ShapeError(f"operator {name}: {what} {extent} is no multiple of {divisor}")
    return floordiv(extent, divisor)


def _pixel_shuffle(x: Operand, *, factor: int) -> Definition:
    require_dtype("pixel_shuffle", x, "data")
    require_rank("pixel_shuffle", x, at_least=3)
    *lead, channels, height, width = x.shape
    shape = (*lead, _divided("pixel_shuffle", "channels", channels, factor * factor), height * factor, width * factor)

    def value(*axes: Expr) -> Expr:
        *outer, c, i, j = axes
        channel = c * (factor * factor) + (i % factor) * factor + j % factor
        return x[(*outer, channel, i // factor, j // factor)]

    return single((x,), compute("pixel_shuffle", shape, value))


def _pixel_unshuffle(x: Operand, *, factor: int) -> Definition:
    require_dtype("pixel_unshuffle", x, "data")
    require_rank("pixel_unshuffle", x, at_least=3)
    *lead, channels, height, width = x.shape
    shape = (
        *lead,
        channels * (factor * factor),
        _divided("pixel_unshuffle", "height", height, factor),
        _divided("pixel_unshuffle", "width", width, factor),
    )

    def value(*axes: Expr) -> Expr:
        *outer, c, i, j = axes
        area = factor * factor
        return x[(*outer, c // area, i * factor + c % area // factor, j * factor + c % factor)]

    return single((x,), compute("pixel_unshuffle", shape, value))


def _channel_shuffle(x: Operand, *, groups: int) -> Definition:
    require_dtype("channel_shuffle", x, "data")
    require_rank("channel_shuffle", x, at_least=2)
    width = build.index(_divided("channel_shuffle", "channels", x.shape[1], groups))

    def value(n: Expr, c: Expr, *space: Expr) -> Expr:
        return x[(n, (c % groups) * width + c // groups, *space)]

    return single((x,), compute("channel_shuffle", x.shape, value))


def _im2col(x: Operand, *, kernel: Sequence[int], stride: Numbers, padding: Padding, dilation: Numbers) -> Definition:
    name, rank = "im2col", len(kernel)
    require_dtype(name, x, "data")
    require_rank(name, x, at_least=rank + 1)
    windows = windows_of(name, x.shape, kernel, stride, padding, dilation)
    *lead, channels = windows.lead
    counts = windows.counts

    def value(*axes: Expr) -> Expr:
        *outer, row, column = axes
        channel, *taps = reshape_indices((channels, *kernel), (channels * product(kernel),), (row,))
        places = windows.places(reshape_indices(counts, (product(counts),), (column,)), taps)
        return build.select(windows.legal(places), x[(*outer, channel, *places)], build.const(0, x.dtype))

    return single((x,), compute(name, (*lead, channels * product(kernel), product(counts)), value))


def _col2im(
    x: Operand,
    *,
    size: Sequence[Dim],
    kernel: Sequence[int],
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
) -> Definition:
    name = "col2im"
    require_dtype(name, x, "number")
    require_rank(name, x, at_least=2)
    *lead, rows, columns = x.shape
    windows = windows_of(name, size, kernel, stride, padding, dilation)
    counts = windows.counts
    same_extent(columns, product(counts), "operator col2im: columns of x against windows")
    channels = _divided(name, "rows of x", rows, int(product(kernel)))  # type: ignore[arg-type]  # taps are ints

    def value(*axes: Expr) -> Expr:
        *outer, channel = axes[: len(lead) + 1]
        out = axes[len(lead) + 1 :]

        def term(*taps: Expr) -> Expr:
            numbers, legal = windows.above(out, taps)
            (row,) = reshape_indices((channels * product(kernel),), (channels, *kernel), (channel, *taps))
            (column,) = reshape_indices((product(counts),), counts, numbers)
            element = widen(x[(*outer, row, column)])
            return build.select(legal, element, build.const(0, element.dtype))

        return build.cast(reduce(SUM, kernel, term), x.dtype)

    return single((x,), compute(name, (*lead, channels, *size), value))


_FACTOR = Attribute("factor", doc="pixels an axis that share one position")
_KERNEL = Attribute("kernel", doc="patch extents, one a spatial axis")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="pixel_shuffle",
        inputs=("x",),
        attributes=(_FACTOR,),
        define=_pixel_shuffle,
        doc="[..., c * r * r, h, w] -> [..., c, h * r, w * r]; torch.nn.functional.pixel_shuffle.",
    ),
    OperatorSpec(
        name="pixel_unshuffle",
        inputs=("x",),
        attributes=(_FACTOR,),
        define=_pixel_unshuffle,
        doc="[..., c, h * r, w * r] -> [..., c * r * r, h, w]; torch.nn.functional.pixel_unshuffle.",
    ),
    OperatorSpec(
        name="channel_shuffle",
        inputs=("x",),
        attributes=(Attribute("groups"),),
        define=_channel_shuffle,
        doc="Channels of x[n, c, ...] dealt out in turn to `groups` groups; torch.nn.functional.channel_shuffle.",
    ),
    OperatorSpec(
        name="im2col",
        inputs=("x",),
        attributes=(_KERNEL, STRIDE, PADDING, DILATION),
        define=_im2col,
        doc="Patches of x[..., c, *space] as columns: [..., c * taps, windows]; torch.nn.functional.unfold.",
    ),
    OperatorSpec(
        name="col2im",
        inputs=("x",),
        attributes=(Attribute("size", doc="extents of the image"), _KERNEL, STRIDE, PADDING, DILATION),
        define=_col2im,
        doc="Columns of patches summed where they overlap: [..., c * taps, windows] -> [..., c, *size]; "
        "torch.nn.functional.fold. Numbers, f16 and bf16 summed in f32.",
    ),
)
