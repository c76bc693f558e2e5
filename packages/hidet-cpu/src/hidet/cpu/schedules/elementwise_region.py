"""Cutting the index space of an element-wise task where its formula changes.

    out[i] = a[i] if i < n else b[i - n]          becomes          out[0:n] = a[:], out[n:] = b[:]
    out[i] = x[i // r]                            becomes          out[o * r + q] = x[o]

Conditions on one index that choose what is read make two regions, each with the chosen formula alone; divisions of an
index make two nested axes of one. What remains of joins, borders, rotations and repetitions are plain strided copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Const, Expr, Select, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import refold, rewrite, substitute, walk
from hidet.schedule.affine import affine_index, as_dim

MOST_REGIONS = 256
"""Regions of one result. What is left of a formula then keeps its conditions."""

# Along the innermost axis a shorter piece is cheaper to compute under a mask than in a loop of its own.
_SHORTEST_INNER_PIECE = 8

# A rotation meets the end of its axis once; more often, the divisions stay.
_MOST_TURNS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A box of the result: `value` at `axes` goes to element offset + sum(axis * stride) of the result's memory.

    axes: outermost first in memory order, each from 0 to its extent.
    """

    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim
    value: Expr

    def position(self, axis: Var) -> int:
        """Number of an axis."""
        return next(n for n, var in enumerate(self.axes) if var is axis)

    def cut(self, axis: Var, start: Dim, extent: Dim) -> Region:
        """The part of the region from `start` on."""
        n = self.position(axis)
        moved = axis
        value = self.value
        if start != 0:
            moved = build.size_var(axis.name)
            value = substitute(value, {axis: moved + build.index(start)})
        return Region(
            (*self.axes[:n], moved, *self.axes[n + 1 :]),
            (*self.extents[:n], extent, *self.extents[n + 1 :]),
            self.strides,
            self.offset + self.strides[n] * start,
            value,
        )


