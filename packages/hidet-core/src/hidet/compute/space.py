"""The index space over which an expression is evaluated at once, and index expressions that are linear in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hidet import dims
from hidet.ir.expr import Binary, Const, Expr, Size, Unary, Var


@dataclass(frozen=True, slots=True)
class Space:
    """A box of indices: axis number p of every array is the variable with position p.

    positions: axis number of each index variable. starts, extents: the range of each axis.
    """

    positions: Mapping[Var, int]
    starts: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.extents)

    def halves(self, axis: int) -> tuple[Space, Space]:
        """The space cut in two across an axis of extent 2 or more."""
        cut = self.extents[axis] // 2
        low = self._with(axis, self.starts[axis], cut)
        return low, self._with(axis, self.starts[axis] + cut, self.extents[axis] - cut)

    def _with(self, axis: int, start: int, extent: int) -> Space:
        starts = (*self.starts[:axis], start, *self.starts[axis + 1 :])
        extents = (*self.extents[:axis], extent, *self.extents[axis + 1 :])
        return Space(self.positions, starts, extents)


def box(axes: Sequence[Var], extents: Sequence[int]) -> Space:
    """The space of `axes`, each from zero to its extent."""
    return Space({var: n for n, var in enumerate(axes)}, (0,) * len(axes), tuple(extents))


def blocks(space: Space, masks: Iterable[int], axes: int, limit: int) -> Iterator[Space]:
    """Parts of `space`, cut across its first `axes` axes only, that need at most `limit` elements where possible.

    masks: for each array that an evaluation holds, the axes it extends over, as bits.
    """
    sets = list(set(masks))
    pending = [space]
    while pending:
        part = pending.pop()
        worst = max(sets, key=lambda mask: elements(part, mask), default=0)
        cuttable = [a for a in range(axes) if worst >> a & 1 and part.extents[a] > 1]
        if elements(part, worst) <= limit or not cuttable:
            yield part
        else:
            low, high = part.halves(max(cuttable, key=lambda a: part.extents[a]))
            pending += [high, low]


def elements(space: Space, mask: int) -> int:
    """Number of indices of the axes in `mask` (bits)."""
    return prod(extent for axis, extent in enumerate(space.extents) if mask >> axis & 1)


@dataclass(frozen=True, slots=True)
class Linear:
    """The index `constant + sum(coefficient * step of axis)`, steps counted from the start of each axis."""

    constant: int
    coefficients: Mapping[int, int]

    def bounds(self, space: Space) -> tuple[int, int]:
        """Smallest and largest value over a space without empty axes."""
        low = high = self.constant
        for axis, coefficient in self.coefficients.items():
            reach = coefficient * (space.extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


def linear(expr: Expr, space: Space, bindings: Mapping[str, int]) -> Linear | None:
    """`expr` as a linear index of the space, None when it is not one."""
    if isinstance(expr, Var):
        axis = space.positions.get(expr)
        if axis is None:
            return None
        return Linear(space.starts[axis], {axis: 1} if space.extents[axis] != 1 else {})
    if isinstance(expr, Const):
        return Linear(int(expr.value), {}) if not isinstance(expr.value, complex) else None
    if isinstance(expr, Size):
        return Linear(dims.evaluate(expr.dim, bindings), {})
    if isinstance(expr, Unary) and expr.op == "neg":
        a = linear(expr.a, space, bindings)
        return None if a is None else _scaled(a, -1)
    if isinstance(expr, Binary) and expr.op in ("add", "sub", "mul", "floordiv", "mod"):
        a = linear(expr.a, space, bindings)
        b = linear(expr.b, space, bindings) if a is not None else None
        return None if a is None or b is None else _linear_binary(expr.op, a, b, space)
    return None


def _linear_binary(op: str, a: Linear, b: Linear, space: Space) -> Linear | None:
    if op == "add" or op == "sub":
        b = _scaled(b, 1 if op == "add" else -1)
        axes = {**a.coefficients, **b.coefficients}
        summed = {axis: a.coefficients.get(axis, 0) + b.coefficients.get(axis, 0) for axis in axes}
        return Linear(a.constant + b.constant, {axis: c for axis, c in summed.items() if c})
    if op == "mul":
        if b.coefficients:
            a, b = b, a
        return None if b.coefficients else _scaled(a, b.constant)
    if b.coefficients or b.constant <= 0:
        return None
    return _quotient(op, a, b.constant, space)


def _quotient(op: str, a: Linear, divisor: int, space: Space) -> Linear | None:
    """Floor division or remainder by a positive constant, where the result is still linear."""
    if all(c % divisor == 0 for c in a.coefficients.values()):
        if op == "mod":
            return Linear(a.constant % divisor, {})
        return Linear(a.constant // divisor, {axis: c // divisor for axis, c in a.coefficients.items()})
    if 0 in space.extents:
        return None
    low, high = a.bounds(space)
    if low // divisor != high // divisor:
        return None
    quotient = low // divisor
    return Linear(quotient, {}) if op == "floordiv" else Linear(a.constant - quotient * divisor, a.coefficients)


def _scaled(a: Linear, factor: int) -> Linear:
    coefficients = {axis: c * factor for axis, c in a.coefficients.items()} if factor else {}
    return Linear(a.constant * factor, coefficients)
