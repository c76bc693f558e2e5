"""What counts as the same results of two programs."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from hidet.tuning.results import _AT_ONCE, difference

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def drawn(count: int, dtype: type) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(count).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 5, _AT_ONCE + 3])
def test_equal_results_and_those_that_round_otherwise_are_the_same(dtype: type, count: int) -> None:
    right = drawn(count, dtype)
    assert difference([right], [right.copy()], 1) == ""
    apart = (right.astype(np.float64) * (1 + np.finfo(np.float32).eps * (dtype != np.float64))).astype(dtype)
    assert difference([right], [apart], 1000) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("place", [0, 77, _AT_ONCE, _AT_ONCE + 2])
@pytest.mark.parametrize("value", [9.0, np.nan, np.inf, -np.inf])
def test_one_element_that_is_wrong_is_told_wherever_it_is(dtype: type, place: int, value: float) -> None:
    right = drawn(_AT_ONCE + 3, dtype)
    wrong = right.copy()
    wrong[place] = value
    assert difference([right], [wrong], 1000).startswith("wrong results: output 0 differs")
    assert difference([wrong], [right], 1000).startswith("wrong results: output 0 differs")


def test_infinities_and_nan_are_the_same_where_both_have_them() -> None:
    right = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert difference([right], [right.copy()], 1) == ""
    for first, second in pairwise([0, 1, 2]):
        wrong = right.copy()
        wrong[first] = right[second]
        assert difference([right], [wrong], 1) == "wrong results: output 0 differs in infinities or NaN"
    assert difference([right[:3]], [right[:3].copy()], 1) == ""


def test_integers_are_equal_or_not() -> None:
    right = np.arange(10)
    assert difference([right, right], [right, right], 1) == ""
    assert difference([right, right], [right, right + 1], 1) == "wrong results: output 1 differs"