@dataclass(frozen=True, slots=True)
class Threshold:
    """The condition axis < limit, or axis == limit if `is_equality`."""

    axis: Var
    limit: Dim
    is_equality: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold that is worth a region of its own. `is_place`: it decides where something is read, not what."""

    threshold: Threshold
    is_place: bool


def cut_regions(region: Region, most: int = MOST_REGIONS) -> list[Region]:
    """Regions that together are `region`, at most `most`; provably empty ones are left out."""
    if not any(map(_may_change, walk(region.value))):
        return [] if any(extent == 0 for extent in region.extents) else [region]
    done: list[Region] = []
    pending = [region]
    while pending:
        current = _without_divisions(pending.pop())
        if any(extent == 0 for extent in current.extents):
            continue
        found = _first_threshold(current) if len(done) + len(pending) + 3 <= most else None
        if found is None:
            done.append(current)
        else:
            pending += reversed(_cut(current, found))
    return done


def _may_change(node: IRNode) -> bool:
    """Whether a formula with this node may differ between parts of the index space: divisions and comparisons."""
    return isinstance(node, Binary) and node.op in _CHANGING and node.a.type is build.INDEX


_CHANGING = frozenset({"floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"})


# --- conditions ------------------------------------------------------------------------------------------------------


def _first_threshold(region: Region) -> Threshold | None:
    """The condition worth cutting at whose axis is outermost."""
    found = [cut.threshold for cut in _cuts(region) if _is_worthwhile(region, cut)]
    return min(found, key=lambda threshold: region.position(threshold.axis), default=None)


def _cuts(region: Region) -> Iterator[Cut]:
    """Conditions on one axis that decide what is read, and places where a rotation starts anew."""
    axes = dict(zip(region.axes, region.extents, strict=True))
    for node in walk(region.value):
        if isinstance(node, Select) and (node.type is build.INDEX or _reads(node.a) or _reads(node.b)):
            for part in walk(node.condition):
                found = _threshold(part)
                if found is not None and found[0].axis in axes:
                    yield Cut(found[0], is_place=node.type is build.INDEX)
        elif isinstance(node, Binary) and node.op in ("floordiv", "mod"):
            limit = _turn(node, axes)
            if limit is not None:
                yield Cut(limit, is_place=True)


def _reads(value: Expr) -> bool:
    return any(isinstance(node, Access) for node in walk(value))


def _threshold(node: IRNode) -> tuple[Threshold, bool] | None:
    """A comparison of an axis with a size: the threshold, and whether the comparison is its negation."""
    if (
        not isinstance(node, Binary)
        or node.op not in ("lt", "le", "gt", "ge", "eq", "ne")
        or node.a.type is not build.INDEX
    ):
        return None
    difference = affine_index(node.a - node.b)
    if difference is None or len(difference.coefficients) != 1:
        return None
    ((axis, coefficient),) = difference.coefficients.items()
    if coefficient != 1 and coefficient != -1:
        return None
    # coefficient * axis + constant (op) 0
    constant = difference.constant
    if node.op in ("eq", "ne"):
        return Threshold(axis, constant * -coefficient, True), node.op == "ne"
    rising = coefficient == 1
    limit = -constant if rising else constant
    is_strict = node.op in ("lt", "gt")
    is_below = (node.op in ("lt", "le")) == rising
    # axis < limit and axis >= limit stand as they are; axis <= limit and axis > limit are those of limit + 1
    return Threshold(axis, limit if is_strict == is_below else limit + 1), not is_below


def _turn(node: Binary, axes: Mapping[Var, Dim]) -> Threshold | None:
    """Where the quotient of a division of axis + constant first changes, if it rarely does."""
    bounds = _constant_bounds(node, axes)
    if bounds is None:
        return None
    low, high, divisor, axis, constant = bounds
    first, last = low // divisor, high // divisor
    if axis is None or first == last or last - first > _MOST_TURNS:
        return None
    return Threshold(axis, (first + 1) * divisor - constant)


def _constant_bounds(node: Binary, axes: Mapping[Var, Dim]) -> tuple[int, int, int, Var | None, int] | None:
    """(least and greatest dividend, divisor, the only axis if its coefficient is 1, constant), where all are known."""
    form = affine_index(node.a)
    if form is None or not isinstance(node.b, Const) or not isinstance(node.b.value, int) or node.b.value <= 0:
        return None
    if not isinstance(form.constant, int):
        return None
    low = high = form.constant
    for axis, coefficient in form.coefficients.items():
        extent = axes.get(axis)
        if not isinstance(extent, int) or not isinstance(coefficient, int):
            return None
        reach = coefficient * (extent - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    only = next(iter(form.coefficients)) if list(form.coefficients.values()) == [1] else None
    return low, high, node.b.value, only, form.constant


def _is_worthwhile(region: Region, cut: Cut) -> bool:
    """Whether both pieces are long enough. A computed place costs a gather, so that any piece without it is better."""
    found = cut.threshold
    n = region.position(found.axis)
    if n < len(region.axes) - 1 or cut.is_place:
        return True
    pieces = (found.limit, region.extents[n] - found.limit)
    return not found.is_equality and not any(isinstance(p, int) and p < _SHORTEST_INNER_PIECE for p in pieces)


def _cut(region: Region, found: Threshold) -> list[Region]:
    """The pieces on either side of a threshold, with what is known there put into the formula."""
    extent = region.extents[region.position(found.axis)]
    start = _between(found.limit, extent)
    below = _assume(region, found, found.is_equality is False).cut(found.axis, 0, start)
    if not found.is_equality:
        return [below, _assume(region, found, False).cut(found.axis, start, extent - start)]
    end = _between(found.limit + 1, extent)
    at = _assume(region, found, True).cut(found.axis, start, end - start)
    return [below, at, _assume(region, found, False).cut(found.axis, end, extent - end)]


def _between(limit: Dim, extent: Dim) -> Dim:
    """The limit held between 0 and the extent."""
    low = limit if dims.prove_le(0, limit) else dims.maximum(0, limit)
    return low if dims.prove_le(low, extent) else dims.minimum(low, extent)


def _assume(region: Region, known: Threshold, truth: bool) -> Region:
    """The region with a condition decided wherever it occurs."""

    def change(node: IRNode) -> IRNode | None:
        found = _threshold(node)
        if found is not None and found[0] == known:
            return build.const(truth != found[1], dtypes.boolean)
        return refold(node)

    return replace(region, value=rewrite(region.value, change))


# --- divisions -------------------------------------------------------------------------------------------------------


def _without_divisions(region: Region) -> Region:
    """Divisions of axes resolved by splitting the axes, quotients that do not change by their value."""
    while True:
        split = _split_axis(region)
        if split is None:
            break
        region = split
    axes = dict(zip(region.axes, region.extents, strict=True))

    def change(node: IRNode) -> IRNode | None:
        if isinstance(node, Binary) and node.op in ("floordiv", "mod"):
            bounds = _constant_bounds(node, axes)
            if bounds is not None and bounds[0] // bounds[2] == bounds[1] // bounds[2]:
                quotient = bounds[0] // bounds[2]
                return build.index(quotient) if node.op == "floordiv" else node.a - quotient * bounds[2]
        return _decide(node, axes)

    return replace(region, value=rewrite(region.value, change))


def _decide(node: IRNode, axes: Mapping[Var, Dim]) -> IRNode | None:
    """A comparison that every index of the region answers alike, as a constant."""
    found = _threshold(node)
    if found is None or found[0].axis not in axes:
        return refold(node)
    threshold, is_negated = found
    limit, extent = threshold.limit, axes[threshold.axis]
    if dims.prove_le(extent, limit):
        return build.const((not threshold.is_equality) != is_negated, dtypes.boolean)
    if dims.prove_le(limit, -1 if threshold.is_equality else 0):
        return build.const(is_negated, dtypes.boolean)
    return refold(node)


def _split_axis(region: Region) -> Region | None:
    """The region with one axis that is divided by a divisor of its extent made into two axes."""
    divided: dict[IRNode, list[Dim]] = {}
    for node in walk(region.value):
        if isinstance(node, Binary) and node.op in ("floordiv", "mod") and isinstance(node.a, Var):
            divisor = as_dim(node.b)
            if divisor is not None:
                divided.setdefault(node.a, []).append(divisor)
    for n, (axis, extent) in enumerate(zip(region.axes, region.extents, strict=True)):
        inner = _common_divisor(divided.get(axis, ()), extent)
        if inner is None:
            continue
        outer, rest = build.size_var(axis.name), build.size_var(axis.name)
        return Region(
            (*region.axes[:n], outer, rest, *region.axes[n + 1 :]),
            (*region.extents[:n], dims.floordiv(extent, inner), inner, *region.extents[n + 1 :]),
            (*region.strides[:n], region.strides[n] * inner, region.strides[n], *region.strides[n + 1 :]),
            region.offset,
            _replace_axis(region.value, axis, outer, rest, inner),
        )
    return None


def _common_divisor(divisors: Sequence[Dim], extent: Dim) -> Dim | None:
    """One of the divisors that divides the others and the extent, more often than once."""
    for candidate in divisors:
        if candidate == 1 or dims.prove_le(candidate, 0) is not False or dims.prove_le(extent, candidate) is True:
            continue
        if all(_divides(candidate, other) for other in (*divisors, extent)):
            return candidate
    return None


def _divides(divisor: Dim, dividend: Dim) -> bool:
    return dims.prove_equal(dims.mod(dividend, divisor), 0) is True


def _replace_axis(value: Expr, axis: Var, outer: Var, rest: Var, inner: Dim) -> Expr:
    """`value` with axis = outer * inner + rest, and its divisions by multiples of `inner` resolved."""

    def resolve(node: IRNode) -> IRNode | None:
        if not isinstance(node, Binary) or node.op not in ("floordiv", "mod") or node.a is not axis:
            return None
        divisor = as_dim(node.b)
        if divisor is None or not _divides(inner, divisor):
            return None
        times = dims.floordiv(divisor, inner)
        if node.op == "floordiv":
            return outer if times == 1 else outer // build.index(times)
        return rest if times == 1 else (outer % build.index(times)) * build.index(inner) + rest

    return substitute(rewrite(value, resolve), {axis: outer * build.index(inner) + rest})
