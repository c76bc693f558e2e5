"""The routine: connected regions of images, an algorithm without an index formula, once in numpy and once as a program.

The program is thread IR and serves every target: hidet's fallback nest runs it where nobody offers a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.compute.routine import RoutineSpec
from hidet.dims import product
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten

LABEL_REGIONS = RoutineSpec(
    name="morphology.label_regions",
    operands=("mask",),
    results=("labels",),
    reference="hidet_example_morphology.label_regions:label_in_numpy",
    program="hidet_example_morphology.label_regions:program",
    doc="Connected regions of images by the positions of their first pixels.",
)


def label_in_numpy(arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """A flood fill from each first pixel."""
    (mask,) = arrays
    labels = np.zeros(mask.shape, np.int32)
    height, width = mask.shape[-2:]
    for image, result in zip(mask.reshape(-1, height, width), labels.reshape(-1, height, width), strict=True):
        for start in np.flatnonzero(image):
            waiting = [divmod(int(start), width)]
            while waiting:
                y, x = waiting.pop()
                if 0 <= y < height and 0 <= x < width and image[y, x] and result[y, x] == 0:
                    result[y, x] = start + 1
                    waiting += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    return [labels]


def program(site: RoutineSite) -> RoutineKernel:
    """A work item an image: each pixel takes the smallest number around it, forth and back, until nothing changes."""
    (mask,), (labels,) = site.stage.operands, site.stage.results
    height, width = (site.size(extent) for extent in mask.shape[-2:])
    image = build.size_var("image")
    lead = unflatten(image, [site.size(extent) for extent in mask.shape[:-2]])
    k = IRBuilder()

    def place(position: Expr) -> tuple[Expr, ...]:
        return (*lead, position // width, position % width)

    with k.for_range("first", height * width) as position:
        number = build.cast(position + 1, dtypes.i32)
        k.emit(site.write(labels, place(position), build.select(site.read(mask, place(position)), number, 0)))
    is_going = k.let("is_going", build.const(True, dtypes.boolean))
    with k.while_(is_going):
        k.assign(is_going, build.const(False, dtypes.boolean))
        for is_back in (False, True):
            with k.for_range("step", height * width) as step:
                position = k.let("position", height * width - 1 - step if is_back else step)
                own = k.let("own", site.read(labels, place(position)))
                with k.if_(build.binary("gt", own, 0)):
                    least = k.let("least", own)
                    x = k.let("x", position % width)
                    neighbours = (
                        (-width, build.binary("ge", position, width)),
                        (width, build.binary("lt", position, (height - 1) * width)),
                        (build.index(-1), build.binary("gt", x, 0)),
                        (build.index(1), build.binary("lt", x, width - 1)),
                    )
                    for distance, is_there in neighbours:
                        with k.if_(is_there):
                            other = k.let("other", site.read(labels, place(position + distance)))
                            with k.if_(build.binary("gt", other, 0)):
                                k.assign(least, build.minimum(least, other))
                    with k.if_(build.binary("lt", least, own)):
                        k.emit(site.write(labels, place(position), least))
                        k.assign(is_going, build.const(True, dtypes.boolean))
    return RoutineKernel(image, product(mask.shape[:-2]), k.body)
