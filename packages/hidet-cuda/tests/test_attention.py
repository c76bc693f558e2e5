"""Attention: kernels of tiles, of single threads and of parts, run by the simulator and compiled."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.cuda import target as target_module
from hidet.cuda.arch import usual_facts
from hidet.cuda.schedules import attention_tiles
from hidet.cuda.schedules.attention_plan import Plan, choose_plan, conditions, plans_by_size, splits_of
from hidet.cuda.schedules.attention_space import attention_space
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import context_for
from hidet.cuda.testing.tasks import Array, compiled_kernels, scheduled_task, simulate
from hidet.gpu.schedules.attention_launch import problem_of
from hidet.gpu.schedules.attention_tiles import simt_blocks, simt_tiles
from hidet.graph.builder import GraphBuilder
from hidet.graph.types import TensorType
from hidet.ir.printer import print_module
from hidet.plugins.host import load_registry
from hidet.schedule.attention_problem import attention_problem
from hidet.schedule.select import ScheduledTask
from hidet.testing.scheduled import scheduled_graph

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "bool": np.bool_}
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12}


def spelled(dtype: str, shape: tuple[Any, ...], strides: tuple[Any, ...] | None = None) -> str:
    text = f"{dtype}[{', '.join(map(str, shape))}]"
    return text if strides is None else f"{text}{{{', '.join(map(str, strides))}}}"


def graph(
    dtype: str, q: Any, k: Any, width: int | None = None, mask: tuple[str, Any] | None = None, **more: Any
) -> str:
    """A graph of one attention; q and k are shapes, in which names are symbols with hints. `is_transposed`: heads of a
    position are neighbours. with_logsumexp: of both results."""
    v, out = (*k[:-1], width or k[-1]), (*q[:-1], width or k[-1])

    def laid(shape: Any) -> str:
        if not more.get("is_transposed"):
            return spelled(dtype, shape)
        _, h, s, d = shape
        return spelled(dtype, shape, (h * s * d, d, h * d, 1))

    results = [f"%0: {laid(out)}" if more.get("result") is None else f"%0: {spelled(more['result'], out)}"]
    if more.get("with_logsumexp"):
        results.append(f"%1: {spelled('f64' if dtype == 'f64' else 'f32', out[:-1])}")
    masked = "" if mask is None else f", %m: {spelled(*mask)}"
    name = "attention_with_logsumexp" if more.get("with_logsumexp") else "attention"
    attributes = f"scale={more.get('scale')}, is_causal={more.get('is_causal', False)}"
    attributes += f", enable_gqa={more.get('enable_gqa', False)}"
    attributes += f", dtype={more['result']}" if more.get("result") else ""
    symbols = "".join(f"symbol {name}: 1..4096 hint {hint}\n" for name, hint in more.get("hints", {}).items())
    return (
        f"{symbols}graph g(%q: {laid(q)}, %k: {laid(k)}, %v: {laid(v)}{masked}):\n"
        f"  {', '.join(results)} = {name}(%q, %k, %v{', %m' if mask else ''}, {attributes})\n"
        f"  return %0{', %1' if more.get('with_logsumexp') else ''}\n"
    )


def attention(q: Array, k: Array, v: Array, mask: Array | None, scale: float | None, is_causal: bool) -> list[Array]:
    """The result and the log of the sum of e ** score, in f64. Rows that see no key are zero, and -inf."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        k, v = (np.repeat(array, q.shape[-3] // k.shape[-3], axis=-3) for array in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask.astype(np.float64)
    if is_causal:
        rows, keys = np.mgrid[: q.shape[-2], : k.shape[-2]]
        scores = np.where(keys <= rows, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logarithm = np.where(np.isinf(top), 0, top) + np.log(total)
    return [weights / np.where(total == 0, 1, total) @ v, logarithm[..., 0]]


def is_right(
    text: str,
    dtype: str,
    shapes: dict[str, Any],
    *,
    sizes: Any = None,
    offset: int = 0,
    arch: str = "sm_80",
    **more: Any,
) -> None:
    """The program of a graph with inputs of these shapes gives what attention is."""
    rng = np.random.default_rng(0)
    kinds = {name: more["mask"][0] if name == "m" else dtype for name in shapes}
    inputs = {
        name: (rng.random(shape) < 0.6)
        if kinds[name] == "bool"
        else rng.standard_normal(shape).astype(TYPES[kinds[name]])
        for name, shape in shapes.items()
    }
    if "m" in inputs and kinds["m"] != "bool":
        # Keys that the least number hides; the last row sees no others, and weighs them equally.
        least = ml_dtypes.finfo(TYPES[kinds["m"]]).min
        inputs["m"][..., 1::3], inputs["m"][..., -1, :] = least, least
    step = scheduled_task(text, arch, is_aligned=offset == 0)
    assert step.rule_name == "cuda.attention"
    found = simulate(step, inputs, sizes, offset)
    right = attention(*(inputs.get(name) for name in "qkvm"), more.get("scale"), more.get("is_causal", False))  # type: ignore[arg-type]
    for result, expected in zip(found, right, strict=False):
        np.testing.assert_allclose(result, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def case(dtype: str, q: Any, k: Any, width: int | None = None, **more: Any) -> tuple[str, str, dict[str, Any], Any]:
    shapes = {"q": q, "k": k, "v": (*k[:-1], width or k[-1])}
    if "mask" in more:
        shapes["m"] = more["mask"][1]
    return graph(dtype, q, k, width, **more), dtype, shapes, more


CASES = {
    "causal, with logarithms": case("f16", (1, 2, 40, 24), (1, 2, 70, 24), 40, is_causal=True, with_logsumexp=True),
    "a mask of bools for all rows": case("bf16", (2, 2, 20, 16), (2, 2, 70, 16), mask=("bool", (2, 1, 1, 70))),
    "a mask that is added": case("f16", (2, 2, 20, 16), (2, 2, 70, 16), mask=("f32", (1, 2, 20, 70))),
    "one row of grouped heads, split-kv": case(
        "f16", (1, 4, 1, 32), (1, 2, 300, 32), enable_gqa=True, with_logsumexp=True
    ),
    "rows of grouped heads, a mask, split-kv": case(
        "f16", (1, 4, 3, 32), (1, 2, 300, 32), enable_gqa=True, mask=("f16", (1, 1, 3, 300))
    ),
    "rows of grouped heads that lie apart": case(
        "f16", (1, 4, 3, 16), (1, 2, 40, 16), enable_gqa=True, is_transposed=True, with_logsumexp=True
    ),
    "rows of grouped heads that lie apart, split-kv": case(
        "f16", (1, 4, 3, 16), (1, 2, 300, 16), enable_gqa=True, is_transposed=True
    ),
    "heads of a position are neighbours": case("f16", (1, 2, 40, 16), (1, 2, 40, 16), is_transposed=True),
    "a scale below zero": case("f16", (20, 16), (40, 16), scale=-0.5),
    "grouped heads, causal": case("bf16", (1, 4, 20, 16), (1, 2, 20, 16), enable_gqa=True, is_causal=True),
    "f32, causal": case("f32", (1, 2, 70, 20), (1, 2, 80, 20), 33, is_causal=True, with_logsumexp=True),
    "f32, heads of a position are neighbours": case("f32", (1, 2, 20, 16), (1, 2, 130, 16), is_transposed=True),
    "f32, results wider than keys": case("f32", (1, 2, 20, 8), (1, 2, 20, 8), 96, mask=("f32", (20, 20))),
    "f64, grouped heads, a mask": case(
        "f64", (1, 4, 5, 8), (1, 2, 70, 8), enable_gqa=True, mask=("bool", (5, 70)), with_logsumexp=True
    ),
    "five queries of a group, keys in parts": case("bf16", (1, 8, 5, 32), (1, 2, 600, 32), enable_gqa=True),
    "twelve queries of a group, with logarithms": case(
        "f16", (1, 8, 12, 64), (1, 2, 520, 64), enable_gqa=True, with_logsumexp=True
    ),
    "results of the type of arithmetic, keys in parts": case(
        "bf16", (1, 4, 1, 32), (1, 2, 300, 32), enable_gqa=True, with_logsumexp=True, result="f32"
    ),
    "results of the type of arithmetic, one key": case(
        "f16", (2, 4, 5, 32), (2, 2, 1, 32), enable_gqa=True, with_logsumexp=True, result="f32"
    ),
    "results of the type of arithmetic, without matrix units": case(
        "f16", (5, 7), (9, 7), 3, with_logsumexp=True, result="f32"
    ),
    "rows that cannot be copied in parts": case("f16", (5, 7), (9, 7), 3, with_logsumexp=True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.thorough(every=3)
def test_attention_is_right(name: str) -> None:
    text, dtype, shapes, more = CASES[name]
    is_right(text, dtype, shapes, **more)


def test_tensors_may_start_anywhere() -> None:
    text, dtype, shapes, more = CASES["causal, with logarithms"]
    is_right(text, dtype, shapes, offset=1, **more)


def test_a_row_without_keys_is_zero() -> None:
    text = graph("f16", (20, 16), (300, 16), mask=("bool", (20, 300)), with_logsumexp=True)
    rng = np.random.default_rng(1)
    inputs = {
        name: rng.standard_normal((rows, 16)).astype(np.float16)
        for name, rows in zip("qkv", (20, 300, 300), strict=True)
    }
    seen = rng.random((20, 300)) < 0.5
    seen[3] = False
    result, logarithms = simulate(scheduled_task(text), {**inputs, "m": seen})
    assert (result[3] == 0).all()
    assert logarithms[3] == -np.inf
    assert np.isfinite(np.delete(logarithms, 3)).all()


@pytest.mark.parametrize("length", [1, 77])
def test_lengths_may_be_symbols(length: int) -> None:
    text = graph("f16", (1, 2, "s", 16), (1, 2, "t", 16), is_causal=True, hints={"s": 64, "t": 64})
    shapes = {"q": (1, 2, 30, 16), "k": (1, 2, length, 16), "v": (1, 2, length, 16)}
    is_right(text, "f16", shapes, sizes={"s": 30, "t": length}, is_causal=True)


@pytest.mark.parametrize(
    ("rows", "length", "depth", "is_causal"),
    [
        (200, 200, 64, True),
        (20, 300, 64, False),
        (140, 150, 40, False),
        (70, 200, 80, False),
        (30, 140, 72, True),
        (30, 140, 96, False),
    ],
)
@pytest.mark.thorough(every=2)
def test_a_warp_group_copies_for_those_that_multiply(rows: int, length: int, depth: int, is_causal: bool) -> None:
    hints = {"h": 32, "s": 2048, "t": 2048}
    q, k = (1, "h", "s", depth), (1, "h", "t", depth)
    text = graph("f16", q, k, is_causal=is_causal, hints=hints, with_logsumexp=True)
    assert plan(text, "sm_90a").is_warp_specialized
    shapes = {"q": (1, 1, rows, depth), "k": (1, 1, length, depth), "v": (1, 1, length, depth)}
    sizes = {"h": 1, "s": rows, "t": length}
    is_right(text, "f16", shapes, sizes=sizes, arch="sm_90a", is_causal=is_causal)


@pytest.mark.parametrize("length", [5, 300])
def test_splits_of_keys_may_be_many_or_one(length: int) -> None:
    text = graph("f16", (1, 4, 1, 16), (1, 2, "t", 16), enable_gqa=True, hints={"t": 4096})
    shapes = {"q": (1, 4, 1, 16), "k": (1, 2, length, 16), "v": (1, 2, length, 16)}
    is_right(text, "f16", shapes, sizes={"t": length})


def test_a_fused_projection_is_read_and_heads_are_merged_without_copies() -> None:
    """What models do: one product for queries, keys and values, heads side by side in its rows, and in the result's."""
    registry = load_registry()
    b, s, h, d = 2, dims.symbol("s", 1, 4096, hint=128), 12, 64
    builder = GraphBuilder(registry.operators)
    x, w, out = (
        builder.input(TensorType(dtypes.f16, shape)) for shape in ((b, s, h * d), (3 * h * d, h * d), (h * d,) * 2)
    )
    qkv = builder.emit("linear", x, w)
    parts = [builder.emit("slice", qkv, starts=[0, 0, n * h * d], stops=[b, s, (n + 1) * h * d]) for n in range(3)]
    heads = [
        builder.emit("transpose", builder.emit("reshape", part, shape=(b, s, h, d)), perm=[0, 2, 1, 3])
        for part in parts
    ]
    result = builder.emit("transpose", builder.emit("attention", *heads, is_causal=True), perm=[0, 2, 1, 3])
    graph = builder.build([builder.emit("linear", builder.emit("reshape", result, shape=(b, s, h * d)), out)])
    steps = scheduled_graph(graph, context_for()).steps
    assert [step.rule_name for step in steps if isinstance(step, ScheduledTask)] == [
        "cuda.matmul",
        "cuda.attention",
        "cuda.matmul",
    ]
    assert len(steps) == 3
    # What the program itself allocates is aligned, so that no kernel besides those of the plans is needed.
    kernels = [f for f in steps[1].program.module.functions if f.kind == "kernel"]  # type: ignore[union-attr]
    assert len(kernels) == 1 + len(steps[1].decision.params.others)  # type: ignore[union-attr]


def plan(text: str, arch: str = "sm_90") -> Any:
    return choose_plan(attention_problem(scheduled_task(text).task), CudaTarget(arch))


def test_long_sequences_are_cut_into_the_tiles_that_reuse_most() -> None:
    chosen = plan(graph("f16", (1, 32, 2048, 128), (1, 32, 2048, 128), is_causal=True))
    assert (chosen.tiles.rows, chosen.chunk, chosen.stacked) == (128, None, False)
    assert chosen.by_head


@pytest.mark.parametrize(
    ("shape", "rows"), [((4, 32, 2048, 64), 192), ((2, 16, 1000, 64), 128), ((1, 32, 2048, 128), 128)]
)
def test_three_groups_multiply_short_rows_of_many_blocks(shape: tuple[int, ...], rows: int) -> None:
    chosen = plan(graph("f16", shape, shape), "sm_90a")
    assert (chosen.is_warp_specialized, chosen.tiles.rows) == (True, rows)


def test_short_sequences_are_cut_into_small_tiles() -> None:
    chosen = plan(graph("f16", (1, 12, 128, 64), (1, 12, 128, 64)))
    assert chosen.tiles.rows < 128
    assert chosen.chunk is None


def test_keys_of_few_rows_are_split_over_the_device() -> None:
    chosen = plan(graph("f16", (1, 32, 1, 128), (1, 8, 4096, 128), enable_gqa=True))
    assert chosen.stacked
    assert chosen.tiles.rows == 16
    assert 128 <= chosen.chunk <= 512


@pytest.mark.parametrize(("batch", "splits"), [(8, 4), (16, 2), (18, 2), (22, 2), (23, 1), (32, 1), (64, 1)])
def test_splits_give_all_multiprocessors_as_many_blocks(batch: int, splits: int) -> None:
    text = graph("f16", (batch, 32, 1, 128), (batch, 8, 4096, 128), enable_gqa=True)
    problem = attention_problem(scheduled_task(text).task)
    assert splits_of(problem, plan(text)) == splits


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_tiles_fit_into_shared_memory(arch: str) -> None:
    for depth in (64, 128, 256):
        tiles = plan(graph("f16", (8, 16, 1024, depth), (8, 16, 1024, depth)), arch).tiles
        assert 2 * depth * (tiles.rows + 2 * tiles.stages * tiles.keys) <= CudaTarget(arch).block_shared_memory


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize("depth", [32, 64, 128, 256])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_tiles_without_tensor_cores_fit_into_shared_memory(arch: str, depth: int, dtype: str) -> None:
    problem = attention_problem(scheduled_task(graph(dtype, (8, 16, 1024, depth), (8, 16, 1024, depth))).task)
    target = CudaTarget(arch)
    tiles = simt_tiles(problem, target)
    assert tiles.nbytes(depth, depth, problem.compute) <= target.block_shared_memory
    assert (
        simt_blocks(problem, tiles, target) * tiles.nbytes(depth, depth, problem.compute) <= target.block_shared_memory
    )


@pytest.mark.parametrize(
    ("shape", "is_causal", "columns"),
    [((8, 12, 512, 64), False, 16), ((4, 12, 1024, 64), True, 8), ((4, 16, 1024, 80), False, 8)],
)
def test_rows_of_few_threads_read_less_where_blocks_end_evenly(
    shape: tuple[int, ...], is_causal: bool, columns: int
) -> None:
    problem = attention_problem(scheduled_task(graph("f32", shape, shape, is_causal=is_causal)).task)
    assert simt_tiles(problem, CudaTarget("sm_90")).columns == columns


def test_few_rows_without_tensor_cores_are_cut_into_small_tiles() -> None:
    def rows(length: int) -> int:
        shape = (1, 12, length, 64)
        return simt_tiles(attention_problem(scheduled_task(graph("f32", shape, shape)).task), CudaTarget("sm_90")).rows

    assert rows(128) < rows(512) < rows(8192) == 128


def by_size(batch: int, heads: int, depth: int, **more: Any) -> str:
    shape = ("b", heads, "s", depth)
    return graph("f16", shape, shape, hints={"b": batch, "s": 100}, **more)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.thorough(every=4)
def test_a_call_takes_the_plan_that_a_build_for_its_size_has(arch: str, depth: int, is_causal: bool) -> None:
    target = CudaTarget(arch)
    problem = attention_problem(scheduled_task(by_size(2, 12, depth, is_causal=is_causal), arch).task)
    params = plans_by_size(problem, target)
    assert params is not None
    plans = [replace(params, others=()), *params.others]
    for batch, length in itertools.product((1, 4, 16, 64), (1, 7, 16, 40, 77, 200, 384, 500, 1024, 4000)):
        sizes = {"b": batch, "s": length}

        def holds(plan: Plan, sizes: dict[str, int] = sizes) -> bool:
            found = conditions(problem, plan, target)
            return all(dims.evaluate(size, sizes) >= least for size, least in found)

        taken = next(plan for plan in plans if holds(plan))
        shape = (batch, 12, length, depth)
        known = plan(graph("f16", shape, shape, is_causal=is_causal), arch)
        assert (taken.tiles, taken.is_warp_specialized) == (known.tiles, known.is_warp_specialized), sizes
        assert (taken.chunk is None) == (known.chunk is None), sizes


@pytest.mark.parametrize(("queries", "rows"), [(1, 16), (4, 16), (5, 32), (8, 32), (16, 64)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_heads_of_a_group_share_what_a_few_queries_read_of_long_keys(arch: str, queries: int, rows: int) -> None:
    q, k = (8, 32, queries, 128), (8, 8, 4096, 128)
    found = plan(graph("bf16", q, k, enable_gqa=True), arch)
    assert found.stacked and found.chunk is not None and found.tiles.rows == rows
    assert not plan(graph("bf16", (8, 32, 17, 128), k, enable_gqa=True), arch).stacked


@pytest.mark.parametrize("depth", [64, 128])
def test_queries_of_heads_that_lie_apart_are_copied_by_parts_of_their_rows(depth: int) -> None:
    text = graph("bf16", (8, 32, 4, depth), (8, 8, 4096, depth), enable_gqa=True, is_transposed=True)
    step = scheduled_task(text, "sm_90a")
    (kernel, *_) = (each.text() for each in step.program.lowered_from)
    assert "@gathered(q" in kernel and "align=16" in kernel
    assert "computed(" not in kernel


@pytest.mark.parametrize("queries", [1, 5, 16])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.thorough(every=2)
def test_a_step_of_any_size_takes_the_plan_that_a_build_for_its_size_has(arch: str, queries: int) -> None:
    q, k = ("b", 32, queries, 128), ("b", 8, "t", 128)
    text, target = graph("bf16", q, k, hints={"b": 8, "t": 2000}, enable_gqa=True), CudaTarget(arch)
    problem = attention_problem(scheduled_task(text, arch).task)
    params = plans_by_size(problem, target)
    assert params is not None
    plans = [replace(params, others=()), *params.others]
    for batch, keys in itertools.product((1, 2, 8, 15, 20, 40, 200), (40, 200, 300, 1024, 4000)):
        sizes = {"b": batch, "t": keys}
        taken = next(
            each
            for each in plans
            if all(dims.evaluate(size, sizes) >= least for size, least in conditions(problem, each, target))
        )
        known = plan(graph("bf16", (batch, *q[1:]), (batch, 8, keys, 128), enable_gqa=True), arch)
        assert (taken.tiles, taken.stacked) == (known.tiles, known.stacked), sizes
        assert (taken.chunk is None) == (known.chunk is None), sizes


@pytest.mark.parametrize("number", range(7))
@pytest.mark.thorough(every=4)
def test_every_plan_that_a_call_may_take_is_right(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def only(problem: Any, plan: Plan, target: Any) -> list[Any]:
        (of_task,) = {id(found): found for found in [plans_by_size(problem, target)]}.values()
        assert of_task is not None
        plans = [replace(of_task, others=()), *of_task.others]
        return [] if plan == plans[number] else [(0, 1)]

    monkeypatch.setattr(attention_tiles, "conditions", only)
    # Splits of warp-specialized blocks have 512 keys at least.
    keys = 1030 if number == 2 else 300
    shapes = {name: (1, 2, keys if name != "q" else 20, 64) for name in "qkv"}
    text = graph("f16", ("b", 2, "s", 64), ("b", 2, "t", 64), hints={"b": 1, "s": 20, "t": 300})
    is_right(text, "f16", shapes, sizes={"b": 1, "s": 20, "t": keys}, arch="sm_90a")


@pytest.mark.parametrize(
    ("depth", "is_causal", "queries", "keys"),
    [
        (64, False, 420, 300),
        (64, True, 400, 400),
        (112, True, 300, 300),
        (128, False, 129, 257),
        (128, True, 520, 520),
        (192, False, 300, 300),
    ],
)
@pytest.mark.thorough(every=6)
def test_blocks_take_one_tile_after_the_other(depth, is_causal, queries, keys, monkeypatch):
    """Two blocks have more tiles than that, whose queries, keys and values come while the one before is stored."""
    monkeypatch.setattr(
        target_module, "usual_facts", lambda capability: replace(usual_facts(capability), multiprocessors=2)
    )
    shapes = {name: (2, 2, queries if name == "q" else keys, depth) for name in "qkv"}
    text = graph("f16", shapes["q"], shapes["k"], is_causal=is_causal)
    assert plan(text, "sm_90a").is_warp_specialized
    is_right(text, "f16", shapes, arch="sm_90a", is_causal=is_causal)


def unmet(problem, plan, target):
    """The constraints of the space of plans that one does not meet."""
    return [rule.doc for rule in attention_space(problem, plan, target).constraints if not rule.holds(plan)]


@pytest.mark.parametrize(("depth", "rows"), [(64, 192), (128, 128)])
def test_a_block_has_room_for_the_queries_of_the_next_tile(depth: int, rows: int) -> None:
    """They come while the last keys of the one before are multiplied."""
    shape = (2, 16, 2048, depth)
    module = print_module(scheduled_task(graph("f16", shape, shape), "sm_90a").program.module)
    assert f"tile_q: f16[{2 * rows * depth}] @ shared" in module


@pytest.mark.parametrize("depth", [40, 64, 112, 128, 160, 192, 256])
@pytest.mark.parametrize("queries", [2048, 256])
def test_what_is_chosen_may_be_tuned(depth, queries):
    """Shared memory and registers suffice for it, as by the constraints of the space."""
    text = graph("f16", (1, 32, queries, depth), (1, 32, 8192, depth))
    problem, target = problem_of(scheduled_task(text, "sm_90a").task), CudaTarget("sm_90a")
    chosen = choose_plan(problem, target)
    assert chosen.is_warp_specialized
    assert unmet(problem, chosen, target) == []


@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("queries", [1, 5, 16])
def test_what_is_chosen_for_the_heads_of_a_group_may_be_tuned(depth, queries):
    text = graph("bf16", (8, 32, queries, depth), (8, 8, 4096, depth), enable_gqa=True)
    problem, target = problem_of(scheduled_task(text, "sm_90a").task), CudaTarget("sm_90a")
    chosen = choose_plan(problem, target)
    assert chosen.stacked
    assert unmet(problem, chosen, target) == []


COMPILED = {
    "all sizes": by_size(4, 12, 64),
    "all sizes, causal": by_size(4, 32, 128, is_causal=True),
    "long": graph("bf16", (1, 32, 2048, 128), (1, 32, 2048, 128), is_causal=True),
    "not causal": graph("f16", (4, 16, 2048, 64), (4, 16, 2048, 64)),
    "short": graph("f16", (1, 12, 128, 64), (1, 12, 128, 64), mask=("bool", (1, 1, 1, 128))),
    "bools of all rows": graph("f16", (4, 16, 1024, 128), (4, 16, 1024, 128), mask=("bool", (4, 1, 1024, 1024))),
    "added, wide": graph("f16", (4, 16, 1024, 256), (4, 16, 1024, 256), mask=("f16", (4, 1, 1024, 1024))),
    "wide": graph("bf16", (1, 32, 1024, 256), (1, 32, 1024, 256), is_causal=True),
    "rows of 112": graph("f16", (2, 16, 2048, 112), (2, 16, 2048, 112)),
    "rows of 160": graph("f16", (2, 16, 2048, 160), (2, 16, 2048, 160)),
    "rows of 192, causal": graph("bf16", (2, 16, 2048, 192), (2, 16, 2048, 192), is_causal=True),
    "rows of 256": graph("f16", (2, 16, 2048, 256), (2, 16, 2048, 256), with_logsumexp=True),
    "few rows, many keys": graph("bf16", (1, 32, 256, 128), (1, 8, 8192, 128), enable_gqa=True),
    "padded": graph("f16", (8, 16, 1024, 72), (8, 16, 1024, 72), with_logsumexp=True),
    "split-kv": graph("bf16", (1, 32, 1, 128), (1, 8, 4096, 128), enable_gqa=True),
    "not causal, many blocks": graph("bf16", (4, 32, 2048, 64), (4, 32, 2048, 64), mask=("bool", (4, 1, 1, 2048))),
    "f32": graph("f32", (8, 12, 512, 64), (8, 12, 512, 64), mask=("bool", (8, 1, 1, 512))),
    "f32, causal": graph("f32", (4, 12, 1024, 64), (4, 12, 1024, 64), is_causal=True),
    "f32, wide": graph("f32", (4, 16, 1024, 256), (4, 16, 1024, 256), is_causal=True),
    "f64": graph("f64", (4, 16, 1024, 128), (4, 16, 1024, 128)),
}


# Registers are fewest where results are longest; other kernels are compiled for one architecture.
ALL_ARCHITECTURES = ("long", "split-kv")


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *((name, "sm_90a") for name in COMPILED),
        *((name, arch) for name in ALL_ARCHITECTURES for arch in ("sm_80", "sm_89", "sm_90")),
    ],
)
@pytest.mark.thorough(every=8)
def test_attention_compiles_without_spills(name: str, arch: str) -> None:
    cubins = compiled_kernels(scheduled_task(COMPILED[name], arch), arch)
    assert cubins
    for cubin in cubins:
        assert {kernel: usage.spill_bytes for kernel, usage in cubin.usage.items() if usage.spill_bytes} == {}
        assert cubin.remarks == ()
