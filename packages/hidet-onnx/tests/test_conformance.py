"""A fixed part of ONNX's own backend tests; `nox -s conformance` runs all of them."""

from __future__ import annotations

import numpy as np
import pytest

from hidet.onnx.suite.cases import Outcome, Selection, is_rounding
from hidet.onnx.suite.processes import run_processes
from hidet.onnx.suite.report import coverage, summary

LEAST_SHARE = 0.97
"""Of a part's tests, how many have to pass."""


@pytest.mark.slow
@pytest.mark.thorough(every=12)
@pytest.mark.parametrize("part", range(12))
def test_a_part_of_the_suite_gives_right_answers(part: int) -> None:
    outcomes = run_processes(1, Selection(part, parts=48))
    passed = sum(outcome.result == "pass" for outcome in outcomes)
    crashes = [outcome for outcome in outcomes if "died" in outcome.reason or "uncaught" in outcome.reason]
    assert not crashes, summary(crashes)
    assert not [outcome for outcome in outcomes if outcome.result == "wrong"], summary(outcomes)
    assert passed >= LEAST_SHARE * len(outcomes), summary(outcomes)


def test_parts_of_the_suite_are_disjoint_and_whole() -> None:
    names = [f"test_{number}" for number in range(100)]
    parts = [{name for name in names if Selection(part, 4).has(name)} for part in range(4)]
    assert sum(map(len, parts)) == 100
    assert set.union(*parts) == set(names)


def test_noise_around_zero_is_distinguished_from_a_wrong_answer() -> None:
    recorded = np.array([54.0, 1.9e-7], np.float32)
    assert is_rounding([recorded], [np.array([54.0, 0.0], np.float32)])
    assert not is_rounding([recorded], [np.array([54.0, 1e-3], np.float32)])
    assert not is_rounding([recorded], [np.array([54.0, np.nan], np.float32)])
    assert not is_rounding([np.array([3])], [np.array([4])])


def test_the_coverage_table_counts_tests_and_nodes_by_operator() -> None:
    outcomes = [
        Outcome("test_relu", "pass", "", ("Relu",), {"scheduled": 1}, 0.1),
        Outcome("test_block", "fail", "UnsupportedOp: no", ("Odd", "Relu"), {}, 0.1),
    ]
    text = coverage(outcomes, "1.0", "CPU")
    assert "| Relu | 2 | 1 | 1 |  |  |  |" in text
    assert "1 of 2 tests pass" in text
    assert "| test_block | fail | UnsupportedOp: no |" in text
