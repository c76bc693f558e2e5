"""What tensors of positions hold: numbers that grow by a fixed step along each axis, and what comparisons of such say.

Models make masks of them: `arange(n)[:, None] >= arange(n)` is true where a row comes no sooner than a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hidet import dims
from hidet.dims import Dim
from hidet.graph.graph import Node, Value
from hidet.passes.local import Site

_LEAST_BITS = 32
"""Of integers that are taken not to overflow."""


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + the sum of step * index, a step an axis; 0 along axes of extent 1."""

    offset: Dim
    steps: tuple[Dim, ...]

    def times(self, factor: int) -> Affine:
        """The product with a number."""
        return Affine(self.offset * factor, tuple(step * factor for step in self.steps))

    def plus(self, other: Affine) -> Affine:
        """The sum with one that broadcasts with it."""
        rank = max(len(self.steps), len(other.steps))
        a, b = ((*[0] * (rank - len(each.steps)), *each.steps) for each in (self, other))
        return Affine(self.offset + other.offset, tuple(x + y for x, y in zip(a, b, strict=True)))

    @property
    def is_number(self) -> bool:
        """Whether all elements are the same."""
        return all(step == 0 for step in self.steps)

    def least(self, shape: Sequence[Dim]) -> Dim | None:
        """The smallest element of a tensor of this shape; None where it is not known along which axes they fall."""
        least = self.offset
        for step, extent in zip(self.steps, shape, strict=True):
            if dims.prove_le(step, 0):
                least = least + step * (extent - 1)
            elif not dims.prove_le(0, step):
                return None
        return least


Condition = Affine | bool
"""Where something holds: where an affine number is not negative, or everywhere, or nowhere."""


def _decided(condition: Condition | None, shape: Sequence[Dim]) -> Condition | None:
    """A condition that no element of a tensor of this shape fails, or every one, as a bool."""
    if not isinstance(condition, Affine):
        return condition
    least, least_negated = condition.least(shape), condition.times(-1).least(shape)
    if least is not None and dims.prove_le(0, least):
        return True
    return False if least_negated is not None and dims.prove_lt(0, least_negated) else condition


def negated(condition: Condition | None) -> Condition | None:
    """Where something does not hold; None stays None."""
    if isinstance(condition, Affine):
        return condition.times(-1).plus(Affine(-1, ()))
    return None if condition is None else not condition


class Positions:
    """What values of a graph hold, as far as it can be told; each is looked at once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._numbers: dict[Value, Affine | None] = {}
        self._conditions: dict[Value, Condition | None] = {}

    def numbers(self, value: Value | None) -> Affine | None:
        """The numbers of a tensor of integers or bools; None where they are not known to be affine."""
        if value is None:
            return None
        if value not in self._numbers:
            self._numbers[value] = self._made_numbers(value)
        return self._numbers[value]

    def condition(self, value: Value | None) -> Condition | None:
        """Where elements are not zero; None where that is not known."""
        if value is None:
            return None
        if value not in self._conditions:
            self._conditions[value] = self._made_condition(value)
        return self._conditions[value]

    def number(self, value: Value | None) -> int | float | None:
        """The number that all elements of a tensor are; None where they are not known to be one."""
        known = self._site.number(value)
        if known is not None or value is None or value.tensor.dtype.is_bool:
            return known
        found = self.numbers(value)
        return found.offset if found is not None and found.is_number and isinstance(found.offset, int) else None

    def _made_numbers(self, value: Value) -> Affine | None:
        dtype = value.tensor.dtype
        if dtype.is_bool:
            known = self.condition(value)
            return Affine(int(known), (0,) * value.tensor.rank) if isinstance(known, bool) else None
        if not dtype.is_int or dtype.bits < _LEAST_BITS:
            return None
        data = self._site.elements(value)
        if data is not None:
            return _fitted_numbers(data)
        node = self._site.producer(value)
        found = _NUMBERS.get(node.op.name, _viewed_numbers)(self, node) if node is not None else None
        if found is None:
            return None
        return _without_lone(found.offset, found.steps, value)

    def _made_condition(self, value: Value) -> Condition | None:
        data = self._site.elements(value)
        if data is not None:
            return fitted_condition(data)
        node = self._site.producer(value)
        if node is None:
            return None
        rule = _CONDITIONS.get(node.op.name)
        if rule is not None:
            return _decided(rule(self, node), value.tensor.shape)
        if node.op.view is not None:
            return _viewed(self.condition(node.inputs[0]), node)
        number = self.number(value)
        return None if number is None else number != 0


def _without_lone(offset: Dim, steps: Sequence[Dim], value: Value) -> Affine:
    """An affine number whose steps along axes of extent 1 are 0."""
    shape = value.tensor.shape
    return Affine(offset, tuple(0 if n == 1 else step for n, step in zip(shape, steps, strict=True)))


def _fitted_numbers(data: Any) -> Affine | None:
    """An array's elements, if they are affine."""
    if not data.size:
        return None
    corner = data[(0,) * data.ndim]
    steps = [
        0 if n == 1 else int(np.take(data, 1, axis)[(0,) * (data.ndim - 1)] - corner)
        for axis, n in enumerate(data.shape)
    ]
    expected = np.full((1,) * data.ndim, int(corner))
    for axis, step in enumerate(steps):
        along = np.arange(data.shape[axis]) * step
        expected = expected + along.reshape([-1 if n == axis else 1 for n in range(data.ndim)])
    return Affine(int(corner), tuple(steps)) if bool((data == expected).all()) else None


