"""The named algorithms that `Routine` stages may use: what each takes, gives and means, as a table.

Targets key their programs by these names; the numpy meaning here is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.compute.overlap import suppress
from hidet.errors import PositionError, UnsupportedOp, suggestion

if TYPE_CHECKING:
    from hidet.compute.definition import Routine

Array = np.ndarray[Any, Any]
NumpyMeaning = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class RoutineSpec:
    """One algorithm.

    operands, results: what it reads and defines, in order; index results are i64.
    attributes: names of the attributes a stage gives, with the values that missing ones take.
    numpy: meaning on arrays, results in order.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...]
    doc: str
    numpy: NumpyMeaning


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort `x` stably along `axis`; NaN counts as the largest value."""
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Sorting the mirrored array and mirroring back keeps equal elements in their order.
    mirrored = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - mirrored)


def _sort(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    (x,) = arrays
    if x.ndim == 0:
        return [x, np.zeros((), np.int64)]
    order = _order(x, attributes["axis"], attributes["descending"])
    return [np.take_along_axis(x, order, attributes["axis"]), order]


def _argsort(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    return _sort(arrays, attributes)[1:]


def _topk(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    (x,) = arrays
    if x.ndim == 0:
        return [x, np.zeros((), np.int64)]
    axis = attributes["axis"] % x.ndim
    order = _order(x, axis, descending=attributes["largest"])
    order = order[(slice(None),) * axis + (slice(0, attributes["k"]),)]
    return [np.take_along_axis(x, order, axis), order]


def _nonzero(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    return [np.argwhere(arrays[0] != 0).astype(np.int64)]


def _masked_select(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    x, mask = np.broadcast_arrays(*arrays)
    return [x[mask]]


def _unique(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    (x,) = arrays
    axis = attributes["axis"]
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    values, inverse, counts = np.unique(
        keys, return_inverse=True, return_counts=True, axis=axis, equal_nan=False, sorted=True
    )
    shape = x.shape if axis is None else (x.shape[axis],)
    return [values.astype(x.dtype), inverse.reshape(shape).astype(np.int64), counts.astype(np.int64)]


def _determinant(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    (x,) = arrays
    return [np.linalg.det(x if x.dtype == np.float64 else x.astype(np.float32))]


def _assert_positions(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> Sequence[Array]:
    (positions,) = arrays
    extent = attributes["extent"]
    low = -extent if attributes["wraps"] else 0
    wrong = positions[(positions < low) | (positions >= extent)]
    if wrong.size:
        raise PositionError(f"{attributes['what']} has position {int(wrong[0])}, expected {low} to {extent - 1}")
    return [np.asarray(True)]


ROUTINES: Mapping[str, RoutineSpec] = {
    spec.name: spec
    for spec in (
        RoutineSpec(
            "sort",
            ("x",),
            ("values", "indices"),
            (("axis", -1), ("descending", False)),
            "x sorted stably along an axis, NaN as the largest value, and where each element came from.",
            _sort,
        ),
        RoutineSpec(
            "argsort",
            ("x",),
            ("indices",),
            (("axis", -1), ("descending", False)),
            "The second result of sort alone.",
            _argsort,
        ),
        RoutineSpec(
            "topk",
            ("x",),
            ("values", "indices"),
            (("k", 1), ("axis", -1), ("largest", True)),
            "The k largest (or smallest) elements along an axis, best first; among equals the earlier one first.",
            _topk,
        ),
        RoutineSpec(
            "nonzero",
            ("x",),
            ("indices",),
            (),
            "Indices of the elements that are not zero, in row-major order: i64[count, rank of x].",
            _nonzero,
        ),
        RoutineSpec(
            "masked_select",
            ("x", "mask"),
            ("values",),
            (),
            "The elements of x where the bool mask is true, in row-major order; x and mask broadcast.",
            _masked_select,
        ),
        RoutineSpec(
            "unique",
            ("x",),
            ("values", "inverse", "counts"),
            (("axis", None),),
            "Distinct elements in ascending order (slices along `axis` if given), where each element of x is among "
            "them, and how often each occurs. NaN differs from NaN.",
            _unique,
        ),
        RoutineSpec(
            "common_divisor",
            ("a", "b"),
            ("divisors",),
            (),
            "Greatest common divisors of integers, not negative; a and b broadcast.",
            lambda arrays, attributes: [np.gcd(*arrays)],
        ),
        RoutineSpec(
            "determinant",
            ("x",),
            ("determinants",),
            (),
            "Determinants of the square matrices x[..., n, n], in the arithmetic type.",
            _determinant,
        ),
        RoutineSpec(
            "assert_positions",
            ("positions",),
            ("token",),
            (("extent", 1), ("wraps", True), ("what", "")),
            "True, and an error that begins with `what` unless all positions lie on an axis of `extent`; negative ones "
            "count from its end when `wraps`.",
            _assert_positions,
        ),
        RoutineSpec(
            "suppress",
            ("boxes", "scores", "most", "threshold", "least"),
            ("kept",),
            (("centred", False),),
            "For scores[image, class, box] the boxes kept, best score first, then -1: those that overlap no better "
            "kept one by more than `threshold`, with a score above `least`, at most `most`. boxes[image, box, 4] are "
            "opposite corners, or centres and sizes when `centred`.",
            suppress,
        ),
    )
}


def run_routine(stage: Routine, arrays: Sequence[Array]) -> list[Array]:
    """The results of a Routine stage on arrays, as many as the stage declares.

    Raises UnsupportedOp for a routine, or an attribute of it, that the table lacks.
    """
    spec = ROUTINES.get(stage.name)
    if spec is None:
        raise UnsupportedOp(f"routine {stage.name!r} is unknown", hint=suggestion(stage.name, ROUTINES))
    attributes = dict(spec.attributes)
    for name, value in stage.attributes:
        if name not in attributes:
            raise UnsupportedOp(f"routine {spec.name} has no attribute {name!r}", hint=suggestion(name, attributes))
        attributes[name] = value
    results = list(spec.numpy(arrays, attributes))[: len(stage.results)]
    return [
        np.asarray(result).astype(operand.dtype.numpy(), copy=False)
        for result, operand in zip(results, stage.results, strict=True)
    ]
