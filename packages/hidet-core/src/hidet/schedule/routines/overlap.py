"""suppress: a work item orders the boxes of one image and class by score, and keeps those that overlap no better one.

The greedy algorithm of Felzenszwalb et al., "Object detection with discriminatively trained part based models", 2010,
section 7.2. Each candidate is compared with the boxes kept so far alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims, dtypes
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Break, Declare, For, If, Stmt, Store, While
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
    position, place, found = (build.size_var(name) for name in ("position", "place", "found"))
    sort_key = sort_keys.sort_key(site.read(scores, (image, kind, position)), position)
    stores = [Store(part, (start + position,), value) for part, value in zip(parts, sort_key, strict=True)]
    order, sorted_start = merge_sort(parts, start, count)
    candidate = build.size_var("candidate")
    score = site.read(scores, (image, kind, candidate))
    is_kept = Var("is_kept", dtypes.boolean)

    def corners(box: Expr) -> list[Expr]:
        return _corners([site.read(boxes, (image, box, build.index(n))) for n in range(4)], attributes["centred"])

    other = build.size_var("other")
    overlaps = _overlap(corners(candidate), corners(build.load(kept, first + other))) > site.read(threshold, ())
    compare = While(
        build.logical_and(is_kept, other < found),
        build.seq([If(overlaps, Assign(is_kept, build.const(False, dtypes.boolean))), Assign(other, other + 1)]),
    )
    keep = build.seq([
        Store(kept, (first + found,), candidate),
        site.write(result, (image, kind, found), candidate),
        Assign(found, found + 1),
    ])  # fmt: skip
    is_over = build.binary("lor", found >= build.cast(site.read(most, ()), build.INDEX), score <= site.read(least, ()))
    choose: list[Stmt] = [
        Declare(candidate, sort_keys.position([build.load(part, sorted_start + place) for part in parts])),
        If(is_over, Break()),
        # NaN comes first in the order, and is no score.
        Declare(is_kept, build.unary("lnot", build.unary("isnan", score))),
        Declare(other, build.index(0)),
        compare,
        If(is_kept, keep),
        Assign(place, place + 1),
    ]
    body = [
        For(position, build.index(0), count, build.seq(stores)),
        *order,
        Declare(found, build.index(0)),
        Declare(place, build.index(0)),
        While(place < count, build.seq(choose)),
        While(
            found < count,
            build.seq([site.write(result, (image, kind, found), build.index(-1)), Assign(found, found + 1)]),
        ),
    ]
    return RoutineKernel(item, images * classes, build.seq(body))


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
