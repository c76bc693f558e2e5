"""Attention of packed sequences on the CPU, by the schedule of attention."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

import hidet
from hidet.context import make_context
from hidet.graph.parser import parse_graph
from hidet.testing import check_rule
from hidet.testing.packed_attention import attention_of_sequences, positions

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12}
FULL, CAUSAL, BOTH, LEFT = (-1, -1), (-1, 0), (9, 3), (20, 0)


def graph(dtype: str, heads: tuple[int, int], depth: int, longest: tuple[int, int], **attrs: Any) -> str:
    """A graph of one attention of sequences of any lengths. heads: of queries, and of keys."""
    wide = "f64" if dtype == "f64" else "f32"
    given = {"max_q": longest[0], "max_k": longest[1], **attrs}
    attributes = ", ".join(f"{name}={list(x) if isinstance(x, tuple) else x}" for name, x in given.items())
    k = f"{dtype}[s, {heads[1]}, {depth}]"
    return (
        "symbol t: 0..4096\nsymbol s: 0..4096\nsymbol n: 1..64\n"
        f"graph g(%q: {dtype}[t, {heads[0]}, {depth}], %k: {k}, %v: {k}, %a: i32[n], %b: i32[n]):\n"
        f"  %0: {dtype}[t, {heads[0]}, {depth}], %1: {wide}[{heads[0]}, t] = "
        f"varlen_attention_with_logsumexp(%q, %k, %v, %a, %b, {attributes})\n"
        "  return %0, %1\n"
    )


def compiled(text: str) -> Any:
    made = hidet.compile(parse_graph(text, make_context("cpu").registry.operators), target="cpu")
    assert made.report().nodes.fallback == 0
    return made


@pytest.mark.parametrize("window", [FULL, CAUSAL, BOTH, LEFT], ids=str)
@pytest.mark.parametrize(
    ("dtype", "depth", "heads"),
    [("f16", 64, (4, 2)), ("bf16", 80, (2, 2)), ("f32", 128, (6, 2)), ("f32", 5, (1, 1)), ("f64", 20, (2, 1))],
)
@pytest.mark.thorough(every=4)
def test_sequences_of_any_lengths_attend_to_their_own_keys_alone(
    dtype: str, depth: int, heads: tuple[int, int], window: tuple[int, int]
) -> None:
    """Rows behind the last sequence, which are not finite, are read by nobody, and give zeros."""
    attend = compiled(graph(dtype, heads, depth, (300, 300), window=window))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows, keys = (list(map(int, rng.integers(0, 150, 5) * rng.integers(0, 3, 5))) for _ in range(2))
        tensors = [
            np.concatenate([rng.standard_normal((sum(of), count, depth)), np.full((3, count, depth), np.nan)])
            for of, count in ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))
        ]
        q, k, v = (tensor.astype(TYPES[dtype]) for tensor in tensors)
        right = attention_of_sequences(q, k, v, rows, keys, window)
        for result, expected in zip(attend(q, k, v, positions(rows), positions(keys)), right, strict=True):
            np.testing.assert_allclose(
                np.asarray(result, np.float64), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
            )


def test_windows_may_be_wider_than_any_sequence() -> None:
    widest = 2**31 - 1
    text = graph("f32", (1, 1), 8, (40, 40), window=(widest, widest))
    q, k, v = (np.random.default_rng(n).standard_normal((40, 1, 8)).astype(np.float32) for n in range(3))
    result, _ = compiled(text)(q, k, v, positions([15, 25]), positions([30, 10]))
    expected, _ = attention_of_sequences(q, k, v, [15, 25], [30, 10])
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["interpreter", "target"])
@pytest.mark.parametrize("given", [[0, 9, 30], [4, 9, 9, 999], [-7, 5, 2**31 - 1], [40, 41], [0]], ids=str)
@pytest.mark.thorough(every=2)
def test_whatever_positions_say_nothing_outside_is_touched(
    given: list[int], where: Literal["interpreter", "target"]
) -> None:
    """Every way to cut the work gives what the definition says, with sequences cut to the longest that was told."""
    where_they_are = np.array(given, np.int32)
    check_rule(
        make_context("cpu").registry.schedules["cpu.attention"],
        graph("f32", (4, 2), 16, (11, 40), window=BOTH),
        inputs={"a": where_they_are, "b": where_they_are},
        sizes=[{"t": 33, "s": 17, "n": len(given)}],
        where=where,
        points=2,
        seeds=1,
    )
