"""Values that loops carry: what their types must leave open so that every iteration fits."""

from __future__ import annotations

from hidet.dims import Dim, DimExpr, prove_equal
from hidet.errors import DTypeError, ShapeError
from hidet.frontend.emitter import Emitter
from hidet.graph import TensorType
from hidet.graph.types import OptionalType, SequenceType, ValueType

WIDENINGS = 8
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


def _is_own(size: Dim) -> bool:
    return isinstance(size, DimExpr) and str(size).startswith("n_") and str(size).isidentifier()
