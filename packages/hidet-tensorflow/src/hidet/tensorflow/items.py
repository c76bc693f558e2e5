"""What a name of a TensorFlow function stands for while importing, where that is no tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.graph import Value

Item = Any
"""A `Value`, one of the classes here, or None for what only orders execution."""


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable, which a compiled model holds as a constant. array: its elements, in the variable's memory."""

    name: str
    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table of keys and values, which a compiled model holds as they are now. handle: TensorFlow's."""

    handle: Any


@dataclass(frozen=True, slots=True, eq=False)
class TensorList:
    """A list of tensors of one shape.

    values: all of them, [length, *shape]; None before anything is known of their shape. shape: as far as it is known,
    None for an unknown number of axes, and for extents.
    """

    dtype: DType
    length: Dim
    values: Value | None = None
    shape: tuple[Dim | None, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A list that a loop fills with one element an iteration, in order: a stacked result of the loop.

    places: values that are the number of the iteration. grows: whether the list is empty before the loop, and grows by
    what is written. row: what this iteration has written, None before it has.
    """

    dtype: DType
    shape: tuple[Dim | None, ...] | None
    places: frozenset[Value]
    grows: bool = False
    row: Value | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as two real ones of one shape: kernels know no complex numbers."""

    real: Value
    imaginary: Value


def values_of(item: Item) -> list[Value]:
    """The graph values that an item is made of."""
    if isinstance(item, Value):
        return [item]
    if isinstance(item, Complex):
        return [item.real, item.imaginary]
    return [item.values] if isinstance(item, TensorList) and item.values is not None else []


def with_values(item: Item, change: Callable[[Value], Value]) -> Item:
    """The item made of other values."""
    if isinstance(item, Value):
        return change(item)
    if isinstance(item, Complex):
        return Complex(change(item.real), change(item.imaginary))
    if isinstance(item, TensorList) and item.values is not None:
        return replace(item, values=change(item.values))
    return item
