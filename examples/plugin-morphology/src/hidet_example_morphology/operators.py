"""The operators: what they mean on every target. hidet derives numpy references and fallback loops from this."""

from __future__ import annotations

from hidet import dtypes
from hidet.compute.definition import MAX, Definition, Operand, Routine, compute, reduce, single
from hidet.errors import ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet_example_morphology.label_regions import LABEL_REGIONS as LABEL_REGIONS_ROUTINE


def define_dilate(image: Operand, *, size: int) -> Definition:
    """image[n, c, h, w] -> the greatest of the size x size pixels around each; there are none beyond the borders."""
    if image.rank != 4:
        raise ShapeError(f"dilate: image {image.shape} must be [n, c, h, w]")
    if size < 1 or size % 2 == 0:
        raise ShapeError(f"dilate: size is {size}, expected an odd number: a window has a centre")
    height, width = image.shape[2:]
    reach = size // 2

    def value(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        def pixel(dy: Expr, dx: Expr) -> Expr:
            row, column = y + dy - reach, x + dx - reach
            is_inside = build.logical_and(
                build.binary("ge", row, 0),
                build.binary("lt", row, build.index(height)),
                build.binary("ge", column, 0),
                build.binary("lt", column, build.index(width)),
            )
            return build.select(is_inside, image[n, c, row, column], MAX.identity((image.dtype,))[0])

        return reduce(MAX, (size, size), pixel)

    return single((image,), compute("dilate", image.shape, value))


# "follows": where images come channels-last, as convolutions make them, the result lies so, too, and nothing is copied.
DILATE = OperatorSpec(
    name="dilate",
    inputs=("image",),
    attributes=(Attribute("size", 3),),
    define=define_dilate,
    layout="follows",
    doc="Greatest of the size x size pixels around each pixel of image[n, c, h, w], without those beyond the borders.",
)


def define_label_regions(mask: Operand) -> Definition:
    """mask[..., h, w] bool -> i32: a number for each connected region of an image, 0 where the mask is not set."""
    if mask.rank < 2 or mask.dtype is not dtypes.boolean:
        raise ShapeError(f"label_regions: mask is {mask.dtype}{list(mask.shape)}, expected bool[..., h, w]")
    labels = Operand("labels", dtypes.i32, mask.shape)
    return single((mask,), Routine(LABEL_REGIONS_ROUTINE, (mask,), (labels,)))


LABEL_REGIONS = OperatorSpec(
    name="label_regions",
    inputs=("mask",),
    kind="routine",
    define=define_label_regions,
    doc="Connected regions of mask[..., h, w] (4 neighbours), by the position of their first pixel + 1; 0 elsewhere.",
)
