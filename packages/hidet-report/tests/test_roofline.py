"""What devices can do at most, and what tasks ask of them."""

from __future__ import annotations

import pytest

from hidet import dtypes
from hidet.context import make_context
from hidet.fusion.fuse import fuse
from hidet.report.profile_text import duration
from hidet.report.roofline import Roofline, Work, roofline_of, work_of

from .conftest import graph


@pytest.mark.parametrize(("seconds", "text"), [(75, "75 s"), (1.5e-3, "1.5 ms"), (2e-6, "2 us"), (3e-9, "3 ns")])
def test_durations_have_units(seconds, text) -> None:
    assert duration(seconds) == text


def test_what_a_task_computes_and_moves_is_counted() -> None:
    ctx = make_context("cpu")
    text = "graph g(%x: f32[64, 32], %y: f32[32, 16]):\n  %0: f32[64, 16] = matmul(%x, %y)\n  return %0\n"
    (task,) = fuse(graph(text), ctx).tasks
    assert work_of(task) == Work(2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16 + 64 * 16), "float32")


def test_a_gather_reads_as_much_of_a_table_as_it_gives() -> None:
    text = "graph g(%t: f32[1000, 8], %i: i64[4]):\n  %0: f32[4, 8] = embedding(%t, %i)\n  return %0\n"
    (task,) = (t for t in fuse(graph(text), make_context("cpu")).tasks if t.outputs[0].type.dtype == dtypes.f32)
    assert work_of(task).nbytes == 2 * 4 * 4 * 8 + 4 * 8


def test_no_program_can_be_faster_than_the_roof() -> None:
    roof = Roofline({"float32": 1e9, "float16 matrix units": 1e12}, {"L1": 1e10, "memory": 1e9}, {"L1": 1000})
    assert roof.least_seconds(10**6, 100, "float32") == 1e-3
    assert roof.least_seconds(10**6, 100, "float16") == 1e-6
    assert roof.least_seconds(0, 1000, "float32") == 1e-7 and roof.least_seconds(0, 2000, "float32") == 2e-6


def test_the_roof_of_this_machine_is_known() -> None:
    roof = roofline_of(make_context("cpu"))
    assert roof.flops[dtypes.f32.name] > 1e9 and list(roof.bandwidths)[-1] == "memory"
    one = roofline_of(make_context("cpu", {"threads": 1}))
    assert one.flops[dtypes.f32.name] <= roof.flops[dtypes.f32.name]
