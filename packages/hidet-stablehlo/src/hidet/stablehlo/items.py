"""What a value of StableHLO stands for while importing, where that is no tensor of core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hidet.dims import Dim
from hidet.graph import Value

Item = Any
"""A `Value`, one of the classes here, a tuple of items, or None for a token, which only orders execution."""


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as two real ones of one shape: kernels know no complex numbers."""

    real: Value
    imaginary: Value


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A tensor whose rows along an axis a loop writes one an iteration, in order: a stacked result of the loop.

    places: values that are the number of the iteration. shape: of the tensor. row: what this iteration has written,
    None before it has.
    """

    places: frozenset[Value]
    shape: tuple[Dim, ...]
    axis: int
    row: Value | None = None


def values_of(item: Item) -> list[Value]:
    """The graph values that an item is made of."""
    if isinstance(item, Value):
        return [item]
    if isinstance(item, Complex):
        return [item.real, item.imaginary]
    return [value for part in item for value in values_of(part)] if isinstance(item, tuple) else []


def with_values(item: Item, change: Callable[[Value], Value]) -> Item:
    """The item made of other values, asked for in the order of `values_of`."""
    if isinstance(item, Value):
        return change(item)
    if isinstance(item, Complex):
        return Complex(change(item.real), change(item.imaginary))
    return tuple(with_values(part, change) for part in item) if isinstance(item, tuple) else item
