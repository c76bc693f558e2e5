"""suppress: a work item orders the boxes of one image and class by score, and keeps those that overlap no better one.

The greedy algorithm of Felzenszwalb et al., "Object detection with discriminatively trained part based models", 2010,
section 7.2. Each candidate is compared with the boxes kept so far alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr
from hidet.schedule.routines.merge_sort import merge_sort
from hidet.schedule.routines.site import RoutineKernel, RoutineSite
from hidet.schedule.routines.sort_key import SortKeyFormat


def suppress_program(site: RoutineSite) -> RoutineKernel:
    """Result: positions of the boxes kept, best score first, then -1."""
    boxes, scores, most, threshold, least = site.stage.operands
    attributes = site.stage.attribute_values()
    (result,) = site.stage.results
    images, classes, length = scores.shape
    item, count = build.size_var("item"), site.size(length)
    image, kind = item // site.size(classes), item % site.size(classes)
    sort_keys = SortKeyFormat(scores.dtype, descending=True)
    total = dims.product((images, classes, length))
    parts = [site.scratch(f"sort_keys{n}", dtype, total * 2) for n, dtype in enumerate(sort_keys.parts)]
    kept = site.scratch("kept", dtypes.i64, total)
    start, first = item * (count * 2), item * count
    k = IRBuilder()
    with k.for_range("position", count) as position:
        sort_key = sort_keys.sort_key(site.read(scores, (image, kind, position)), position)
        k.store_each(parts, start + position, sort_key)
    sorted_start = merge_sort(k, parts, start, count)

    def corners(box: Expr) -> list[Expr]:
        return _corners([site.read(boxes, (image, box, build.index(n))) for n in range(4)], attributes["centred"])

    found, place = k.let("found", build.index(0)), k.let("place", build.index(0))
    with k.while_(place < count):
        candidate = k.let("candidate", sort_keys.position([build.load(part, sorted_start + place) for part in parts]))
        score = site.read(scores, (image, kind, candidate))
        has_most = found >= build.cast(site.read(most, ()), build.INDEX)
        with k.if_(build.binary("lor", has_most, score <= site.read(least, ()))):
            k.break_()
        # NaN comes first in the order, and is no score.
        is_kept = k.let("is_kept", build.unary("lnot", build.unary("isnan", score)))
        other = k.let("other", build.index(0))
        with k.while_(build.logical_and(is_kept, other < found)):
            overlap = _overlap(corners(candidate), corners(build.load(kept, first + other)))
            with k.if_(overlap > site.read(threshold, ())):
                k.assign(is_kept, build.const(False, dtypes.boolean))
            k.assign(other, other + 1)
        with k.if_(is_kept):
            k.store(kept, first + found, candidate)
            k.emit(site.write(result, (image, kind, found), candidate))
            k.assign(found, found + 1)
        k.assign(place, place + 1)
    with k.while_(found < count):
        k.emit(site.write(result, (image, kind, found), build.index(-1)))
        k.assign(found, found + 1)
    return RoutineKernel(item, images * classes, k.body)


def _corners(box: Sequence[Expr], centred: bool) -> list[Expr]:
    """Lowest and highest coordinates of a box, given by two opposite corners, or by its centre and size."""
    a, b, c, d = box
    if centred:
        return [a - c / 2, b - d / 2, a + c / 2, b + d / 2]
    return [build.minimum(a, c), build.minimum(b, d), build.maximum(a, c), build.maximum(b, d)]


def _overlap(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """Intersection over union; 0 for boxes that do not meet."""
    sides = [build.maximum(build.minimum(a[n + 2], b[n + 2]) - build.maximum(a[n], b[n]), 0) for n in range(2)]
    shared = sides[0] * sides[1]
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return build.select(shared > 0, shared / union, shared)
