"""What the benchmark of defaults against spaces draws, and what it computes from what it measures."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

# The benchmarks are scripts at the root of the repository, not part of a wheel.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.choice_cases import LIMITS, OPS, STREAMING, Case, draw_cases
from benchmarks.choice_points import CpuTimer, memory_of, points_of, reference_of, timers_of
from benchmarks.schedule_choices import CLOSE, ChoiceRow, differing, main, row_of, summaries, summary, worst
from hidet.context import make_context

ATTENTION = Case("attention", "causal", "f32", (("b", 1), ("h", 2), ("q", 9), ("k", 9), ("d", 16)))
PRODUCT = Case("product", "linear", "f32", (("b", 1), ("m", 5), ("n", 40), ("k", 33)))
_WINDOWS = (("b", 1), ("c", 9), ("p", 7), ("t", 3), ("s", 2))
STREAMED = [
    Case("depthwise", "depthwise", "f32", _WINDOWS),
    *(Case("pool", kind, "f32", _WINDOWS) for kind in ("max", "mean", "max_nchw")),
    *(Case("scan", kind, "f32", (("r", 5), ("n", 40))) for kind in ("rows", "columns")),
]
IMAGE = Case("convolution", "conv", "f32", (("b", 1), ("c", 5), ("f", 9), ("p", 7), ("t", 3), ("s", 2)))


def _row(*seconds: float | None, predictions: tuple[float | None, ...] | None = None) -> ChoiceRow:
    params = [f"p{place}" for place in range(len(seconds))]
    return row_of(PRODUCT, "rule", params, predictions or (None,) * len(seconds), seconds)


@pytest.mark.parametrize("target", sorted(LIMITS))
def test_cases_are_the_same_for_a_seed_and_a_longer_list_begins_like_a_shorter_one(target) -> None:
    cases, limits = draw_cases(5, 30, OPS, target), LIMITS[target]
    assert cases[:12] == draw_cases(5, 12, OPS, target) != draw_cases(6, 12, OPS, target)
    assert [case.op for case in cases[:3]] == list(OPS) and len(set(cases)) == 30
    cases += draw_cases(5, 30, STREAMING, target)
    assert all(limits.fewest <= case.multiply_adds <= limits.multiply_adds for case in cases)


def test_declared_multiply_adds_are_those_that_torch_counts() -> None:

    for case in (PRODUCT, IMAGE, ATTENTION, STREAMED[0]):
        with FlopCounterMode(display=False) as counter:
            case.compute(*case.inputs(0, "cpu"))
        assert counter.get_total_flops() == 2 * case.multiply_adds, case


def test_a_row_holds_the_default_against_the_fastest_point() -> None:
    row = _row(3.0, 2.0, 4.0)
    assert (row.ratio, row.best_params, row.points) == (1.5, "p1", 3)
    assert row.ranked_ratio is None and row.predicted_ratio is None


def test_a_row_says_what_the_model_would_have_chosen_and_expected() -> None:
    row = _row(3.0, 2.0, 2.5, predictions=(6.0, 4.0, 3.0))
    assert (row.ranked_ratio, row.predicted_ratio) == (1.25, 1.5)


def test_a_row_says_what_the_model_would_have_chosen_before_the_device_was_measured() -> None:
    row = row_of(PRODUCT, "rule", ["p0", "p1", "p2"], [6.0, 4.0, 3.0], [3.0, 2.0, 2.5], by_published=[1.0, 2.0, 2.0])
    assert (row.ranked_ratio, row.published_ratio) == (1.25, 1.5)
    assert [each.mean for each in summaries([row])] == pytest.approx([1.5, 1.25, 1.5])


def test_points_with_wrong_results_count_for_nothing() -> None:
    row = _row(3.0, None, 4.0, predictions=(2.0, 1.0, 3.0))
    assert (row.ratio, row.points, row.ranked_ratio) == (1.0, 2, 1.0)
    with pytest.raises(Exception, match="the default of rule computes something else"):
        row_of(PRODUCT, "rule", ["p0"], [None], [None], ["p0: off by one"])


def test_a_summary_has_the_geometric_mean_and_the_share_within_five_per_cent() -> None:
    found = summary([1.0, CLOSE, 2.0, 4.0])
    assert found.mean == pytest.approx((CLOSE * 8) ** 0.25)
    assert found.close == 0.5
    assert summary([]).rows == 0


def test_the_worst_rows_come_first() -> None:
    rows = [_row(1.0), _row(3.0, 1.0), _row(2.0, 1.0)]
    assert [row.ratio for row in worst(rows, 2)] == [3.0, 2.0]


def test_a_table_shows_the_knobs_that_differ() -> None:
    assert differing("tile 6x4; steps 64; gemv False", "tile 12x1; steps 64; gemv True") == (
        "tile 6x4; gemv False",
        "tile 12x1; gemv True",
    )
    assert differing("keys 128", "keys 128") == ("", "")


@pytest.mark.parametrize("case", [PRODUCT, IMAGE, ATTENTION], ids=str)
def test_results_are_checked_against_torch_in_float64(case) -> None:
    reference = reference_of(case, "cpu")
    assert reference.check(reference.eager.ravel()).correct
    assert not reference.check(reference.eager.ravel() * 1.01).correct
    assert not reference.check(np.full(reference.eager.size, np.nan, np.float32)).correct


def test_products_in_tf32_may_round_their_inputs_wherever_torch_would_not() -> None:
    """cuBLAS multiplies f32 by f32 for one row and for sums of an odd number of terms, whatever is allowed."""
    wide, rounded = (reference_of(replace(PRODUCT, dtype=dtype), "cpu") for dtype in ("f32", "tf32"))
    error = np.abs(rounded.eager - rounded.exact).max() / np.abs(rounded.exact).max()
    assert 2**-14 < error < 2**-10
    assert rounded.check(wide.eager.ravel()).correct and rounded.check(rounded.eager.ravel()).correct
    assert not wide.check(rounded.eager.ravel()).correct
    assert not rounded.check((rounded.exact + 10 * (rounded.eager - rounded.exact)).astype(np.float32).ravel()).correct


@pytest.mark.parametrize("case", [ATTENTION, *STREAMED], ids=str)
@pytest.mark.thorough(every=2)
def test_equal_programs_share_a_timer_and_all_points_give_the_right_result(case) -> None:
    ctx = make_context("cpu", {"threads": 1})
    points = points_of(case, ctx, None)
    timers = timers_of(points, memory_of(points, case, ctx), ctx)
    assert len(timers) == len(points.points) > 1
    reference = reference_of(case, "cpu")
    assert all(reference.check(timer.result()).correct for timer in timers)


def test_the_time_of_many_calls_is_shared_out_among_them() -> None:
    calls: list[int] = []

    def call(count: int) -> None:
        calls.append(count)
        time.sleep(count * 1e-4)

    # Sleeping never ends early.
    assert CpuTimer(call, np.zeros(1, np.float32)).seconds(0.002) >= 1e-4
    assert len(calls) > 1


def test_the_command_writes_a_row_for_each_case(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "found.json"
    arguments = ["--count", "2", "--op", "attention", "--most", "1", "--seconds-per-point", "0.001", "--workers", "0"]
    result = CliRunner().invoke(main, [*arguments, "--json", str(path)])
    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())
    assert len(found["rows"]) == 2 and found["default"]["mean"] >= 1.0
    assert all(row["points"] <= 2 for row in found["rows"])


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_points_on_a_gpu_give_the_right_result_and_are_timed_by_replays(op) -> None:
    ctx = make_context("cuda")
    (case,) = draw_cases(0, 1, (op,), "cuda")
    points = points_of(case, ctx, 2)
    reference = reference_of(case, "cuda")
    for timer in timers_of(points, memory_of(points, case, ctx), ctx):
        assert reference.check(timer.result()).correct
        assert 0 < timer.seconds(0.001) < 1