def fitted_condition(data: Any) -> Condition | None:
    """Where an array's elements are not zero, if a diagonal of its last two axes tells."""
    flags = np.asarray(data != 0)
    if not flags.size:
        return None
    if flags.all() or not flags.any():
        return bool(flags.flat[0])
    if flags.ndim < 2 or 1 in flags.shape[-2:]:
        return None
    first = flags.reshape(-1, *flags.shape[-2:])[0]
    is_lower = bool(first[-1, 0])
    offset = int((first[0] == is_lower).sum()) - 1
    lower = np.tri(first.shape[0], first.shape[1], offset, dtype=bool)
    if not bool((flags == (lower if is_lower else ~lower)).all()):
        return None
    found = Affine(offset, (*[0] * (flags.ndim - 2), 1, -1))
    return found if is_lower else negated(found)


def _viewed(found: Condition | None, node: Node) -> Condition | None:
    """What a view shows of numbers: steps are strides of them."""
    if not isinstance(found, Affine):
        return found
    source, view = node.inputs[0], node.op.view
    if source is None or view is None:
        return None
    seen = view(source.tensor.with_strides(found.steps), node.attrs, node.outputs[0].tensor)
    return None if seen is None else _without_lone(found.offset + seen.offset, seen.strides, node.outputs[0])


def _viewed_numbers(positions: Positions, node: Node) -> Affine | None:
    if node.op.view is None:
        return None
    found = _viewed(positions.numbers(node.inputs[0]), node)
    return found if isinstance(found, Affine) else None


def _of_range(positions: Positions, node: Node) -> Affine | None:
    start, step = node.attrs["start"], node.attrs["step"]
    return None if isinstance(start, float) or isinstance(step, float) else Affine(start, (step,))


def _of_full(positions: Positions, node: Node) -> Affine | None:
    value = node.attrs["value"]
    return Affine(int(value), (0,) * node.outputs[0].tensor.rank) if isinstance(value, int) else None


def _of_cast(positions: Positions, node: Node) -> Affine | None:
    return positions.numbers(node.inputs[0])


def _of_sum(positions: Positions, node: Node) -> Affine | None:
    a, b = (positions.numbers(value) for value in node.inputs)
    alpha = node.attrs["alpha"]
    if a is None or b is None or not isinstance(alpha, int):
        return None
    return a.plus(b.times(alpha if node.op.name == "add" else -alpha))


def _of_concat(positions: Positions, node: Node) -> Affine | None:
    """Parts that go on where the one before ends."""
    axis = node.attrs["axis"] % node.outputs[0].tensor.rank
    start: Dim = 0
    extents = [value.tensor.shape[axis] for value in node.values]
    parts = [positions.numbers(value) for value in node.values]
    step = next((part.steps[axis] for part, n in zip(parts, extents, strict=True) if part and n != 1), None)
    whole: Affine | None = None
    for part, extent in zip(parts, extents, strict=True):
        if part is None or step is None:
            return None
        steps = (*part.steps[:axis], step if extent == 1 else part.steps[axis], *part.steps[axis + 1 :])
        found = Affine(part.offset - start * step, steps)
        if whole not in (None, found):
            return None
        whole, start = found, start + extent
    return whole


