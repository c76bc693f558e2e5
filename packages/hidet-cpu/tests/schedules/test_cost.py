"""What models of CPU schedules say: the direction of every number, and which defaults come of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hidet import dtypes
from hidet.context import make_context
from hidet.cpu.schedules.gemm import BUFFER_ROWS
from hidet.cpu.schedules.gemm_blocking import Extents, blocking_of, choose_item
from hidet.cpu.schedules.gemm_tile import RegisterTile, register_tile, tile_shape
from hidet.cpu.target import CpuTarget
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.schedule.claims import Claim, claims
from hidet.schedule.device_constants import published_constants
from hidet.schedule.shortlist import predicted, shortlist, space_of
from hidet.target.constants import DeviceConstants

MACHINES = ("cpu:znver5", "cpu:x86-64-v3", "cpu:neoverse-v2")


def matmul(m: int, n: int, k: int, trans_b: bool = True) -> str:
    right = f"{n}, {k}" if trans_b else f"{k}, {n}"
    return (
        f"graph g(%a: f32[{m}, {k}], %b: f32[{right}]):\n"
        f"  %0: f32[{m}, {n}] = matmul(%a, %b, trans_b={trans_b})\n  return %0\n"
    )


def packed(m: int, n: int, k: int) -> str:
    return (
        f"graph g(%a: f32[{m}, {k}], %b: f32[{-(-n // 16)}, {k}, 16]):\n"
        f"  %0: f32[{m}, {n}] = cpu.linear_packed(%a, %b, columns={n})\n  return %0\n"
    )


def unary(text: str, n: int) -> str:
    return f"graph g(%x: f32[{n}, {n}]):\n  %0: f32[{n}, {n}] = {text}\n  return %0\n"


def conv(n: int, channels: int = 30) -> str:
    return (
        f"graph g(%x: f32[{n}, {channels}, 28, 28], %w: f32[40, {channels}, 3, 3]):\n"
        f"  %0: f32[{n}, 40, 28, 28] = conv(%x, %w, padding=1)\n  return %0\n"
    )


def attention(batch: int, queries: int, keys: int = 200, depth: int = 64) -> str:
    q, k = f"f32[{batch}, 4, {queries}, {depth}]", f"f32[{batch}, 4, {keys}, {depth}]"
    return f"graph g(%q: {q}, %k: {k}, %v: {k}):\n  %0: {q} = attention(%q, %k, %v)\n  return %0\n"


def depthwise(images: int, channels: int = 40, size: int = 28) -> str:
    image = f"f32[{images}, {channels}, {size}, {size}]"
    return (
        f"graph g(%x: {image}, %w: f32[{channels}, 1, 3, 3]):\n"
        f"  %0: {image} = conv(%x, %w, padding=1, groups={channels})\n  return %0\n"
    )


def pool(images: int) -> str:
    return (
        f"graph g(%x: f32[{images}, 24, 28, 28]):\n"
        f"  %0: f32[{images}, 24, 14, 14] = max_pool(%x, kernel=[2, 2], stride=[2, 2])\n  return %0\n"
    )


def scan(rows: int, length: int, axis: int) -> str:
    shape = f"f32[{rows}, {length}]" if axis else f"f32[{length}, {rows}]"
    return f"graph g(%x: {shape}):\n  %0: {shape} = cumsum(%x, axis={axis})\n  return %0\n"


CASES = {
    "depthwise": (depthwise(1), depthwise(16)),
    "pool": (pool(1), pool(16)),
    "scan": (scan(60, 100, 1), scan(600, 1000, 1)),
    "columns_scan": (scan(60, 100, 0), scan(600, 1000, 0)),
    "matmul": (matmul(60, 100, 64), matmul(600, 1000, 64)),
    "skinny": (matmul(3, 100, 640), matmul(3, 5000, 640)),
    "columns": (matmul(60, 100, 64, trans_b=False), matmul(600, 1000, 64, trans_b=False)),
    "packed": (packed(60, 90, 64), packed(600, 1000, 64)),
    "conv": (conv(1), conv(16)),
    "attention": (attention(1, 100), attention(16, 100)),
    "decode": (attention(1, 1), attention(64, 1)),
    "exp": (unary("exp(%x)", 100), unary("exp(%x)", 2000)),
    "softmax": (unary("softmax(%x, axis=1)", 100), unary("softmax(%x, axis=1)", 2000)),
    "columns_softmax": (unary("softmax(%x, axis=0)", 100), unary("softmax(%x, axis=0)", 2000)),
    "sum": (
        "graph g(%x: f32[100, 100]):\n  %0: f32[100] = sum(%x, axes=[1])\n  return %0\n",
        "graph g(%x: f32[2000, 2000]):\n  %0: f32[2000] = sum(%x, axes=[1])\n  return %0\n",
    ),
}


def claim_of(text: str, ctx: Any) -> Claim:
    """The rule that takes the last task of a graph."""
    graph = run_graph_passes(parse_graph(text, ctx.registry.operators), ctx)
    return next(claims(list(fuse(graph, ctx).tasks)[-1], ctx, []))


def seconds(claim: Claim, params: object, ctx: Any) -> float:
    found = predicted(claim.rule, claim.match, params, ctx)
    assert found is not None and math.isfinite(found)
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", CASES)
def test_every_point_has_a_prediction_that_grows_with_the_work(name, machine) -> None:
    if name == "packed" and machine != "cpu:znver5":
        pytest.skip("weights are packed for vectors of 16 elements here")
    ctx = make_context(machine, {"threads": 1})
    small, large = (claim_of(text, ctx) for text in CASES[name])
    for claim, least, most in ((small, 1e-8, 1e-2), (large, 1e-6, 1.0)):
        for params in space_of(claim.rule, claim.match, ctx):
            assert least < seconds(claim, params, ctx) < most, params
    of_defaults = [seconds(c, c.rule.default(c.match, ctx), ctx) for c in (small, large)]
    assert of_defaults[1] > 5 * of_defaults[0]


def test_a_product_is_expected_to_come_near_the_rate_of_multiply_adds() -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(packed(960, 1024, 512), ctx)
    constants = published_constants(ctx)
    assert constants is not None
    fastest = 960 * 1024 * 512 / constants.fma["float32"]
    assert fastest < seconds(claim, claim.rule.default(claim.match, ctx), ctx) < 1.3 * fastest


def test_threads_share_work_but_not_a_single_item(monkeypatch) -> None:
    constants = published_constants(make_context("cpu:znver5"))
    assert constants is not None
    levels = tuple(replace(level, device_bandwidth=8 * level.core_bandwidth) for level in constants.levels)
    eight = replace(constants, cores=8, levels=levels)
    for rule in ("matmul", "attention"):
        monkeypatch.setattr(f"hidet.cpu.schedules.{rule}.known_constants", lambda ctx: eight)
    for text, shared in ((packed(960, 1024, 512), 6.0), (attention(1, 10), 3.0)):
        one, many = (make_context("cpu:znver5", {"threads": threads}) for threads in (1, 8))
        claim = claim_of(text, one)
        params = claim.rule.default(claim.match, one)
        ratio = seconds(claim, params, one) / seconds(claim, params, many)
        assert shared <= ratio <= 8.0 if shared > 4 else shared <= ratio <= 4.0


@pytest.mark.parametrize(
    ("text", "slower", "factor"),
    [
        (packed(960, 1024, 512), {"fma": 0.5}, 1.8),
        (packed(1, 4000, 4000), {"memory": 0.5}, 1.7),
        (unary("exp(%x)", 3000), {"memory": 0.25}, 1.5),
    ],
)
def test_measured_constants_act_on_predictions_and_never_on_defaults(monkeypatch, text, slower, factor) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(text, ctx)
    params = claim.rule.default(claim.match, ctx)
    before, published = seconds(claim, params, ctx), published_constants(ctx)
    assert published is not None
    measured = _slower(published, **slower)
    for rule in ("matmul", "elementwise"):
        monkeypatch.setattr(f"hidet.cpu.schedules.{rule}.known_constants", lambda ctx: measured)
    assert seconds(claim, params, ctx) > factor * before
    assert claim.rule.default(claim.match, ctx) == params


def _slower(constants: DeviceConstants, **rates: float) -> DeviceConstants:
    fma = {name: rate * rates.get("fma", 1.0) for name, rate in constants.fma.items()}
    levels = tuple(
        replace(each, core_bandwidth=each.core_bandwidth * rates.get(each.name, 1.0)) for each in constants.levels
    )
    return replace(constants, fma=fma, levels=levels, is_measured=True)


@pytest.mark.parametrize("columns", [64, 128, 192, 1024])
def test_columns_that_fill_the_usual_tile_keep_it(columns) -> None:
    ctx = make_context("cpu:znver5")
    for rows in (7, 49, 1000):
        claim = claim_of(packed(rows, columns, 96), ctx)
        target = ctx.target
        assert isinstance(target, CpuTarget)
        assert claim.rule.default(claim.match, ctx).tile == register_tile(target)


@pytest.mark.parametrize("columns", [10, 16])
@pytest.mark.parametrize(("steps", "vectors"), [(301, 1), (300, 2)])
def test_columns_of_a_single_vector_get_a_tile_of_more_rows_that_has_enough_sums_to_wait_for(
    columns, steps, vectors
) -> None:
    ctx = make_context("cpu:znver5")
    claim = claim_of(packed(1000, columns, steps), ctx)
    assert claim.rule.default(claim.match, ctx).tile == RegisterTile(12, vectors)


@pytest.mark.parametrize(
    ("m", "n", "k", "is_gemv"),
    [(1, 4096, 4096, True), (3, 1000, 640, True), (15, 2355, 17, False), (200, 300, 400, False)],
)
def test_few_rows_are_a_gemv_unless_sums_are_short(m, n, k, is_gemv) -> None:
    ctx = make_context("cpu:znver5")
    claim = claim_of(matmul(m, n, k), ctx)
    assert claim.rule.default(claim.match, ctx).is_gemv == is_gemv


@pytest.mark.parametrize(
    ("queries", "keys", "depth", "vectors"), [(64, 32, 16, 4), (128, 32, 16, 4), (40, 32, 16, 2), (512, 512, 64, 2)]
)
def test_blocks_have_as_many_queries_as_lanes_are_used_for_and_the_first_level_cache_keeps(
    queries, keys, depth, vectors
) -> None:
    ctx = make_context("cpu:znver5")
    claim = claim_of(attention(2, queries, keys, depth), ctx)
    assert claim.rule.default(claim.match, ctx).vectors == vectors


@pytest.mark.parametrize(
    ("channels", "size", "tile"),
    [(12, 69, RegisterTile(12, 1)), (27, 77, RegisterTile(12, 1)), (146, 7, RegisterTile(4, 6)), (128, 7, None)],
)
def test_tiles_of_depthwise_convolutions_have_no_more_vectors_than_channels_fill_and_no_more_pixels_than_rows(
    channels, size, tile
) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(depthwise(1, channels, size), ctx)
    target = ctx.target
    assert isinstance(target, CpuTarget)
    assert claim.rule.default(claim.match, ctx).tile == (tile or register_tile(target))


@pytest.mark.parametrize(("rows", "axis", "together"), [(60, 1, 4), (51, 0, 2), (1348, 0, 4)])
def test_rows_are_scanned_together_as_far_as_they_fill_vectors(rows, axis, together) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(scan(rows, 700, axis), ctx)
    assert claim.rule.default(claim.match, ctx).together == together


@pytest.mark.parametrize(("queries", "vectors"), [(9, {1}), (16, {1}), (25, {1, 2}), (60, {1, 2, 4})])
def test_blocks_of_attention_have_no_more_vectors_than_queries_fill(queries, vectors) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(attention(2, queries, 100), ctx)
    assert {params.vectors for params in space_of(claim.rule, claim.match, ctx)} == vectors


@pytest.mark.parametrize(("steps", "chunk"), [(60, 60), (88, 88), (130, 80), (1000, 96)])
def test_steps_that_work_items_pack_are_shared_out_to_chunks_of_whole_squares(steps, chunk) -> None:
    target = make_context("cpu:znver5").target
    assert isinstance(target, CpuTarget)
    shape = tile_shape(target, dtypes.f32, register_tile(target))
    extents = Extents(1, 7, 200, 1, steps, BUFFER_ROWS, "steps")
    blocking = blocking_of(shape, extents, choose_item(shape, target.cpu.l1_bytes, extents))
    assert (blocking.taps, blocking.steps) == (1, chunk)
    assert steps % chunk == 0 or steps % chunk >= shape.lanes


@pytest.mark.parametrize(("machine", "chunk"), [("znver4", 256), ("znver5", 256), ("sapphirerapids", 128)])
def test_packed_columns_stay_in_the_first_level_cache_where_the_second_is_slow(machine: str, chunk: int) -> None:
    """Beside what a tile multiplies: two multiply-adds a cycle wait for half a vector a cycle."""
    ctx = make_context(f"cpu:{machine}")
    graph = """
    graph g(%x: f32[196, 768], %y: f32[48, 768, 16]):
      %0: f32[196, 768] = cpu.linear_packed(%x, %y, columns=768)
      return %0
    """
    claim = claim_of(graph, ctx)
    assert claim.rule.default(claim.match, ctx).item.most_steps == chunk


@pytest.mark.parametrize("order", ["steps", "taps", "columns"])
@pytest.mark.parametrize("rows", [7, 60, 264])
def test_tiles_fetch_every_line_of_the_next_chunk_a_share_each(rows, order) -> None:
    """What tiles before the last ones fetch is no more than their share: requests would hold up the rows' loads."""
    target = make_context("cpu:znver5").target
    assert isinstance(target, CpuTarget)
    shape = tile_shape(target, dtypes.f32, register_tile(target))
    extents = Extents(1, rows, 768, 9 if order == "taps" else 1, 3072, BUFFER_ROWS, order)
    blocking = blocking_of(shape, extents, choose_item(shape, target.cpu.l1_bytes, extents))
    tiles, steps = -(-blocking.rows // shape.rows), blocking.taps * blocking.steps
    lines, width = (4, steps) if order == "columns" else (steps // 16 + 1, shape.columns)
    assert blocking.ahead_tiles == max(1, tiles // lines)
    assert width <= blocking.ahead_tiles * blocking.ahead_step < width + blocking.ahead_tiles
    assert blocking.ahead_step <= steps or tiles < lines


@pytest.mark.parametrize(
    ("queries", "keys", "blocks"),
    [(60, 29, {128}), (60, 100, {64, 128}), (60, 129, {64, 128, 256}), (1, 93, {64, 256})],
)
def test_blocks_of_attention_have_no_more_keys_than_there_are_but_for_one(queries, keys, blocks) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(attention(2, queries, keys), ctx)
    assert {params.keys for params in space_of(claim.rule, claim.match, ctx)} == blocks


@pytest.mark.parametrize(("depth", "keys", "block"), [(64, 800, 256), (128, 800, 256), (80, 800, 64), (48, 800, 128)])
def test_a_block_of_values_that_takes_several_passes_stays_in_the_first_level_cache(depth, keys, block) -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(attention(2, 1, keys, depth), ctx)
    assert claim.rule.default(claim.match, ctx).keys == block


def test_sums_of_few_steps_are_packed_before_they_are_multiplied() -> None:
    """Fewer steps than vectors have lanes are no square that is transposed in registers."""
    ctx = make_context("cpu:znver5", {"threads": 1})
    few, many = (claim_of(matmul(rows, 640, steps), ctx) for rows, steps in ((11, 10), (60, 100)))
    assert not few.rule.default(few.match, ctx).is_packed_on_the_way
    assert many.rule.default(many.match, ctx).is_packed_on_the_way


def test_what_work_items_pack_and_what_they_pack_it_from_stays_in_the_first_level_cache() -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(matmul(40, 829, 1273, trans_b=False), ctx)
    params = claim.rule.default(claim.match, ctx)
    assert params.is_packed_on_the_way
    assert 2 * params.item.most_steps * params.tile.vectors * 64 <= 48 << 10


def test_the_shortlist_begins_with_what_the_model_expects_to_be_fastest() -> None:
    ctx = make_context("cpu:znver5", {"threads": 1})
    claim = claim_of(packed(600, 100, 300), ctx)
    default, *others = shortlist(claim.rule, claim.match, ctx, 5)
    assert default == claim.rule.default(claim.match, ctx)
    found = [seconds(claim, params, ctx) for params in others]
    assert found == sorted(found) and len(found) == 5
