"""Loops: types of the values that they carry, and how often they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hidet import dims, dtypes
from hidet.dims import Dim, DimExpr, prove_equal
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.frontend.emitter import Emitter
from hidet.graph import TensorType, Value
from hidet.graph.types import OptionalType, SequenceType, ValueType

Body = TypeVar("Body")

COUNT = TensorType(dtypes.i64, ())
"""The number of an iteration."""

_WIDENINGS = 8
"""Rounds in which extents of carried values may turn out to change: one an axis that depends on another."""


class NotRows(Exception):
    """A loop does something else with what it fills row by row than to write each row once, in order."""


def widened(inner: Emitter, before: ValueType, after: ValueType) -> ValueType:
    """The type of a carried value with a new symbol for each extent that an iteration may change.

    inner: writes the body. before: the type that the body was written for; after: of what it made. DTypeError and
    ShapeError for values of other kinds, element types or numbers of axes.
    """
    if isinstance(before, SequenceType) and isinstance(after, SequenceType):
        return SequenceType(widened(inner, before.element, after.element))
    if isinstance(before, OptionalType) and isinstance(after, OptionalType):
        return OptionalType(widened(inner, before.element, after.element))
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.dtype != after.dtype:
        raise DTypeError(f"a loop carries a {before} that becomes a {after}")
    if before.rank != after.rank:
        raise ShapeError(f"a loop carries a {before} that becomes a {after}")
    pairs = zip(before.shape, after.shape, strict=True)
    # A symbol of the body's own may become anything: that is what it is for.
    shape = [old if _is_own(old) or prove_equal(old, new) is True else inner.builder.fresh_size() for old, new in pairs]
    return TensorType(before.dtype, tuple(shape))


def settled(
    types: Sequence[ValueType], write: Callable[[Sequence[ValueType]], tuple[Emitter, Sequence[Value], Body]]
) -> Body:
    """The body of a loop, written for types of carried values that every iteration keeps.

    types: before the first iteration. write: writes a body for these types; gives what it was written with, the values
    behind it, and the body. ShapeError where the types never settle.
    """
    for _ in range(_WIDENINGS):
        inner, after, body = write(types)
        wider = [widened(inner, old, new.type) for old, new in zip(types, after, strict=True)]
        if wider == list(types):
            return body
        types = wider
    raise ShapeError("extents of a loop's carried values keep changing")


def trip_count(inner: Emitter, condition: Value, counters: Mapping[Value, Dim]) -> Dim | None:
    """How often a loop runs whose condition is "counter < size", or several of these; None for any other.

    counters: values in the condition's graph that grow by 1 an iteration, with what they begin with.
    """
    node = inner.builder.producer(condition)
    if node is None:
        return None
    if node.op.name == "logical_and":
        first, second = (trip_count(inner, value, counters) for value in node.values)
        return None if first is None or second is None else dims.minimum(first, second)
    if node.op.name not in ("less", "greater"):
        return None
    low, high = node.values if node.op.name == "less" else reversed(node.values)
    if low not in counters or not inner.is_known(high):
        return None
    return dims.maximum(0, inner.one_dim(high, "the limit") - counters[low])


def counted(
    inner: Emitter, iteration: Value, counters: Mapping[int, tuple[Dim, DType]]
) -> tuple[dict[int, Value], frozenset[Value]]:
    """What counters are in an iteration, from what they begin with; and the values that are its number."""
    values: dict[int, Value] = {}
    places = {iteration}
    for number, (start, dtype) in counters.items():
        values[number] = inner.cast(iteration, dtype)
        if start == 0:
            places.add(values[number])
        else:
            values[number] = inner.emit("add", values[number], inner.size(start, dtype))
    return values, frozenset(places)


def start_of(e: Emitter, item: Any) -> Dim | None:
    """What a counter begins with: the only element of a value of whole numbers; None where it is not known."""
    start = e.contents(item) if isinstance(item, Value) and item.tensor.dtype.is_int else None
    if start is None or start.size != 1:
        return None
    begin = start.reshape(-1)[0]
    return begin if isinstance(begin, DimExpr) else int(begin)


def _is_own(size: Dim) -> bool:
    return isinstance(size, DimExpr) and str(size).startswith("n_") and str(size).isidentifier()
