"""Ordering rows: run by the simulator and compiled for every architecture."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.testing.schedules import assert_compiles, assert_right, schedule_text
from hidet.host.report import count_nodes
from hidet.ir.expr import Call
from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from hidet.schedule.select import ScheduledTask

ARCHITECTURES = ["sm_80", "sm_89", "sm_90a"]


def graph(op: str, type_: str, attributes: str, shape: str | None = None, *, symbols: str = "") -> str:
    """A graph of one operator with values and positions."""
    dtype, _, given = type_.partition("[")
    made = f"[{shape or given.rstrip(']')}]"
    results = f"%0: {dtype}{made}, %1: i64{made} = {op}(%x, {attributes})"
    return f"{symbols}graph g(%x: {type_}):\n  {results}\n  return %0, %1\n"


ROWS = {
    "short rows, several a block": graph("sort", "f32[5, 19]", "axis=1, descending=False"),
    "rows of one warp": graph("sort", "f16[3, 64]", "axis=1, descending=True"),
    "a row of a block": graph("sort", "i32[2, 700]", "axis=1, descending=False"),
    "columns": graph("sort", "f32[90, 3]", "axis=0, descending=False"),
    "an axis between others": graph("sort", "f32[2, 70, 3]", "axis=1, descending=True"),
    "wide elements": graph("sort", "i64[2, 300]", "axis=1, descending=False"),
    "doubles": graph("sort", "f64[300]", "axis=0, descending=True"),
    "a long row of a block": graph("sort", "f32[2, 2500]", "axis=1, descending=False"),
    "wide elements of a block": graph("sort", "f64[1500]", "axis=0, descending=True"),
    "two tiles of two rows": graph("sort", "f32[2, 4500]", "axis=1, descending=True"),
    "three tiles of long columns": graph("sort", "f16[8200, 1]", "axis=0, descending=False"),
    "wide elements in tiles": graph("sort", "i64[2100]", "axis=0, descending=False"),
    "bytes in tiles": graph("sort", "i8[4200]", "axis=0, descending=True"),
    "the best of short rows": graph("topk", "f32[5, 70]", "k=6, axis=1, largest=True", "5, 6"),
    "the best of a long row": graph("topk", "f32[2, 5000]", "k=9, axis=1, largest=True", "2, 9"),
    "the least of a long row": graph("topk", "f16[5000]", "k=40, axis=0, largest=False", "40"),
    "as many of a long row as are selected": graph("topk", "f32[5000]", "k=1024, axis=0, largest=True", "1024"),
    "one of a long row": graph("topk", "bf16[4999]", "k=1, axis=0, largest=True", "1"),
    "a whole row": graph("topk", "f32[2, 1030]", "k=1030, axis=1, largest=True", "2, 1030"),
    "the best along columns": graph("topk", "f32[2, 2500, 2]", "k=7, axis=1, largest=True", "2, 7, 2"),
    "the best of wide elements": graph("topk", "i64[5000]", "k=30, axis=0, largest=False", "30"),
    "many of a long row": graph("topk", "f32[3000]", "k=1500, axis=0, largest=True", "1500"),
    "one of a row": graph("kthvalue", "f32[3, 70]", "k=5, axis=1, keepdim=False", "3"),
    "the middle of a row": graph("median", "f32[3, 2100]", "axis=1, keepdim=True", "3, 1"),
    "bools": graph("sort", "bool[2, 100]", "axis=1, descending=False"),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.thorough(every=4)
def test_rows_are_ordered(name: str) -> None:
    assert_right(ROWS[name], "gpu.sort", 0.0)


@pytest.mark.parametrize("length", [50, 2500, 4200])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.thorough(every=2)
def test_equal_elements_keep_their_order_and_nan_is_the_largest(length: int, descending: bool) -> None:
    x = np.random.default_rng(1).integers(-3, 3, length).astype(np.float32)
    x[::7], x[::11], x[5], x[6] = np.nan, np.inf, 0.0, -0.0
    assert_right(graph("sort", f"f32[{length}]", f"axis=0, descending={descending}"), "gpu.sort", 0.0, {"x": x})


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "i64", "i8", "bool"])
@pytest.mark.parametrize("distinct", [1, 3])
@pytest.mark.thorough(every=2)
def test_of_more_equal_elements_than_a_tile_holds_the_first_are_the_best(dtype: str, distinct: int) -> None:
    x = np.random.default_rng(2).integers(0, distinct, 4300).astype(dtypes.dtype(dtype).numpy())
    assert_right(graph("topk", f"{dtype}[4300]", "k=20, axis=0, largest=True", "20"), "gpu.sort", 0.0, {"x": x})


@pytest.mark.parametrize("largest", [False, True])
def test_nan_is_the_largest_and_zeros_are_equal_where_sort_keys_are_selected(largest: bool) -> None:
    x = np.random.default_rng(3).integers(-2, 3, 4300).astype(np.float32) * np.float32(1e-40)
    x[::7], x[::11], x[1::11], x[5::9] = np.nan, np.inf, -np.inf, -0.0
    text = graph("topk", "f32[4300]", f"k=900, axis=0, largest={largest}", "900")
    assert_right(text, "gpu.sort", 0.0, {"x": x})


@pytest.mark.parametrize("length", [6, 700, 4500])
def test_the_best_of_rows_whose_length_is_known_at_the_call_alone(length: int) -> None:
    symbols = "symbol b: 1.. hint 4\nsymbol n: 6.. hint 300\n"
    text = graph("topk", "f32[b, n]", "k=6, axis=1, largest=True", "b, 6", symbols=symbols)
    assert_right(text, "gpu.sort", 0.0, sizes={"b": 2, "n": length})


@pytest.mark.parametrize("length", [0, 1, 700, 2500, 4500])
@pytest.mark.thorough(every=2)
def test_the_length_of_a_row_may_be_known_at_the_call_alone(length: int) -> None:
    text = graph("sort", "f32[2, n]", "axis=1, descending=False", symbols="symbol n: 0.. hint 300\n")
    assert_right(text, "gpu.sort", 0.0, sizes={"n": length})


def test_positions_alone_are_ordered() -> None:
    text = "graph g(%x: f32[3, 90]):\n  %0: i64[3, 90] = argsort(%x, axis=1, descending=True)\n  return %0\n"
    assert_right(text, "gpu.sort", 0.0)


@pytest.mark.parametrize(("dtype", "passes"), [("bf16", 2), ("f16", 3), ("f32", 4), ("i8", 1), ("i64", 8)])
def test_rows_take_a_pass_for_eight_bits_that_differ(dtype: str, passes: int) -> None:
    (step,) = schedule_text(graph("sort", f"{dtype}[1000000]", "axis=0, descending=False")).steps
    assert isinstance(step, ScheduledTask)
    kernels = [function for function in step.program.module.functions if function.kind == "kernel"]
    entry = step.program.module.function(step.program.module.entry)
    launches = [stmt for stmt in walk(entry.body) if isinstance(stmt, Launch)]
    assert len(launches) == 3 * passes
    assert len(kernels) <= 6  # passes share them


@pytest.mark.parametrize(
    ("length", "k", "what"), [(4096, 400, "selects"), (4096, 600, "sorts"), (5000, 900, "selects")]
)
def test_rows_of_a_block_are_put_in_order_where_many_are_wanted(length: int, k: int, what: str) -> None:
    (step,) = schedule_text(graph("topk", f"f32[600, {length}]", f"k={k}, axis=1, largest=True", f"600, {k}")).steps
    assert isinstance(step, ScheduledTask)
    votes = [node for function in step.program.module.functions for node in walk(function.body) if _is_vote(node)]
    assert bool(votes) == (what == "sorts")  # only radix sort ranks sort keys by votes


def _is_vote(node: object) -> bool:
    return isinstance(node, Call) and node.callee == "gpu.vote_ballot"


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    "text",
    [
        graph("sort", "f16[4096, 64]", "axis=1, descending=True"),
        graph("sort", "f32[4096, 4096]", "axis=1, descending=True"),
        graph("sort", "f64[64, 1500]", "axis=1, descending=True"),
        graph("sort", "i64[4, 100000]", "axis=1, descending=False"),
        graph("topk", "f32[1, 128256]", "k=50, axis=1, largest=True", "1, 50"),
        graph("topk", "f64[64, 4096]", "k=1000, axis=1, largest=True", "64, 1000"),
        graph("topk", "bf16[8192, 64]", "k=8, axis=1, largest=True", "8192, 8"),
    ],
)
@pytest.mark.thorough(every=3)
def test_kernels_compile_without_spills(text: str, arch: str) -> None:
    assert_compiles(text, arch)


def test_a_scheduled_ordering_counts_as_scheduled() -> None:
    counts = count_nodes([schedule_text(ROWS["two tiles of two rows"])])
    assert (counts.scheduled, counts.routine) == (1, 0)
