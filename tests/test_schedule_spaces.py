"""Every rule's default is a point of its space, and every point of it is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hidet import dtypes
from hidet.context import CompileContext, make_context
from hidet.fusion.fuse import fuse
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph
from hidet.graph.types import TensorType
from hidet.passes.manager import run_graph_passes
from hidet.schedule.claims import Claim, claims
from hidet.schedule.shortlist import space_of
from hidet.testing import check_rule

Shape = tuple[int, ...]

TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90a")
SIZES = {
    "matmul": [((1, 64), (64, 40)), ((64, 512), (512, 256)), ((2, 2000, 600), (600, 1000)), ((3, 17), (17, 1))],
    "linear": [((1, 4096), (4096, 4096)), ((77, 96), (130, 96)), ((2, 768), (3072, 768)), ((5, 9), (3, 9))],
    "softmax": [((3, 70),), ((64, 4096),), ((2, 60000),)],
    "reduction": [((5, 200),), ((2048, 4096),), ((1, 1 << 20),), ((9, 3),)],
    "scan": [((3, 40),), ((64, 50000),), ((4096, 7),)],
    "elementwise": [((130, 9),), ((2048, 4096),), ((7,),)],
    "window": [((1, 8, 7, 7),), ((8, 64, 56, 56),), ((2, 3, 33, 40),)],
}


@dataclass(frozen=True)
class Row:
    """An operator, what its inputs are in several cases, and its attributes. dtypes: of inputs; None is i64. codes: the
    type of those that the second input is computed from with a scale, the third one, for 32 neighbours; "" for none."""

    op: str
    cases: list[tuple[Shape, ...]]
    attrs: dict[str, Any]
    dtypes: tuple[str, ...] = ("f32", "f16")
    codes: str = ""


ROWS = [
    Row("matmul", SIZES["matmul"], {}, ("f32", "f16", "f64")),
    Row("linear", SIZES["linear"], {}),
    Row("linear", [((2, 768), (96, 768), (96, 24))], {}, ("f16", "bf16"), codes="u8"),
    Row("conv", [((1, 8, 9, 9), (16, 8, 3, 3)), ((2, 64, 28, 28), (128, 64, 1, 1))], {"padding": 1}),
    Row("conv", [((1, 3, 40, 40), (8, 3, 7, 7)), ((4, 128, 28, 28), (64, 128, 3, 3))], {"stride": 2}),
    Row("conv", [((1, 16, 9, 9), (32, 4, 3, 3))], {"groups": 4}),
    Row("conv", [((1, 8, 9, 9), (8, 1, 3, 3)), ((2, 8, 56, 57), (8, 1, 5, 5))], {"groups": 8}),
    Row("conv", [((8, 96, 56, 56), (96, 1, 5, 5)), ((1, 96, 7, 7), (96, 1, 3, 3))], {"groups": 96}),
    Row("conv_transpose", [((1, 8, 5, 5), (8, 6, 4, 4))], {"stride": 2}),
    Row("attention", [((1, 2, 20, 16),) * 3, ((2, 12, 512, 64),) * 3], {"is_causal": True}),
    Row("attention", [((1, 8, 1, 64), (1, 8, 900, 64), (1, 8, 900, 64)), ((2, 4, 300, 128),) * 3], {}),
    Row("softmax", SIZES["softmax"], {"axis": 1}),
    Row("log_softmax", SIZES["softmax"], {"axis": 0}),
    Row("layer_norm", [((6, 96), (96,), (96,)), ((4096, 768), (768,), (768,))], {}),
    Row("rms_norm", [((6, 9000), (9000,))], {}),
    Row("group_norm", [((2, 8, 8, 8), (8,), (8,))], {"groups": 4}),
    Row("sum", SIZES["reduction"], {"axes": [1]}),
    Row("amax", SIZES["reduction"], {"axes": [0]}, ("f32", "i64")),
    Row("argmax", SIZES["reduction"], {"axes": [1]}),
    Row("mean", SIZES["reduction"], {}),
    Row("cumsum", SIZES["scan"], {"axis": 1}),
    Row("cumsum", SIZES["scan"], {"axis": 0}),
    Row("sort", [((2, 1100),), ((1, 70000),), ((9, 3),)], {"axis": 1}),
    Row("topk", [((2, 3000),), ((64, 50000),)], {"axis": 1, "k": 50}),
    Row("max_pool", SIZES["window"], {"kernel": [3, 3], "stride": 2}),
    Row("avg_pool", SIZES["window"], {"kernel": [2, 2]}),
    Row("adaptive_avg_pool", SIZES["window"], {"size": [1, 1]}),
    Row("gelu", SIZES["elementwise"], {}),
    Row("flip", [((130, 9),)], {"axes": [1]}),
    Row("scatter", [((40, 9), (12, 9), (12, 9))], {"axis": 0}),
]
TASKS = [(row, case, dtype) for row in ROWS for case in row.cases for dtype in row.dtypes]


def graph_of(row: Row, shapes: tuple[Shape, ...], dtype: str, ctx: CompileContext) -> Graph:
    """One operator. The second input of `scatter` is positions."""
    builder = GraphBuilder(ctx.registry.operators)
    of_second = "i64" if row.op == "scatter" else row.codes or dtype
    inputs = [
        builder.input(TensorType(getattr(dtypes, of_second if n == 1 else dtype), shape))
        for n, shape in enumerate(shapes)
    ]
    if row.codes:
        x, codes, scales = inputs
        inputs = [x, builder.emit_all("dequantize", [codes, scales], {"axis": 1, "block_size": 32})[0]]
    return builder.build([builder.emit_all(row.op, inputs, row.attrs)[0]])


def all_claims(target: str) -> Iterator[tuple[Claim, CompileContext]]:
    """What every rule of a target takes, of the tasks of all rows, and of some that other passes would have changed."""
    ctx = make_context(target, {"cache": False})
    for row, shapes, dtype in TASKS:
        graph = graph_of(row, shapes, dtype, ctx)
        for made in (graph, run_graph_passes(graph, ctx)):
            for task in fuse(made, ctx).tasks:
                yield from ((claim, ctx) for claim in claims(task, ctx, []))


@pytest.mark.parametrize("target", TARGETS)
def test_the_default_of_every_rule_is_a_point_of_its_space(target: str) -> None:
    asked = set()
    for claim, ctx in all_claims(target):
        asked.add(claim.spec.name)
        space = space_of(claim.rule, claim.match, ctx)
        default = claim.rule.default(claim.match, ctx)
        assert not space or default in space, (claim.spec.name, claim.match.task.summary, default)
    registry = make_context(target).registry
    anchors = (*registry.operators, "elementwise")
    rules = {spec.name for op in anchors for spec in registry.schedules_for(op, target.partition(":")[0])}
    assert asked == rules - {"script"}


# What points of each rule's space are tried on: small, and with sizes that no tile divides.
SMALL: dict[str, list[tuple[Row, str]]] = {
    "cpu.matmul": [
        (Row("matmul", [((2, 13, 300), (300, 45)), ((1, 512), (512, 24))], {}), "f32"),
        (Row("linear", [((3, 512), (70, 512)), ((130, 20), (65, 20))], {}), "f16"),
    ],
    "cpu.conv": [
        (Row("conv", [((1, 8, 9, 9), (40, 8, 3, 3))], {"padding": 1}), "f32"),
        (Row("conv", [((1, 1, 9, 9), (20, 1, 3, 3))], {}), "f32"),
        (Row("conv_transpose", [((1, 8, 5, 5), (8, 6, 4, 4))], {"stride": 2}), "f32"),
    ],
    "cpu.depthwise": [(Row("conv", [((1, 20, 9, 10), (20, 1, 3, 3))], {"groups": 20}), "f32")],
    "cpu.attention": [
        (Row("attention", [((1, 2, 70, 16),) * 3], {"is_causal": True}), "f32"),
        (Row("attention", [((1, 2, 2, 24), (1, 2, 300, 24), (1, 2, 300, 24))], {}), "f16"),
    ],
    "cpu.elementwise": [(Row("gelu", [((130, 9),)], {}), "f32")],
    "cpu.softmax": [
        (Row("softmax", [((40, 70),)], {"axis": 1}), "f32"),
        (Row("softmax", [((4, 700),)], {"axis": 0}), "f32"),
    ],
    "cpu.normalize": [(Row("layer_norm", [((6, 96), (96,), (96,))], {}), "f32")],
    "cpu.reduce": [
        (Row("sum", [((5, 20000),)], {"axes": [1]}), "f32"),
        (Row("amax", [((200, 50),)], {"axes": [0]}), "f32"),
    ],
    "cpu.scan": [
        (Row("cumsum", [((13, 300),)], {"axis": 1}), "f32"),
        (Row("cumsum", [((60, 40),)], {"axis": 0}), "f32"),
    ],
    "cpu.pool": [(Row("max_pool", [((1, 3, 37, 38),)], {"kernel": [3, 3]}), "f32")],
    "cuda.matmul": [
        (Row("matmul", [((33, 300), (300, 45))], {}), "f16"),
        (Row("linear", [((1, 512), (24, 512))], {}), "f16"),
        (Row("conv", [((1, 8, 6, 6), (16, 8, 3, 3))], {"padding": 1}), "f16"),
    ],
    "cuda.packed_product": [(Row("linear", [((3, 224), (20, 224), (20, 7))], {}, codes="u8"), "f16")],
    "cuda.attention": [
        (Row("attention", [((1, 2, 20, 16),) * 3], {"is_causal": True}), "f16"),
        (Row("attention", [((1, 4, 1, 64), (1, 1, 300, 64), (1, 1, 300, 64))], {"enable_gqa": True}), "f16"),
        (Row("attention", [((1, 2, 20, 16),) * 3], {}), "f32"),
    ],
    "gpu.attention": [(Row("attention", [((1, 2, 20, 16),) * 3], {"is_causal": True}), "f32")],
    "gpu.matmul": [(Row("conv", [((1, 4, 6, 6), (20, 4, 3, 3))], {}), "f32")],
    "gpu.depthwise": [(Row("conv", [((1, 8, 9, 10), (8, 1, 3, 3))], {"groups": 8}), "f16")],
    "gpu.narrow_conv": [(Row("conv", [((1, 16, 5, 8), (32, 4, 3, 3))], {"groups": 4}), "f32")],
    "gpu.elementwise": [(Row("gelu", [((130, 16),)], {}), "f16")],
    "gpu.rows": [
        (Row("softmax", [((3, 70),)], {"axis": 1}), "f32"),
        (Row("softmax", [((70, 24),)], {"axis": 0}), "f16"),
        (Row("sum", [((3, 1500),)], {"axes": [1]}), "f32"),
        (Row("layer_norm", [((2, 600), (600,), (600,))], {}), "f32"),
    ],
    "gpu.pool": [(Row("max_pool", [((1, 3, 7, 8),)], {"kernel": [3, 3]}), "f32")],
    "gpu.reduce": [(Row("softmax", [((3, 70),)], {"axis": 1}), "f32")],
    "gpu.reduce_products": [(Row("matmul", [((3, 40), (40, 5))], {}), "f32")],
    "gpu.sort": [
        (Row("sort", [((2, 300),)], {"axis": 1}), "f32"),
        (Row("topk", [((2, 1300),)], {"axis": 1, "k": 50}), "f16"),
    ],
    "gpu.scan": [
        (Row("cumsum", [((3, 300),)], {"axis": 1}), "f32"),
        (Row("cumsum", [((200, 40),)], {"axis": 0}), "i64"),
    ],
}
CHOICELESS = {"fallback", "gpu.scatter", "script"}
"""Rules about whose programs nothing may be chosen."""


@pytest.mark.parametrize("rule", SMALL)
@pytest.mark.thorough(every=4)
def test_points_of_a_space_are_right(rule: str) -> None:
    target, options = ("cpu", {"threads": 1, "cache": False}) if rule.startswith("cpu.") else ("cuda:sm_90a", None)
    ctx = make_context(target)
    for row, dtype in SMALL[rule]:
        for shapes in row.cases:
            report = check_rule(
                ctx.registry.schedules[rule],
                graph_of(row, shapes, dtype, ctx),
                target,
                options=options,
                points=2,
                seeds=1,
                where="target" if target == "cpu" else "interpreter",
            )
            assert not report.impossible
            assert len(report.trials) > 1


def test_every_rule_with_choices_has_points_that_are_tried() -> None:
    schedules = make_context("cpu").registry.schedules
    assert set(SMALL) | CHOICELESS == set(schedules)
