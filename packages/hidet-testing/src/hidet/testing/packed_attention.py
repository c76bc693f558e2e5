"""Attention of packed sequences, one sequence after the other in f64: what operators and kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def positions(lengths: Sequence[int]) -> Array:
    """Where sequences of these lengths start, and the end: i32[n + 1]."""
    return np.cumsum([0, *lengths]).astype(np.int32)


def attention_of_sequences(
    q: Array,
    k: Array,
    v: Array,
    rows: Sequence[int],
    keys: Sequence[int],
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
) -> tuple[Array, Array]:
    """Results [t, heads, columns] and logarithms of sums [heads, t] in f64; 0 and -inf where a row sees no key, or is
    behind all sequences.

    q: [t, heads, d]. k, v: [s, key heads, d or columns]. rows, keys: how many each sequence has. window: keys before
    and after a row's place that it sees, -1 for all; the last row has its place at the last key. scale: None is
    1 / sqrt(d).
    """
    group = q.shape[1] // k.shape[1]
    factor = q.shape[2] ** -0.5 if scale is None else scale
    out = np.zeros((*q.shape[:2], v.shape[2]))
    logarithms = np.full(q.shape[1::-1], -np.inf)
    first_row = first_key = 0
    for count, length in zip(rows, keys, strict=True):
        own, theirs = slice(first_row, first_row + count), slice(first_key, first_key + length)
        scores = factor * np.einsum("thd,shd->hts", *(_wide(x) for x in (q[own], _repeated(k[theirs], group))))
        place, number = np.arange(count)[:, None] + (length - count), np.arange(length)
        left, right = (np.inf if side < 0 else side for side in window)
        scores = np.where((number >= place - left) & (number <= place + right), scores, -np.inf)
        top = scores.max(axis=-1, initial=-np.inf, keepdims=True)
        weights = np.exp(scores - np.where(np.isinf(top), 0, top))
        total = weights.sum(axis=-1)
        weighted = np.einsum("hts,shd->thd", weights, _wide(_repeated(v[theirs], group)))
        out[own] = weighted / np.where(total == 0, 1, total).T[:, :, None]
        with np.errstate(divide="ignore"):
            logarithms[:, own] = np.where(total == 0, -np.inf, np.log(total) + top[..., 0])
        first_row, first_key = first_row + count, first_key + length
    return out, logarithms


def _repeated(heads: Array, group: int) -> Array:
    """Each key head for all query heads that share it."""
    return np.repeat(heads, group, axis=1)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)
