"""The correctness measure: what it accepts, what it refuses, and what it says."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet.errors import HidetError
from hidet.testing.numerics import Sample, check_output

UNIT = 2.0**-24


def _sample(seed: int, ours_error: float, eager_error: float = UNIT) -> Sample:
    """A float32 result of 1000 values whose relative errors have about the given size."""
    random = np.random.default_rng(seed)
    reference = random.uniform(1.0, 2.0, 1000)
    eager = reference * (1 + eager_error * random.choice([-1.0, 1.0], 1000))
    ours = reference * (1 + ours_error * random.choice([-1.0, 1.0], 1000))
    return Sample(ours.astype(np.float32), eager.astype(np.float32), reference)


def _exact(ours: object, eager: object, dtype: type = np.float32) -> Sample:
    eager_array: np.ndarray[Any, np.dtype[Any]] = np.asarray(eager, dtype)
    return Sample(np.asarray(ours, dtype), eager_array, eager_array.astype(np.float64))


def test_an_error_like_eagers_is_correct() -> None:
    verdict = check_output("logits", [_sample(seed, 1.5 * UNIT, 1.5 * UNIT) for seed in range(3)])
    assert verdict.correct, str(verdict)
    assert verdict.rms_limit == 2 * verdict.eager_rms + UNIT
    assert verdict.peak_limit == 4 * verdict.eager_peak + 4 * UNIT


def test_an_error_far_above_eagers_is_wrong_and_named() -> None:
    verdict = check_output("logits", [_sample(seed, 40 * UNIT) for seed in range(3)])
    assert not verdict.correct
    assert "logits float32: WRONG" in str(verdict)
    assert "rms error is" in str(verdict)
    assert "of sample" in str(verdict)


def test_one_bad_element_is_found_by_the_largest_error() -> None:
    sample = _sample(0, UNIT)
    sample.ours[123] += 1e-3
    verdict = check_output("out", [sample, _sample(1, UNIT)])
    assert not verdict.correct
    assert "at (123,) of sample 0" in str(verdict)


def test_errors_of_all_samples_count_together() -> None:
    assert check_output("out", [_sample(0, 3.5 * UNIT)]).correct is False
    assert check_output("out", [_sample(0, 3.5 * UNIT), *(_sample(seed, UNIT) for seed in (1, 2, 3))]).correct


def test_the_unit_follows_the_output_dtype() -> None:
    reference = np.linspace(1.0, 2.0, 100)
    eager = reference.astype(ml_dtypes.bfloat16)
    nudged = (reference * (1 + 2.0**-10)).astype(ml_dtypes.bfloat16)
    assert check_output("out", [Sample(nudged, eager, reference)]).correct
    as_f32 = Sample(nudged.astype(np.float32), eager.astype(np.float32), eager.astype(np.float64))
    assert not check_output("out", [as_f32]).correct


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_bools_have_to_be_equal(dtype: type) -> None:
    assert check_output("index", [_exact([1, 0, 1], [1, 0, 1], dtype)]).correct
    verdict = check_output("index", [_exact([1, 1, 1], [1, 0, 1], dtype)])
    assert not verdict.correct
    assert "1 of 3 places, first at (1,)" in str(verdict)


@pytest.mark.parametrize(
    ("ours", "eager"),
    [
        ([1.0, np.nan], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, np.nan]),
        ([1.0, np.inf], [1.0, 3e38]),
        ([1.0, -np.inf], [1.0, np.inf]),
        ([1.0, np.nan], [1.0, np.inf]),
        ([1.0, np.inf], [1.0, np.nan]),
    ],
)
def test_nan_and_inf_stand_where_eager_has_them(ours: list[float], eager: list[float]) -> None:
    verdict = check_output("out", [_exact(ours, eager)])
    assert not verdict.correct
    assert "NaN or inf differs" in str(verdict)


def test_equal_nan_and_inf_are_correct_and_leave_the_rest_measured() -> None:
    special = [np.nan, np.inf, -np.inf, 1.0]
    assert check_output("out", [_exact(special, special)]).correct
    assert not check_output("out", [_exact([*special[:3], 1.001], special)]).correct


def _overflowed(ours: float, reference: float) -> Sample:
    """A float16 result beside one that overflowed in eager mode."""
    return Sample(*(np.asarray([1.0, x], np.float16) for x in (ours, np.inf)), np.asarray([1.0, reference]))


def test_what_overflows_in_eager_mode_alone_is_right_where_it_is_near_the_reference() -> None:
    assert check_output("out", [_overflowed(38.2, 38.2)]).correct
    assert check_output("out", [_overflowed(np.inf, 38.2)]).correct
    far = check_output("out", [_overflowed(38.8, 38.2)])
    assert not far.correct
    assert "at (1,) of sample 0" in str(far)
    assert not check_output("out", [_overflowed(-np.inf, 38.2)]).correct
    assert not check_output("out", [_overflowed(np.nan, 38.2)]).correct


def test_what_the_dtype_cannot_hold_is_infinite() -> None:
    assert check_output("out", [_overflowed(np.inf, 7e4)]).correct
    assert not check_output("out", [_overflowed(65504.0, 7e4)]).correct


def test_shape_and_dtype_are_part_of_the_result() -> None:
    assert "shape is (2, 1)" in str(check_output("out", [_exact([[1.0], [2.0]], [1.0, 2.0])]))
    sample = Sample(np.ones(2, np.float16), np.ones(2, np.float32), np.ones(2))
    assert "dtype is float16" in str(check_output("out", [sample]))


def test_an_all_zero_output_allows_no_error() -> None:
    zeros = [0.0, 0.0]
    assert check_output("out", [_exact(zeros, zeros)]).correct
    assert not check_output("out", [_exact([0.0, 1e-30], zeros)]).correct


def test_empty_and_zero_dimensional_outputs_are_judged() -> None:
    assert check_output("out", [_exact(np.zeros((0, 3)), np.zeros((0, 3)))]).correct
    assert not check_output("out", [_exact(2.0, 1.0)]).correct


def test_complex_parts_are_judged() -> None:
    value = np.asarray([1 + 2j, 3 - 1j], np.complex64)
    assert check_output("out", [Sample(value, value, value.astype(np.complex128))]).correct
    assert not check_output("out", [Sample(value.conj(), value, value.astype(np.complex128))]).correct


def test_a_useless_reference_is_an_error_and_not_a_verdict() -> None:
    with pytest.raises(HidetError, match="no samples"):
        check_output("out", [])
    one = np.ones(2, np.float32)
    with pytest.raises(HidetError, match="not finite where eager is"):
        check_output("out", [Sample(one, one, np.asarray([1.0, np.inf]))])
    with pytest.raises(HidetError, match="shape"):
        check_output("out", [Sample(one, one, np.ones(3))])
