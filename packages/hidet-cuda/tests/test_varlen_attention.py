"""Attention of packed sequences: every kernel that a call may take, run by the simulator and compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet.cuda.schedules import attention_tiles
from hidet.cuda.schedules.attention_plan import Plan, choose_plan
from hidet.cuda.schedules.attention_space import attention_space
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.tasks import Array, compiled_kernels, scheduled_task, simulate
from hidet.gpu.schedules.attention_launch import problem_of
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledTask
from hidet.testing import check_rule
from hidet.testing.packed_attention import attention_of_sequences, positions

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12}
Window = tuple[int, int]
FULL, CAUSAL, BOTH, LEFT = (-1, -1), (-1, 0), (9, 3), (20, 0)


def graph(
    dtype: str,
    heads: tuple[int, int],
    depth: int,
    longest: tuple[int, int] = (2048, 2048),
    width: int | None = None,
    **attrs: Any,
) -> str:
    """A graph of one attention of sequences with symbolic totals and count. heads: of queries, and of keys."""
    wide = "f64" if dtype == "f64" else "f32"
    given = {"max_q": longest[0], "max_k": longest[1], **attrs}
    attributes = ", ".join(f"{name}={list(x) if isinstance(x, tuple) else x}" for name, x in given.items())
    q, k, v = (
        f"{dtype}[{rows}, {count}, {extent}]"
        for rows, count, extent in (("t", heads[0], depth), ("s", heads[1], depth), ("s", heads[1], width or depth))
    )
    return (
        "symbol t: 0..65536 hint 16384\nsymbol s: 0..65536 hint 16384\nsymbol n: 1..1024 hint 17\n"
        f"graph g(%q: {q}, %k: {k}, %v: {v}, %a: i32[n], %b: i32[n]):\n"
        f"  %0: {dtype}[t, {heads[0]}, {width or depth}], %1: {wide}[{heads[0]}, t] = "
        f"varlen_attention_with_logsumexp(%q, %k, %v, %a, %b, {attributes})\n"
        "  return %0, %1\n"
    )


def operands(
    dtype: str, heads: tuple[int, int], depth: int, rows: list[int], keys: list[int], width: int | None = None
) -> dict[str, Array]:
    """Random ones, with rows behind the last sequence that nobody may read: they are not finite."""
    rng = np.random.default_rng(sum(rows) + depth)
    shapes = ((sum(rows), heads[0], depth), (sum(keys), heads[1], depth), (sum(keys), heads[1], width or depth))
    found = {}
    for name, shape in zip("qkv", shapes, strict=True):
        behind = np.full((3, *shape[1:]), np.nan if name == "k" else np.inf)
        found[name] = np.concatenate([rng.standard_normal(shape), behind]).astype(TYPES[dtype])
    return {**found, "a": positions(rows), "b": positions(keys)}


def run(step: ScheduledTask, inputs: dict[str, Array], offset: int = 0) -> list[Array]:
    return simulate(step, inputs, {"t": len(inputs["q"]), "s": len(inputs["k"]), "n": len(inputs["a"])}, offset)


def is_right(
    dtype: str,
    heads: tuple[int, int],
    depth: int,
    rows: list[int],
    keys: list[int],
    *,
    window: Window = FULL,
    arch: str = "sm_80",
    width: int | None = None,
    offset: int = 0,
    **more: Any,
) -> None:
    """The program gives what each sequence's attention is, and zeros behind the last one."""
    longest = more.pop("longest", (max(rows), max(keys)))
    inputs = operands(dtype, heads, depth, rows, keys, width)
    text = graph(dtype, heads, depth, longest, width, window=window, **more)
    step = scheduled_task(text, arch, is_aligned=offset == 0)
    assert step.rule_name == "cuda.attention"
    q, k, v = (inputs[name] for name in "qkv")
    right = attention_of_sequences(q, k, v, rows, keys, window, more.get("scale"))
    for result, expected in zip(run(step, inputs, offset), right, strict=True):
        np.testing.assert_allclose(result, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


ROWS, KEYS = [3, 0, 1, 70, 5], [4, 2, 0, 40, 90]


@pytest.mark.parametrize("window", [FULL, CAUSAL, BOTH, LEFT], ids=str)
@pytest.mark.parametrize(("dtype", "depth"), [("f16", 64), ("bf16", 80), ("f32", 24), ("f64", 8)])
@pytest.mark.thorough(every=4)
def test_sequences_attend_to_their_own_keys_alone(dtype: str, depth: int, window: Window) -> None:
    """Some are empty, some have more rows than keys, none is a whole number of tiles."""
    is_right(dtype, (2, 1), depth, ROWS, KEYS, window=window)


@pytest.mark.parametrize("seed", range(6))
def test_lengths_may_be_any(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, keys = (list(map(int, rng.integers(0, 100, 4) * rng.integers(0, 2, 4))) for _ in range(2))
    window = (int(rng.integers(-1, 40)), int(rng.integers(-1, 10)))
    depth = int(rng.choice([16, 64, 128]))
    is_right("f16", (2, 2), depth, rows, keys, window=window, longest=(100, 100), arch="sm_90a")


def test_results_may_be_wider_than_keys_and_scores_be_scaled() -> None:
    is_right("f16", (4, 2), 16, ROWS, KEYS, width=40, window=CAUSAL, scale=-0.3)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_tensors_may_start_anywhere(dtype: str) -> None:
    is_right(dtype, (2, 1), 16, ROWS, KEYS, window=BOTH, offset=1)


@pytest.mark.parametrize("window", [FULL, CAUSAL, BOTH, LEFT], ids=str)
@pytest.mark.parametrize(("depth", "number"), [(64, 0), (64, 1), (128, 0)])
@pytest.mark.thorough(every=8)
def test_a_warp_group_copies_for_those_that_multiply(
    depth: int, number: int, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """number: of the plan that calls take, as if their sizes asked for it."""
    taken = only(number, monkeypatch)
    is_right(
        "f16", (1, 1), depth, [150, 0, 1, 70], [130, 20, 0, 290], window=window, arch="sm_90a", longest=(2048,) * 2
    )
    assert taken[0].is_warp_specialized


@pytest.mark.parametrize("number", range(5))
@pytest.mark.thorough(every=2)
def test_every_plan_that_a_call_may_take_is_right(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    only(number, monkeypatch)
    is_right("bf16", (2, 1), 64, [40, 0, 17], [70, 3, 17], window=CAUSAL, arch="sm_90a", longest=(2048, 2048))


def only(number: int, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Have all calls take the plan of this number; the list has that plan once a program is built."""
    taken: list[Plan] = []
    kept = attention_tiles.launches_by_size

    def launches(builder: Any, problem: Any, params: Plan, target: Any) -> Any:
        plans = [replace(params, others=()), *params.others]
        taken.append(plans[number])
        return kept(builder, problem, plans[number], target)

    monkeypatch.setattr("hidet.cuda.schedules.attention.launches_by_size", launches)
    return taken


@pytest.mark.parametrize(
    ("dtype", "depth", "arch"), [("f16", 64, "sm_90a"), ("bf16", 16, "sm_80"), ("f32", 16, "sm_80")]
)
@pytest.mark.thorough(every=3)
def test_every_way_to_cut_the_work_is_right(dtype: str, depth: int, arch: str) -> None:
    """Points of the rule's space, with sequences that are cut to the longest that was told."""
    where = np.array([2, 9, 30, 999], np.int32)
    check_rule(
        load_registry().schedules["cuda.attention"],
        graph(dtype, (2, 1), depth, (19, 40), window=BOTH),
        f"cuda:{arch}",
        inputs={"a": where, "b": where},
        sizes=[{"t": 43, "s": 37, "n": 4}],
        points=5,
        seeds=1,
    )


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_rows_in_no_sequence_are_zero(dtype: str) -> None:
    """Before the first one, behind the last one, and beyond the longest one that was told."""
    inputs = operands(dtype, (2, 1), 16, [12], [12])
    inputs |= {"a": np.array([2, 4, 9], np.int32), "b": np.array([0, 5, 12], np.int32)}
    result, logarithms = run(scheduled_task(graph(dtype, (2, 1), 16, (3, 12))), inputs)
    is_inside = np.isin(np.arange(15), (2, 3, 4, 5, 6))
    assert (result[~is_inside] == 0).all() and (logarithms[:, ~is_inside] == -np.inf).all()
    assert (result[is_inside] != 0).all() and np.isfinite(logarithms[:, is_inside]).all()


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("given", [[0, 999, 4], [-7, 5, 2**31 - 1], [-(2**31), 3, 1], [12, 12, 12]])
@pytest.mark.thorough(every=5)
def test_whatever_positions_say_nothing_outside_is_touched(
    given: list[int], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator refuses accesses outside of tensors."""
    only(number, monkeypatch)
    inputs = operands("f16", (2, 1), 64, [12], [12])
    where = np.array(given, np.int32)
    step = scheduled_task(graph("f16", (2, 1), 64, window=BOTH), "sm_90a")
    run(step, {**inputs, "a": where, "b": where})
    run(step, {**inputs, "a": where, "b": where[::-1].copy()})


def test_without_sequences_all_rows_are_zero() -> None:
    inputs = operands("f16", (2, 1), 16, [], [])
    result, _ = run(scheduled_task(graph("f16", (2, 1), 16)), inputs)
    assert result.shape[0] == 3 and (result == 0).all()


@pytest.mark.parametrize("window", [FULL, CAUSAL, LEFT], ids=str)
@pytest.mark.parametrize("depth", [64, 80, 128, 256])
def test_what_is_chosen_may_be_tuned(depth: int, window: Window) -> None:
    problem = problem_of(scheduled_task(graph("bf16", (16, 4), depth, window=window), "sm_90a").task)
    target = CudaTarget("sm_90a")
    chosen = choose_plan(problem, target)
    assert chosen.is_warp_specialized and chosen.chunk is None and not chosen.stacked
    assert [rule.doc for rule in attention_space(problem, chosen, target).constraints if not rule.holds(chosen)] == []


COMPILED = {
    f"{dtype}, heads of {depth}, window {window}": graph(dtype, (16, 4), depth, window=window)
    for dtype, depth in (("bf16", 64), ("f16", 80), ("bf16", 128), ("bf16", 256), ("f32", 64))
    for window in (FULL, CAUSAL, LEFT)
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.thorough(every=8)
def test_attention_of_sequences_compiles_without_spills(name: str, arch: str) -> None:
    cubins = compiled_kernels(scheduled_task(COMPILED[name], arch), arch)
    assert cubins
    for cubin in cubins:
        assert {kernel: usage.spill_bytes for kernel, usage in cubin.usage.items() if usage.spill_bytes} == {}
        assert cubin.remarks == ()
