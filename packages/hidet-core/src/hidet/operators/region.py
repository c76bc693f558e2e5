"""Reading images x[n, c, *space] in regions and at places that are data: boxes, deformed windows, affine grids.

Places and weights are in the arithmetic type. Places between elements are interpolated linearly along every axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet.compute.definition import MAX, SUM, Definition, Operand, compute, number, reduce, single
from hidet.dims import Dim, floordiv, product
from hidet.dtypes import DType
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec, Position
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.interpolate import Tap, floor_index, real, weighted_sum
from hidet.operators.reshape import reshape_indices
from hidet.operators.rules import (
    arithmetic_dtype,
    present,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    shape_text,
    widen,
)
from hidet.operators.windows import DILATION, PADDING, STRIDE, Numbers, Padding, windows_of


def _checked_boxes(name: str, x: Operand, boxes: Operand, images: Operand) -> Dim:
    """The number of boxes."""
    require_dtype(name, x, "float")
    require_same_dtype(name, (x, boxes))
    require_dtype(name, images, "int")
    for operand, rank in ((x, 4), (boxes, 2), (images, 1)):
        require_rank(name, operand, at_least=rank, at_most=rank)
    if boxes.shape[1] != 4:
        raise ShapeError(f"operator {name}: boxes of shape {shape_text(boxes.shape)}, expected [boxes, 4]")
    return same_extent(images.shape[0], boxes.shape[0], f"operator {name}: image numbers against boxes")


def _image_numbers(types: Sequence[Any], attrs: Attrs) -> Sequence[Position]:
    """Input 2 says where along axis 0 of input 0."""
    x: TensorType = types[0]
    return (Position(2, x.shape[0], wraps=False),)


def _near_taps(place: Expr, extent: Dim) -> list[Tap]:
    """The two elements around a place of at least 0; beyond the last element they are that one."""
    last = build.index(extent) - 1
    low = build.minimum(floor_index(place), last)
    high = build.minimum(low + 1, last)
    weight = build.select(low < last, place - real(low, place.dtype), number(0, place.dtype))
    return [(low, 1 - weight), (high, weight)]


def _roi_align(
    x: Operand,
    boxes: Operand,
    images: Operand,
    *,
    size: tuple[int, int],
    scale: float,
    samples: int,
    centred: bool,
    mode: str,
) -> Definition:
    name = "roi_align"
    count = _checked_boxes(name, x, boxes, images)
    if mode not in ("avg", "max"):
        raise UnsupportedOp(f"operator {name} has no mode {mode!r}; it has: avg, max")
    wide, space = arithmetic_dtype(x.dtype), x.shape[2:]

    def value(r: Expr, c: Expr, *out: Expr) -> Expr:
        image = build.cast(images[r], build.INDEX)
        starts, steps, counts = [], [], []
        for axis in range(2):
            # Boxes are x1, y1, x2, y2: the last axis first.
            low, high = (widen(boxes[r, 1 - axis + end]) * scale - (0.5 if centred else 0.0) for end in (0, 2))
            length = high - low if centred else build.maximum(high - low, 1)
            step = length / size[axis]
            starts.append(low + real(out[axis], wide) * step)
            steps.append(step)
            wanted = build.cast(build.unary("ceil", step), build.INDEX)
            counts.append(build.index(samples) if samples > 0 else wanted)

        def sample(*taps: Expr) -> Expr:
            places = [
                start + (real(tap, wide) + 0.5) * step / real(number_, wide)
                for start, tap, step, number_ in zip(starts, taps, steps, counts, strict=True)
            ]
            rows = list(zip(places, space, strict=True))
            legal = build.logical_and(*[t for p, n in rows for t in (p >= -1, p <= real(build.index(n), wide))])
            near = [_near_taps(build.maximum(build.select(legal, p, number(0, wide)), 0), n) for p, n in rows]

            def read(places: Sequence[Expr]) -> Expr:
                return widen(x[(image, c, *places)])

            found = weighted_sum(near, read) if mode == "avg" else _largest_share(near, read)
            return build.select(legal, found, number(0, wide))

        if mode == "max":
            is_empty = build.binary("lor", counts[0] < 1, counts[1] < 1)
            return build.cast(build.select(is_empty, number(0, wide), reduce(MAX, counts, sample)), x.dtype)
        total = reduce(SUM, counts, sample)
        return build.cast(total / real(build.maximum(counts[0] * counts[1], 1), wide), x.dtype)

    return single((x, boxes, images), compute(name, (count, x.shape[1], *size), value))


def _largest_share(taps: Sequence[Sequence[Tap]], read: object) -> Expr:
    """The largest of the four elements around a place, each times its weight."""
    assert callable(read)
    shares = [read((i, j)) * (a * b) for i, a in taps[0] for j, b in taps[1]]
    largest: Expr = shares[0]
    for share in shares[1:]:
        largest = build.maximum(largest, share)
    return largest


def _roi_pool(x: Operand, boxes: Operand, images: Operand, *, size: tuple[int, int], scale: float) -> Definition:
    """Girshick, "Fast R-CNN", 2015, section 2.1."""
    name = "roi_pool"
    count = _checked_boxes(name, x, boxes, images)
    wide, space = arithmetic_dtype(x.dtype), x.shape[2:]

    def value(r: Expr, c: Expr, *out: Expr) -> Expr:
        image = build.cast(images[r], build.INDEX)
        starts, counts = [], []
        for axis in range(2):
            ends = [widen(boxes[r, 1 - axis + end]) * scale for end in (0, 2)]
            first, last = (floor_index(end + 0.5) for end in ends)
            step = real(build.maximum(last - first + 1, 1), wide) / size[axis]
            low = floor_index(real(out[axis], wide) * step) + first
            high = build.cast(build.unary("ceil", (real(out[axis], wide) + 1) * step), build.INDEX) + first
            limit = build.index(space[axis])
            start = build.minimum(build.maximum(low, 0), limit)
            starts.append(start)
            counts.append(build.minimum(build.maximum(high, 0), limit) - start)

        def element(*taps: Expr) -> Expr:
            return widen(x[(image, c, *[start + tap for start, tap in zip(starts, taps, strict=True)])])

        is_empty = build.binary("lor", counts[0] < 1, counts[1] < 1)
        return build.cast(build.select(is_empty, number(0, wide), reduce(MAX, counts, element)), x.dtype)

    return single((x, boxes, images), compute(name, (count, x.shape[1], *size), value))


def _affine_grid(theta: Operand, *, space: Sequence[Dim], align_corners: bool) -> Definition:
    name, rank = "affine_grid", len(space)
    require_dtype(name, theta, "float")
    require_rank(name, theta, at_least=3, at_most=3)
    if theta.shape[1:] != (rank, rank + 1):
        raise ShapeError(f"operator {name}: theta of shape {shape_text(theta.shape)}, expected [n, {rank}, {rank + 1}]")
    wide = arithmetic_dtype(theta.dtype)

    def coordinate(i: Expr, extent: Dim) -> Expr:
        width = real(build.index(extent), wide)
        if not align_corners:
            return (real(i, wide) * 2 + 1) / width - 1
        return build.select(width > 1, real(i, wide) * 2 / (width - 1) - 1, number(0, wide))

    def value(n: Expr, *axes: Expr) -> Expr:
        *out, row = axes
        total = widen(theta[n, row, rank])
        for column, (i, extent) in enumerate(reversed(list(zip(out, space, strict=True)))):
            total = total + widen(theta[n, row, column]) * coordinate(i, extent)
        return build.cast(total, theta.dtype)

    return single((theta,), compute(name, (theta.shape[0], *space, rank), value))


def _deform_columns(
    x: Operand,
    offset: Operand,
    mask: Operand | None = None,
    *,
    kernel: Sequence[int],
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
) -> Definition:
    """Zhu et al., "Deformable ConvNets v2", 2019, equation 1, before the weights."""
    name, rank = "deform_columns", len(kernel)
    require_dtype(name, x, "float")
    require_same_dtype(name, present(x, offset, mask))
    for operand in present(x, offset, mask):
        require_rank(name, operand, at_least=rank + 2, at_most=rank + 2)
    batch, channels, *space = x.shape
    taps_count = int(product(kernel))  # type: ignore[arg-type]  # taps are ints
    windows = windows_of(name, x.shape, kernel, stride, padding, dilation)
    counts = windows.counts
    _require_offsets(name, offset, (batch, groups * taps_count * rank, *counts))
    if mask is not None:
        _require_offsets(name, mask, (batch, groups * taps_count, *counts))
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise ShapeError(f"operator {name}: {channels} channels do not divide into {groups} groups")
    width = build.index(floordiv(channels, groups))
    wide = arithmetic_dtype(x.dtype)

    def value(n: Expr, row: Expr, column: Expr) -> Expr:
        channel, *taps = reshape_indices((channels, *kernel), (channels * taps_count,), (row,))
        out = reshape_indices(counts, (product(counts),), (column,))
        tap = (channel // width) * taps_count + row % taps_count
        fixed = windows.places(out, taps)
        near: list[list[Tap]] = []
        for axis in range(rank):
            moved = widen(offset[(n, tap * rank + axis, *out)])
            near.append(_open_taps(real(fixed[axis], wide) + moved, space[axis], wide))

        def read(places: Sequence[Expr]) -> Expr:
            rows = zip(places, space, strict=True)
            legal = build.logical_and(*[t for p, extent in rows for t in (p >= 0, p < build.index(extent))])
            return build.select(legal, widen(x[(n, channel, *places)]), number(0, wide))

        found = weighted_sum(near, read)
        return build.cast(found if mask is None else found * widen(mask[(n, tap, *out)]), x.dtype)

    shape = (batch, channels * taps_count, product(counts))
    return single(present(x, offset, mask), compute(name, shape, value))


def _open_taps(place: Expr, extent: Dim, wide: DType) -> list[Tap]:
    """The two elements around a place anywhere; far places are brought near the axis, where nothing is either."""
    near = build.minimum(build.maximum(place, -4), real(build.index(extent) + 4, wide))
    low = floor_index(near)
    weight = near - build.unary("floor", near)
    return [(low, 1 - weight), (low + 1, weight)]


def _require_offsets(name: str, operand: Operand, expected: tuple[Dim, ...]) -> None:
    for axis, (ours, theirs) in enumerate(zip(operand.shape, expected, strict=True)):
        same_extent(ours, theirs, f"operator {name}: {operand.name} of shape {shape_text(operand.shape)}, axis {axis}")


_SIZE = Attribute("size", doc="extents of each result: height and width")
_SCALE = Attribute("scale", 1.0, "elements of x a unit of the boxes")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="roi_align",
        inputs=("x", "boxes", "images"),
        attributes=(
            _SIZE,
            _SCALE,
            Attribute(
                "samples", 0, "places averaged an axis of a result element; 0 takes as many as it covers elements"
            ),
            Attribute("centred", True, "whether places count from the centre of the first element, else from its edge"),
            Attribute("mode", "avg", "avg; or max, of the weighted neighbours of all places, as ONNX has it"),
        ),
        define=_roi_align,
        positions=_image_numbers,
        doc="x[n, c, h, w] in boxes[r, 4] (x1, y1, x2, y2) of images[r] -> [r, c, *size]; ONNX RoiAlign, torchvision "
        "roi_align. One floating-point type; integer image numbers.",
    ),
    OperatorSpec(
        name="roi_pool",
        inputs=("x", "boxes", "images"),
        attributes=(_SIZE, _SCALE),
        define=_roi_pool,
        positions=_image_numbers,
        doc="Largest elements of x[n, c, h, w] in the parts of boxes[r, 4] (x1, y1, x2, y2) of images[r], 0 where "
        "there is none -> [r, c, *size]; ONNX MaxRoiPool, torchvision roi_pool. One floating-point type; integer image "
        "numbers.",
    ),
    OperatorSpec(
        name="affine_grid",
        inputs=("theta",),
        attributes=(
            Attribute("space", doc="extents of the result's spatial axes"),
            Attribute("align_corners", False, "whether -1 and 1 are the centres of the outermost elements, else edges"),
        ),
        define=_affine_grid,
        doc="Places theta[n, d, d + 1] @ (x, y, ..., 1) for every element of an image of extents `space` -> "
        "[n, *space, d], as grid_sample takes them; ONNX AffineGrid, torch.nn.functional.affine_grid.",
    ),
    OperatorSpec(
        name="deform_columns",
        inputs=("x", "offset", "mask?"),
        attributes=(
            Attribute("kernel", doc="window extents, one a spatial axis"),
            STRIDE,
            PADDING,
            DILATION,
            Attribute("groups", 1, "groups of channels that have offsets of their own"),
        ),
        define=_deform_columns,
        doc="im2col of x[n, c, *space] with every tap moved by offset[n, groups * taps * d, *windows] and scaled by "
        "mask[n, groups * taps, *windows] -> [n, c * taps, windows]; the first half of ONNX DeformConv. One type.",
    ),
)