def _of_running_sum(positions: Positions, node: Node) -> Affine | None:
    """Sums of nothing but zeros."""
    found = positions.numbers(node.inputs[0])
    return found if found is not None and found.is_number and found.offset == 0 else None


def _of_index(positions: Positions, node: Node) -> Affine | None:
    """Elements at places that are affine and count from the start."""
    source = positions.numbers(node.inputs[0])
    places = [positions.numbers(value) for value in node.inputs[1:]]
    if source is None or len(places) != len(source.steps):
        return None
    found = Affine(source.offset, ())
    for place, step in zip(places, source.steps, strict=True):
        if place is None or not isinstance(step, int):
            return None
        if not isinstance(place.offset, int) or any(
            not isinstance(n, int) or n < 0 for n in (place.offset, *place.steps)
        ):
            return None
        found = found.plus(place.times(step))
    return found


_NUMBERS: Mapping[str, Callable[[Positions, Node], Affine | None]] = MappingProxyType(
    {
        "arange": _of_range,
        "full": _of_full,
        "cast": _of_cast,
        "add": _of_sum,
        "sub": _of_sum,
        "concat": _of_concat,
        "cumsum": _of_running_sum,
        "index": _of_index,
    }
)


def _compared(positions: Positions, node: Node) -> Condition | None:
    """Where one affine number is not less than another, after a swap and a shift by one."""
    a, b = (positions.numbers(value) for value in node.inputs)
    if a is None or b is None:
        return None
    first, last = (a, b) if node.op.name in ("greater", "greater_equal") else (b, a)
    shift = -1 if node.op.name in ("greater", "less") else 0
    return first.plus(last.times(-1)).plus(Affine(shift, ()))


def _is_equal(positions: Positions, node: Node) -> Condition | None:
    """Where equal numbers are equal; where a condition is compared with a number, as `mask == 0` is."""
    for value, other in (node.inputs, node.inputs[::-1]):
        number, found = positions.number(other), positions.condition(value)
        if number == 0 and found is not None:
            return negated(found)
        if number == 1 and value is not None and value.tensor.dtype.is_bool:
            return found
    a, b = (positions.numbers(value) for value in node.inputs)
    if a is None or b is None:
        return None
    apart = a.plus(b.times(-1))
    return apart.offset == 0 if apart.is_number and isinstance(apart.offset, int) else None


def _differs(positions: Positions, node: Node) -> Condition | None:
    return negated(_is_equal(positions, node))


def _is_not(positions: Positions, node: Node) -> Condition | None:
    is_bool = node.op.name == "logical_not" or node.outputs[0].tensor.dtype.is_bool
    return negated(positions.condition(node.inputs[0])) if is_bool else None


def _both(positions: Positions, node: Node) -> Condition | None:
    """Where two conditions hold, one of which says nothing."""
    if node.op.name == "bitwise_and" and not node.outputs[0].tensor.dtype.is_bool:
        return None
    a, b = (positions.condition(value) for value in node.inputs)
    if a is False or b is False:
        return False
    return b if a is True else a if b is True else None


def _same(positions: Positions, node: Node) -> Condition | None:
    return positions.condition(node.inputs[0])


def _below_diagonal(positions: Positions, node: Node) -> Condition | None:
    """Where a triangle of a tensor without zeros is."""
    if positions.condition(node.inputs[0]) is not True or not isinstance(node.attrs["offset"], int):
        return None
    sign = 1 if node.op.name == "tril" else -1
    return Affine(sign * node.attrs["offset"], (*[0] * (node.outputs[0].tensor.rank - 2), sign, -sign))


_CONDITIONS: Mapping[str, Callable[[Positions, Node], Condition | None]] = MappingProxyType(
    {
        "less": _compared,
        "less_equal": _compared,
        "greater": _compared,
        "greater_equal": _compared,
        "equal": _is_equal,
        "not_equal": _differs,
        "logical_not": _is_not,
        "bitwise_not": _is_not,
        "logical_and": _both,
        "bitwise_and": _both,
        "cast": _same,
        "tril": _below_diagonal,
        "triu": _below_diagonal,
    }
)
