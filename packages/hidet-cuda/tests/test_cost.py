"""What models of kernels' times say: the direction of every number, and that defaults come from published ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hidet.context import make_context
from hidet.cuda.constants import published_constants
from hidet.cuda.schedules import cost_product
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.passes.manager import run_graph_passes
from hidet.schedule import device_constants
from hidet.schedule.claims import Claim, claims
from hidet.schedule.shortlist import predicted, space_of
from hidet.target.constants import DeviceConstants

ARCHITECTURES = ("sm_80", "sm_90a")


def claim_of(text: str, ctx: Any) -> Claim:
    """The rule that takes the last task of a graph."""
    graph = run_graph_passes(parse_graph(text, ctx.registry.operators), ctx)
    return next(claims(list(fuse(graph, ctx).tasks)[-1], ctx, []))


def product(m: int, n: int, k: int, dtype: str = "f16") -> str:
    return (
        f"graph g(%a: {dtype}[{m}, {k}]@cuda:0, %b: {dtype}[{n}, {k}]@cuda:0):\n"
        f"  %0: {dtype}[{m}, {n}]@cuda:0 = matmul(%a, %b, trans_b=True)\n  return %0\n"
    )


def default_seconds(text: str, arch: str = "sm_90a") -> float:
    """What the model expects of the default."""
    ctx = make_context(f"cuda:{arch}")
    claim = claim_of(text, ctx)
    seconds = predicted(claim.rule, claim.match, claim.rule.default(claim.match, ctx), ctx)
    assert seconds is not None
    return seconds


def test_published_rates_are_those_of_data_sheets() -> None:
    h100 = published_constants(90, 132, 228 << 10)
    assert 2 * 132 * h100.matrix["float16"] == pytest.approx(989e12, rel=0.05)
    assert 2 * 132 * h100.fma["float32"] == pytest.approx(67e12, rel=0.15)
    assert h100.memory.device_bandwidth == 3350e9
    a100 = published_constants(80, 108, 164 << 10)
    assert 2 * 108 * a100.matrix["float16"] == pytest.approx(312e12, rel=0.02)
    assert 2 * 108 * a100.fma["float64"] == pytest.approx(9.7e12, rel=0.02)


def test_an_unknown_capability_has_the_numbers_of_the_one_before() -> None:
    assert published_constants(121, 48, 1).memory == published_constants(120, 48, 1).memory


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_point_of_a_product_has_a_prediction_and_a_deeper_product_takes_longer(arch, dtype) -> None:
    ctx = make_context(f"cuda:{arch}")
    shallow, deep = (claim_of(product(512, 512, k, dtype), ctx) for k in (512, 2048))
    for params in space_of(shallow.rule, shallow.match, ctx):
        short, long = (predicted(claim.rule, claim.match, params, ctx) for claim in (shallow, deep))
        assert short is not None and long is not None and 1e-6 < short < long < 1e-2, params


def test_a_large_product_is_as_fast_as_an_h100_is_known_to_be() -> None:
    rate = 2 * 8192**3 / default_seconds(product(8192, 8192, 8192))
    assert 500e12 < rate < 989e12


def test_a_gemv_takes_as_long_as_its_matrix_is_read() -> None:
    seconds = default_seconds(product(1, 14336, 4096))
    assert 2 * 14336 * 4096 / 3350e9 < seconds < 3 * 2 * 14336 * 4096 / 3350e9


def test_no_point_is_expected_to_be_faster_than_memory() -> None:
    ctx = make_context("cuda:sm_90a")
    claim = claim_of(product(1, 4096, 4096), ctx)
    found = [
        predicted(claim.rule, claim.match, params, ctx) or 0.0 for params in space_of(claim.rule, claim.match, ctx)
    ]
    assert min(found) > 2 * 4096 * 4096 / 3350e9


def _slower(constants: DeviceConstants, **rates: float) -> DeviceConstants:
    matrix = {name: rate * rates.get("matrix", 1.0) for name, rate in constants.matrix.items()}
    levels = tuple(
        replace(level, device_bandwidth=level.device_bandwidth * rates.get(level.name, 1.0))
        for level in constants.levels
    )
    return replace(constants, matrix=matrix, levels=levels, is_measured=True)


@pytest.mark.parametrize(
    ("text", "slower", "factor"),
    [
        (product(8192, 8192, 8192), {"matrix": 0.5}, 1.9),
        (product(1, 14336, 4096), {"memory": 0.5}, 1.7),
        (product(1, 14336, 4096), {"matrix": 0.5}, 1.0),
    ],
)
def test_what_was_measured_counts_for_what_it_limits(monkeypatch, text, slower, factor) -> None:
    ctx = make_context("cuda:sm_90a")
    claim = claim_of(text, ctx)
    params = claim.rule.default(claim.match, ctx)
    before = predicted(claim.rule, claim.match, params, ctx)
    published = device_constants.published_constants(ctx)
    assert before is not None and published is not None
    monkeypatch.setattr("hidet.cuda.schedules.matmul.known_constants", lambda ctx: _slower(published, **slower))
    after = predicted(claim.rule, claim.match, params, ctx)
    assert after is not None and after / before >= factor - 1e-9
    assert claim.rule.default(claim.match, ctx) == params


def test_the_model_of_products_is_that_of_an_h100() -> None:
    h100 = published_constants(90, 132, 0)
    speed = cost_product.speed_of(h100, h100, "float16")
    assert (speed.products, speed.cache, speed.memory) == pytest.approx((1.0, 1.0, 1.0))
    a100 = published_constants(80, 108, 0)
    assert cost_product.speed_of(a100, a100, "float16").memory < 0.7


ROWS = """
graph g(%x: f16[{rows}, {length}]@cuda:0):
  %0: f16[{rows}, {length}]@cuda:0 = softmax(%x, axis=1)
  return %0
