"""Branches and loops: decisions that are known while importing, and what sub-graphs read from the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet.dims import DimExpr
from hidet.frontend.emitter import Emitter
from hidet.graph import Value


def decided(e: Emitter, value: Value) -> Any | None:
    """The number that a value is; None where it depends on data, or on sizes."""
    found = e.contents(value)
    if found is None or found.size != 1:
        return None
    item = found.reshape(-1)[0]
    return None if isinstance(item, DimExpr) else item


class Captures:
    """What values of a graph are in a sub-graph: inputs that are made when they are first asked for, or constants.

    e: writes the graph; inner: the sub-graph. values: those that are inputs there, in order.
    """

    def __init__(self, e: Emitter, inner: Emitter) -> None:
        self._e = e
        self._inner = inner
        self._inside: dict[Value, Value] = {}
        self.values: list[Value] = []

    def __call__(self, value: Value) -> Value:
        """What a value of the graph is in the sub-graph."""
        if value not in self._inside:
            constant = self._e.builder.constants.get(value)
            if constant is not None:
                self._inside[value] = self._inner.builder.constant(constant.data, value.tensor.dtype)
            else:
                given = self._inside[value] = self._inner.builder.input(value.type)
                self._inner.known.outer[given] = (self._e.known, value)
                self.values.append(value)
        return self._inside[value]


def enclosed(
    e: Emitter, inner: Emitter, items: Sequence[Any], with_values: Callable[[Any, Callable[[Value], Value]], Any]
) -> tuple[list[Any], Sequence[Value]]:
    """What items of a graph are in a sub-graph, and the outer values that are its last inputs, in order.

    with_values: makes an item of other values.
    """
    captures = Captures(e, inner)
    return [with_values(item, captures) for item in items], captures.values
