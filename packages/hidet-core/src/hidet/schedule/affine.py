"""Affine analysis of index expressions: offset = constant + sum(coefficient * axis), coefficients being dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims
from hidet.dims import Dim
from hidet.ir.expr import Access, Binary, Const, Expr, Size, Var
from hidet.ir.visit import walk
from hidet.records import record


@record(eq=True)
class Affine:
    """constant + sum(coefficients[v] * v). Variables with coefficient zero are left out."""

    coefficients: dict[Var, Dim]
    constant: Dim

    def coefficient(self, var: Var) -> Dim:
        """How far the value moves when `var` grows by one."""
        return self.coefficients.get(var, 0)


def affine_index(expr: Expr) -> Affine | None:
    """The affine form of an i64 expression; None when it is not affine in its variables."""
    if isinstance(expr, Var):
        return Affine({expr: 1}, 0)
    if isinstance(expr, Const):
        return Affine({}, int(expr.value)) if isinstance(expr.value, int) else None
    if isinstance(expr, Size):
        return Affine({}, expr.dim)
    if not isinstance(expr, Binary) or expr.op not in ("add", "sub", "mul"):
        return None
    left, right = affine_index(expr.a), affine_index(expr.b)
    if left is None or right is None:
        return None
    if expr.op == "add":
        return _combine(left, right, 1)
    if expr.op == "sub":
        return _combine(left, right, -1)
    if not right.coefficients:
        return _scale(left, right.constant)
    if not left.coefficients:
        return _scale(right, left.constant)
    return None


def affine_offset(indices: Sequence[Expr], strides: Sequence[Dim]) -> Affine | None:
    """The affine form of sum(index * stride); None when an index is not affine."""
    total = Affine({}, 0)
    for index, stride in zip(indices, strides, strict=True):
        part = affine_index(index)
        if part is None:
            return None
        total = _combine(total, _scale(part, stride), 1)
    return total


def other_variables(value: Expr, maps: Mapping[Access, Affine]) -> frozenset[Var]:
    """Variables that occur in `value` other than in the indices of the accesses in `maps`."""
    return frozenset(node for node in walk(value, maps) if isinstance(node, Var))


def as_dim(value: Expr) -> Dim | None:
    """The size that an expression names; None for an expression that is computed."""
    if isinstance(value, Size):
        return value.dim
    return value.value if isinstance(value, Const) and isinstance(value.value, int) else None


def as_dims(extents: Sequence[Expr]) -> tuple[Dim, ...]:
    """Extents of loops, of which none is computed, as sizes."""
    sizes = tuple(size for size in map(as_dim, extents) if size is not None)
    assert len(sizes) == len(extents)
    return sizes


def _combine(a: Affine, b: Affine, sign: int) -> Affine:
    coefficients = dict(a.coefficients)
    for var, value in b.coefficients.items():
        merged = coefficients.get(var, 0) + value * sign
        if isinstance(merged, int) and merged == 0:
            coefficients.pop(var, None)
        else:
            coefficients[var] = merged
    return Affine(coefficients, a.constant + b.constant * sign)


def _scale(a: Affine, factor: Dim) -> Affine:
    if isinstance(factor, int) and factor == 0:
        return Affine({}, 0)
    return Affine({v: c * factor for v, c in a.coefficients.items()}, a.constant * factor)


def collapse_axes(
    axes: Sequence[Var], extents: Sequence[Dim], maps: Sequence[Affine], pinned: frozenset[Var]
) -> list[list[int]]:
    """Group neighbouring axes that every map walks as one. Returns positions, outermost group first.

    Axes of extent one are left out. `pinned` axes are used in other ways than through `maps` and stay alone.
    """
    groups: list[list[int]] = []
    for position in range(len(axes)):
        if extents[position] == 1 and axes[position] not in pinned:
            continue
        if groups and _continues(groups[-1][-1], position, axes, extents, maps, pinned):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def _continues(
    outer: int, inner: int, axes: Sequence[Var], extents: Sequence[Dim], maps: Sequence[Affine], pinned: frozenset[Var]
) -> bool:
    if axes[outer] in pinned or axes[inner] in pinned:
        return False
    extent = extents[inner]
    return all(dims.prove_equal(m.coefficient(axes[outer]), m.coefficient(axes[inner]) * extent) is True for m in maps)
