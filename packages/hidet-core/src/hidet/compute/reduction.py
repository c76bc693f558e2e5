"""Whole arrays and a combiner: reductions, scans and collisions of scattered updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.dtypes import from_numpy
from hidet.ir.expr import Var

if TYPE_CHECKING:
    from hidet.compute.definition import Combiner

Array = np.ndarray[Any, Any]


def combine(combiner: Combiner, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """The combination of two tuples of arrays of equal shapes."""
    from hidet.compute.array_expr import with_variables

    left_vars, right_vars = (
        [Var(f"{side}{n}", from_numpy(array.dtype)) for n, array in enumerate(arrays)]
        for side, arrays in (("left", left), ("right", right))
    )
    values = dict(zip([*left_vars, *right_vars], [*left, *right], strict=True))
    return with_variables(combiner.combine(left_vars, right_vars), values)


def reduce(combiner: Combiner, values: Sequence[Array], axes: Mapping[int, int], rank: int) -> list[Array]:
    """Reduce tuples of arrays of rank 0 or `rank` over `axes` (axis number -> extent, none zero), kept with extent
    1."""
    full = []
    for value in values:
        value = value.reshape((1,) * rank) if value.ndim == 0 else value
        full.append(np.broadcast_to(value, [axes.get(n, extent) for n, extent in enumerate(value.shape)]))
    if combiner.numpy is not None:
        ufunc = getattr(np, combiner.numpy)
        if combiner.numpy == "add" and full[0].dtype.kind == "f":
            # numpy adds up in pairs along the last axis of a contiguous array only, one by one elsewhere.
            kept = [1 if n in axes else extent for n, extent in enumerate(full[0].shape)]
            reduced_last = np.ascontiguousarray(_axes_last(full[0], sorted(axes)))
            return [ufunc.reduce(reduced_last, axis=-1, dtype=reduced_last.dtype).reshape(kept)]
        return [ufunc.reduce(full[0], axis=tuple(axes), keepdims=True, dtype=full[0].dtype)]
    common = np.broadcast_shapes(*(value.shape for value in full))
    ordered = sorted(axes)
    rows = [_axes_last(np.broadcast_to(value, common), ordered) for value in full]
    reduced = _reduce_rows(combiner, rows)
    kept = [1 if n in axes else extent for n, extent in enumerate(common)]
    return [value.reshape(kept) for value in reduced]


def _axes_last(array: Array, axes: Sequence[int]) -> Array:
    """The axes `axes` moved to the end, in order, and merged into one."""
    others = [n for n in range(array.ndim) if n not in axes]
    moved = array.transpose([*others, *axes])
    return moved.reshape([*(array.shape[n] for n in others), math.prod(array.shape[n] for n in axes)])


def _reduce_rows(combiner: Combiner, rows: list[Array]) -> list[Array]:
    """Reduce the last axis by pairs of neighbours, so that the left operand always comes earlier."""
    while rows[0].shape[-1] > 1:
        even = rows[0].shape[-1] // 2 * 2
        paired = combine(combiner, [r[..., 0:even:2] for r in rows], [r[..., 1:even:2] for r in rows])
        if even < rows[0].shape[-1]:
            paired = [np.concatenate([p, r[..., even:]], axis=-1) for p, r in zip(paired, rows, strict=True)]
        rows = paired
    return [r[..., 0] for r in rows]


def scan(
    combiner: Combiner, values: Sequence[Array], axis: int, neutral: Sequence[Array], exclusive: bool, reverse: bool
) -> list[Array]:
    """Scans along `axis` of full arrays of one shape; `neutral` is the combiner's identity."""
    moved = [np.moveaxis(v, axis, -1) for v in values]
    if reverse:
        moved = [v[..., ::-1] for v in moved]
    if moved[0].size == 0:
        results = moved
    elif combiner.numpy is not None and moved[0].dtype.kind != "V":
        results = [getattr(np, combiner.numpy).accumulate(moved[0], axis=-1, dtype=moved[0].dtype)]
    else:
        results = _doubling(combiner, moved, reverse)
    if exclusive and moved[0].size:
        results = [
            np.concatenate([np.broadcast_to(n, (*r.shape[:-1], 1)).astype(r.dtype), r[..., :-1]], axis=-1)
            for r, n in zip(results, neutral, strict=True)
        ]
    if reverse:
        results = [r[..., ::-1] for r in results]
    return [np.ascontiguousarray(np.moveaxis(r, -1, axis)) for r in results]


def _doubling(combiner: Combiner, values: list[Array], reverse: bool) -> list[Array]:
    """Hillis and Steele's parallel prefix: after step k every element is the reduction of its 2^k predecessors.

    With `reverse` the arrays are mirrored, so that the predecessors come later along the axis and stand on the right.
    """
    distance = 1
    while distance < values[0].shape[-1]:
        before, after = [v[..., :-distance] for v in values], [v[..., distance:] for v in values]
        reduced = combine(combiner, after, before) if reverse else combine(combiner, before, after)
        values = [np.concatenate([v[..., :distance], f], axis=-1) for v, f in zip(values, reduced, strict=True)]
        distance *= 2
    return values


def scatter(combiner: Combiner | None, target: Array, places: Array, updates: Array) -> None:
    """Apply `updates` in order to the flat array `target` at `places`; without a combiner the last one stays."""
    if combiner is None:
        target[places] = updates
    elif combiner.numpy is not None and target.dtype.kind != "V":
        getattr(np, combiner.numpy).at(target, places, updates)
    else:
        for chosen in _rounds(places):
            target[places[chosen]] = combine(combiner, [target[places[chosen]]], [updates[chosen]])[0]


def _rounds(places: Array) -> list[Array]:
    """Positions of the updates, in rounds that hit no place twice, each place's updates in order over the rounds."""
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    is_first = np.ones(len(ranked), bool)
    is_first[1:] = ranked[1:] != ranked[:-1]
    starts = np.flatnonzero(is_first)
    turn = np.arange(len(ranked)) - np.repeat(starts, np.diff([*starts, len(ranked)]))
    by_turn = np.argsort(turn, kind="stable")
    return [order[part] for part in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1) if len(part)]