"""


def attention(type_: str) -> str:
    return f"graph g(%q: {type_}, %k: {type_}, %v: {type_}):\n  %0: {type_} = attention(%q, %k, %v)\n  return %0\n"


OTHERS = {
    "softmax": (ROWS.format(rows=64, length=512), ROWS.format(rows=8192, length=4096)),
    "elementwise": tuple(
        f"graph g(%x: f32[{n}, {n}]@cuda:0):\n  %0: f32[{n}, {n}]@cuda:0 = exp(%x)\n  return %0\n" for n in (64, 8192)
    ),
    "transpose": tuple(
        f"graph g(%x: f16[{n}, {n}]@cuda:0):\n  %t: f16[{n}, {n}]{{1, {n}}}@cuda:0 = transpose(%x, perm=[1, 0])\n"
        f"  %0: f16[{n}, {n}]@cuda:0 = exp(%t)\n  return %0\n"
        for n in (64, 8192)
    ),
    "sum": tuple(
        f"graph g(%x: f32[{n}, {n}]@cuda:0):\n  %0: f32[{n}]@cuda:0 = sum(%x, axes=[1])\n  return %0\n"
        for n in (64, 8192)
    ),
    "cumsum": tuple(
        f"graph g(%x: f32[{n}, {n}]@cuda:0):\n  %0: f32[{n}, {n}]@cuda:0 = cumsum(%x, axis=1)\n  return %0\n"
        for n in (64, 8192)
    ),
    "depthwise": tuple(
        f"graph g(%x: f16[{n}, 96, 56, 56]@cuda:0, %w: f16[96, 1, 3, 3]@cuda:0):\n"
        f"  %0: f16[{n}, 96, 56, 56]@cuda:0 = conv(%x, %w, padding=1, groups=96)\n  return %0\n"
        for n in (1, 256)
    ),
    "attention": tuple(attention(f"f16[{n}, 12, 512, 64]@cuda:0") for n in (1, 64)),
    "attention_simt": tuple(attention(f"f32[{n}, 12, 512, 64]@cuda:0") for n in (1, 64)),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", OTHERS)
def test_every_point_has_a_prediction_that_grows_with_the_work_and_is_no_faster_than_memory(name, arch) -> None:
    ctx = make_context(f"cuda:{arch}")
    small, large = (claim_of(text, ctx) for text in OTHERS[name])
    task = large.match.task
    nbytes = sum(math.prod(t.type.shape) * t.type.dtype.nbytes for t in (*task.inputs, *task.outputs))
    fastest = nbytes / (3350e9 if arch == "sm_90a" else 1555e9)
    for claim, least, most in ((small, 1e-6, 3e-3), (large, fastest, 1.0)):
        space = space_of(claim.rule, claim.match, ctx)
        found = [predicted(claim.rule, claim.match, params, ctx) for params in space]
        assert found and all(seconds is not None and least < seconds < most for seconds in found)
    of_defaults = [predicted(c.rule, c.match, c.rule.default(c.match, ctx), ctx) for c in (small, large)]
    assert of_defaults[0] is not None and of_defaults[1] is not None and of_defaults[1] > 2 * of_defaults[0]


@pytest.mark.parametrize("name", OTHERS)
def test_defaults_are_not_expected_to_be_far_from_the_best(name) -> None:
    ctx = make_context("cuda:sm_90a")
    claim = claim_of(OTHERS[name][1], ctx)
    space = space_of(claim.rule, claim.match, ctx)
    found = [predicted(claim.rule, claim.match, params, ctx) or 0.0 for params in space]
    default = predicted(claim.rule, claim.match, claim.rule.default(claim.match, ctx), ctx)
    assert default is not None and default < 1.5 * min(found)
