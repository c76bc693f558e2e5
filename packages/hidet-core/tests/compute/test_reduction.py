"""Reductions of whole arrays: precise sums, arrays without elements."""

from __future__ import annotations

import numpy as np
import pytest

from hidet.compute.array_expr import reduce
from hidet.compute.definition import ARGMAX, SUM


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_are_as_precise_along_every_axis(axis: int) -> None:
    values = np.random.default_rng(0).standard_normal((2000, 2000)).astype(np.float32)
    (total,) = reduce(SUM, [values], {axis: 2000}, 2)
    exact = values.astype(np.float64).sum(axis, keepdims=True)
    assert np.abs(total - exact).max() < 1e-4


def test_reducing_no_rows_gives_no_results() -> None:
    values = np.zeros((0, 3), np.float32)
    positions = np.broadcast_to(np.arange(3), (0, 3))
    best, place = reduce(ARGMAX, [values, positions], {1: 3}, 2)
    assert best.shape == place.shape == (0, 1)
