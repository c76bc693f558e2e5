"""What the routines of `hidet.compute.routines` mean on numpy arrays.

Each takes the arrays of its operands and all attributes, and gives the arrays of its results in order; the operands,
results and attributes are those of the spec that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet.errors import PositionError

Array = np.ndarray[Any, Any]


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort `x` stably along `axis`; NaN counts as the largest value."""
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Sorting the mirrored array and mirroring back keeps equal elements in their order.
    mirrored = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - mirrored)


def sort(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """x sorted stably along an axis, and where each element came from."""
    (x,) = arrays
    if x.ndim == 0:
        return [x, np.zeros((), np.int64)]
    order = _order(x, attributes["axis"], attributes["descending"])
    return [np.take_along_axis(x, order, attributes["axis"]), order]


def argsort(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """The second result of sort."""
    return sort(arrays, attributes)[1:]


def topk(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """The k best elements along an axis, and where each came from."""
    (x,) = arrays
    if x.ndim == 0:
        return [x, np.zeros((), np.int64)]
    axis = attributes["axis"] % x.ndim
    order = _order(x, axis, descending=attributes["largest"])
    order = order[(slice(None),) * axis + (slice(0, attributes["k"]),)]
    return [np.take_along_axis(x, order, axis), order]


def nonzero(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """Indices of what is not zero."""
    return [np.argwhere(arrays[0] != 0).astype(np.int64)]


def masked_select(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """The elements where the mask is true."""
    x, mask = np.broadcast_arrays(*arrays)
    return [x[mask]]


def unique(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """Distinct elements, where each element is among them, and counts."""
    (x,) = arrays
    axis = attributes["axis"]
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    values, inverse, counts = np.unique(
        keys, return_inverse=True, return_counts=True, axis=axis, equal_nan=False, sorted=True
    )
    shape = x.shape if axis is None else (x.shape[axis],)
    return [values.astype(x.dtype), inverse.reshape(shape).astype(np.int64), counts.astype(np.int64)]


def determinant(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """Determinants of the matrices of the last two axes."""
    (x,) = arrays
    return [np.linalg.det(x if x.dtype == np.float64 else x.astype(np.float32))]


def assert_positions(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """True. PositionError where a position is not on its axis."""
    (positions,) = arrays
    extent = attributes["extent"]
    low = -extent if attributes["wraps"] else 0
    wrong = positions[(positions < low) | (positions >= extent)]
    if wrong.size:
        raise PositionError(f"{attributes['what']} has position {int(wrong[0])}, expected {low} to {extent - 1}")
    return [np.asarray(True)]


def common_divisor(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    """Greatest common divisors of integers, element by element."""
    return [np.gcd(*arrays)]
