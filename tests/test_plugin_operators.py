"""Operators of plug-ins are scheduled, laid out and fused like those of core: by their facts and their definitions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.errors import FallbackWarning
from hidet.fusion.fuse import fuse
from hidet.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.printer import canonical_lines, print_graph
from hidet.operators import all_operators
from hidet.passes.graph.assign_layout import AssignLayout
from hidet.passes.graph.attention_layout import AttentionLayout
from hidet.passes.graph.simplify import Simplify
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledTask, select_schedules
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_inputs

PLUGIN = """
    from hidet.compute.definition import MAX, SUM, compute, reduce, single
    from hidet.graph.operator import OperatorSpec, View
    from hidet.ir import build
    from hidet.operators.rules import map_elements

    HIDET_API = 1


    def _swish(x):
        return map_elements("swish", (x,), lambda e: e / (build.unary("exp", -e) + 1))


    def _gate(x, gate):
        return map_elements("gate", (x, gate), lambda e, g: e * build.maximum(g, 0))


    def _matrix_gate(x, gate):
        if x.rank != 2:
            raise ValueError("this operator was written for matrices")
        return _gate(x, gate)


    def _scale_channels(x, scale):
        '''scale[axis 1 of x]: of matrices this looks like broadcasting.'''
        return single((x, scale), compute("scale_channels", x.shape, lambda *axes: x[axes] * scale[axes[1]]))


    def _ramp(x):
        return single((x,), compute("ramp", x.shape, lambda *axes: x[axes] + build.cast(axes[0], x.dtype)))


    def _project(x, weight):
        '''x times a matrix that lies by rows of x's features.'''

        def value(*axes):
            *rows, j = axes
            return reduce(SUM, weight.shape[:1], lambda k: x[*rows, k] * weight[k, j])

        return single((x, weight), compute("project", (*x.shape[:-1], weight.shape[1]), value))


    def _weighted(x, weight):
        '''As `_project`, with rows multiplied by their number.'''

        def value(*axes):
            *rows, j = axes
            total = reduce(SUM, weight.shape[:1], lambda k: x[*rows, k] * weight[k, j])
            return total * build.cast(rows[-1], x.dtype)

        return single((x, weight), compute("weighted", (*x.shape[:-1], weight.shape[1]), value))


    def _column(x):
        return single((x,), compute("column", (*x.shape, 1), lambda *axes: x[axes[:-1]]))


    def _column_view(x, attrs, result):
        return View(0, (*x.element_strides, 1))


    def _share(x):
        return map_elements("share", (x,), lambda e: e / build.cast(build.index(x.shape[-1]), x.dtype))


    def _is_negative(x):
        return map_elements("is_negative", (x,), lambda e: e < 0)


    def _energy(x):
        row = lambda *axes: reduce(SUM, x.shape[-1:], lambda r: x[(*axes, r)] * x[(*axes, r)])
        return single((x,), compute("energy", x.shape[:-1], row))


    def _mix(image, weight):
        n, c, h, w = image.shape
        def pixel(n, o, y, x):
            return reduce(SUM, (c,), lambda k: image[n, k, y, x] * weight[o, k])
        return single((image, weight), compute("mix", (n, weight.shape[0], h, w), pixel))


    def _halve(image):
        n, c, h, w = image.shape
        def pixel(n, c, y, x):
            return reduce(MAX, (2, 2), lambda i, j: image[n, c, y * 2 + i, x * 2 + j])
        return single((image,), compute("halve", (n, c, h // 2, w // 2), pixel))


    def _attend(q, k):
        b, h, s, d = q.shape
        def feature(b, h, s, d):
            return reduce(SUM, (k.shape[2],), lambda t: q[b, h, s, d] * k[b, h, t, d])
        return single((q, k), compute("attend", q.shape, feature))


    def hidet_operators():
        yield OperatorSpec(name="acme.project", inputs=("x", "weight"), define=_project, kind="anchor", family="matmul")
        yield OperatorSpec(
            name="acme.weighted", inputs=("x", "weight"), define=_weighted, kind="anchor", family="matmul"
        )
        yield OperatorSpec(
            name="acme.column", inputs=("x",), define=_column, kind="view", family="reshape", view=_column_view
        )
        yield OperatorSpec(name="acme.swish", inputs=("x",), define=_swish)
        yield OperatorSpec(name="acme.gate", inputs=("x", "gate"), define=_gate)
        yield OperatorSpec(name="acme.matrix_gate", inputs=("x", "gate"), define=_matrix_gate)
        yield OperatorSpec(name="acme.scale_channels", inputs=("x", "scale"), define=_scale_channels)
        yield OperatorSpec(name="acme.ramp", inputs=("x",), define=_ramp)
        yield OperatorSpec(name="acme.share", inputs=("x",), define=_share)
        yield OperatorSpec(name="acme.is_negative", inputs=("x",), define=_is_negative)
        yield OperatorSpec(name="acme.energy", inputs=("x",), define=_energy, family="reduction")
        yield OperatorSpec(
            name="acme.mix", inputs=("image", "weight"), define=_mix, kind="anchor", family="convolution",
            layout="channels-last",
        )
        yield OperatorSpec(
            name="acme.halve", inputs=("image",), define=_halve, kind="anchor", family="pooling", layout="follows"
        )
        yield OperatorSpec(
            name="acme.attend", inputs=("q", "k"), define=_attend, kind="anchor", family="attention", layout="bshd"
        )
"""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The plug-in, installed for all tests of this file: registries are kept for the life of the process."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "acme_operators").mkdir()
    (folder / "acme_operators" / "_plugin.py").write_text(textwrap.dedent(PLUGIN))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet.gpu._plugin,hidet.cuda._plugin,acme_operators._plugin")
        yield


@pytest.fixture(scope="module")
def ctx(plugin: None) -> CompileContext:
    return make_context("cpu", {"cache": False, "threads": 1, "verify": True})


def graph_of(text: str, ctx: CompileContext) -> Graph:
    return parse_graph(textwrap.dedent(text).strip() + "\n", ctx.registry.operators)


def becomes(graph_pass: object, before: str, after: str, ctx: CompileContext) -> None:
    """A pass turns one text into the other, and both compute the same."""
    graph = graph_of(before, ctx)
    result: Graph = graph_pass.run(graph, ctx)  # type: ignore[attr-defined]  # a graph pass
    assert canonical_lines(result) == canonical_lines(graph_of(after, ctx)), print_graph(result)
    inputs = random_inputs(graph, 0)
    for x, y in zip(interpret(graph, inputs, {}), interpret(result, inputs, {}), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-6, atol=1e-6)


def tasks(text: str, ctx: CompileContext) -> list[tuple[str, ...]]:
    """For each task the rule and the operators."""
    steps = select_schedules(fuse(graph_of(text, ctx), ctx), ctx).steps
    scheduled = [step for step in steps if isinstance(step, ScheduledTask)]
    return [(step.rule_name, *[node.op.name for node in step.task.nodes]) for step in scheduled]


@pytest.mark.parametrize("activation", ["gelu", "hardswish", "acme.swish"])
def test_rows_are_split_before_a_product_through_any_activation(ctx: CompileContext, activation: str) -> None:
    becomes(
        Simplify(),
        f"""
        graph g(%x: f32[6, 8], %w: f32[4, 8], %b: f32[4]):
          %0: f32[6, 4] = linear(%x, %w)
          %1: f32[6, 4] = add(%0, %b)
          %2: f32[6, 4] = {activation}(%1)
          %3: f32[2, 3, 4] = reshape(%2, shape=[2, 3, 4])
          return %3
        """,
        f"""
        graph g(%x: f32[6, 8], %w: f32[4, 8], %b: f32[4]):
          %0: f32[2, 3, 8] = reshape(%x, shape=[2, 3, 8])
          %1: f32[2, 3, 4] = linear(%0, %w)
          %2: f32[2, 3, 4] = add(%1, %b)
          %3: f32[2, 3, 4] = {activation}(%2)
          return %3
        """,
        ctx,
    )


def test_rows_of_a_plugins_product_are_split_before_it(ctx: CompileContext) -> None:
    becomes(
        Simplify(),
        """
        graph g(%x: f32[6, 8], %w: f32[8, 4]):
          %0: f32[6, 4] = acme.project(%x, %w)
          %1: f32[6, 4] = relu(%0)
          %2: f32[2, 3, 4] = reshape(%1, shape=[2, 3, 4])
          return %2
        """,
        """
        graph g(%x: f32[6, 8], %w: f32[8, 4]):
          %0: f32[2, 3, 8] = reshape(%x, shape=[2, 3, 8])
          %1: f32[2, 3, 4] = acme.project(%0, %w)
          %2: f32[2, 3, 4] = relu(%1)
          return %2
        """,
        ctx,
    )


def test_rows_that_are_numbered_are_not_split(ctx: CompileContext) -> None:
    text = """
        graph g(%x: f32[6, 8], %w: f32[8, 4]):
          %0: f32[6, 4] = acme.weighted(%x, %w)
          %1: f32[2, 3, 4] = reshape(%0, shape=[2, 3, 4])
          return %1
        """
    becomes(Simplify(), text, text, ctx)


def test_a_reshape_of_a_plugin_joins_others(ctx: CompileContext) -> None:
    becomes(
        Simplify(),
        """
        graph g(%x: f32[6, 8]):
          %0: f32[6, 8, 1] = acme.column(%x)
          %1: f32[48] = reshape(%0, shape=[48])
          %2: f32[48] = relu(%1)
          return %2
        """,
        """
        graph g(%x: f32[6, 8]):
          %0: f32[48] = reshape(%x, shape=[48])
          %1: f32[48] = relu(%0)
          return %1
        """,
        ctx,
    )


@pytest.mark.parametrize(("anchor", "gate"), [("conv", "div"), ("conv", "acme.gate"), ("conv_transpose", "acme.gate")])
def test_a_transpose_is_moved_behind_what_an_anchor_can_compute(ctx: CompileContext, anchor: str, gate: str) -> None:
    becomes(
        Simplify(),
        f"""
        graph g(%x: f32[1, 2, 4, 3], %w: f32[2, 2, 1, 1], %z: f32[3, 4]):
          %0: f32[1, 2, 4, 3] = {anchor}(%x, %w)
          %1: f32[1, 2, 3, 4] = transpose(%0, perm=[0, 1, 3, 2])
          %2: f32[1, 2, 3, 4] = {gate}(%1, %z)
          %3: f32[1, 2] = sum(%2, axes=[2, 3])
          return %3
        """,
        f"""
        graph g(%x: f32[1, 2, 4, 3], %w: f32[2, 2, 1, 1], %z: f32[3, 4]):
          %0: f32[1, 2, 4, 3] = {anchor}(%x, %w)
          %1: f32[1, 1, 3, 4] = reshape(%z, shape=[1, 1, 3, 4])
          %2: f32[1, 1, 4, 3] = transpose(%1, perm=[0, 1, 3, 2])
          %3: f32[1, 2, 4, 3] = {gate}(%0, %2)
          %4: f32[1, 2, 3, 4] = transpose(%3, perm=[0, 1, 3, 2])
          %5: f32[1, 2] = sum(%4, axes=[2, 3])
          return %5
        """,
        ctx,
    )


@pytest.mark.parametrize("gate", ["div", "acme.gate"])
def test_a_reshape_and_its_inverse_meet_through_anything_element_wise(ctx: CompileContext, gate: str) -> None:
    becomes(
        Simplify(),
        f"""
        graph g(%x: f32[2, 3, 4], %y: f32[4]):
          %0: f32[6, 4] = reshape(%x, shape=[6, 4])
          %1: f32[6, 4] = {gate}(%0, %y)
          %2: f32[2, 3, 4] = reshape(%1, shape=[2, 3, 4])
          return %2
        """,
        f"""
        graph g(%x: f32[2, 3, 4], %y: f32[4]):
          %0: f32[2, 3, 4] = {gate}(%x, %y)
          return %0
        """,
        ctx,
    )


@pytest.mark.parametrize("operator", ["acme.scale_channels", "acme.matrix_gate"])
def test_an_operator_that_is_another_one_on_other_axes_is_not_moved_through(ctx: CompileContext, operator: str) -> None:
    graph = f"""
        graph g(%x: f32[6, 8], %w: f32[4, 8], %scale: f32[4]):
          %0: f32[6, 4] = linear(%x, %w)
          %1: f32[6, 4] = {operator}(%0, %scale)
          %2: f32[2, 3, 4] = reshape(%1, shape=[2, 3, 4])
          return %2
        """
    becomes(Simplify(), graph, graph, ctx)


@pytest.mark.parametrize("operator", ["acme.ramp", "acme.share"])
def test_an_operator_for_which_indices_or_sizes_count_is_not_moved_through(ctx: CompileContext, operator: str) -> None:
    graph = f"""
        graph g(%x: f32[1, 2, 4, 3], %w: f32[2, 2, 1, 1]):
          %0: f32[1, 2, 4, 3] = conv(%x, %w)
          %1: f32[3, 2, 4, 1] = transpose(%0, perm=[3, 1, 2, 0])
          %2: f32[3, 2, 4, 1] = {operator}(%1)
          %3: f32[2, 1] = sum(%2, axes=[0, 2])
          return %3
        """
    becomes(Simplify(), graph, graph, ctx)


def test_layouts_are_those_that_operators_ask_for(ctx: CompileContext) -> None:
    becomes(
        AssignLayout(),
        """
        graph g(%x: f32[1, 2, 4, 4], %w: f32[3, 2]):
          %0: f32[1, 3, 4, 4] = acme.mix(%x, %w)
          %1: f32[1, 3, 4, 4] = acme.swish(%0)
          %2: f32[1, 3, 2, 2] = acme.halve(%1)
          %3: f32[1, 3, 2, 2] = relu(%2)
          return %3
        """,
        """
        graph g(%x: f32[1, 2, 4, 4], %w: f32[3, 2]):
          %0: f32[1, 3, 4, 4]{48, 1, 12, 3} = acme.mix(%x, %w)
          %1: f32[1, 3, 4, 4]{48, 1, 12, 3} = acme.swish(%0)
          %2: f32[1, 3, 2, 2]{12, 1, 6, 3} = acme.halve(%1)
          %3: f32[1, 3, 2, 2] = relu(%2)
          return %3
        """,
        ctx,
    )


def test_heads_of_a_position_lie_next_to_each_other_where_an_operator_asks_for_it(ctx: CompileContext) -> None:
    becomes(
        AttentionLayout(),
        """
        graph g(%q: f32[1, 2, 3, 4]):
          %0: f32[1, 2, 3, 4] = acme.attend(%q, %q)
          %1: f32[1, 3, 2, 4] = transpose(%0, perm=[0, 2, 1, 3])
          return %1
        """,
        """
        graph g(%q: f32[1, 2, 3, 4]):
          %0: f32[1, 2, 3, 4]{24, 4, 8, 1} = acme.attend(%q, %q)
          %1: f32[1, 3, 2, 4] = transpose(%0, perm=[0, 2, 1, 3])
          return %1
        """,
        ctx,
    )


ENERGY = """
graph g(%x: f32[64, 512]):
  %0: f32[64] = acme.energy(%x)
  return %0
"""
POOL = """
graph g(%x: f32[1, 8, 64, 64]):
  %0: f32[1, 8, 32, 32] = acme.halve(%x)
  return %0
"""


@pytest.mark.parametrize(
    ("target", "graph", "rule"),
    [
        ("cpu", ENERGY, "cpu.reduce"),
        ("cpu", POOL, "cpu.pool"),
        ("cuda:sm_90a", ENERGY, "gpu.rows"),
        ("cuda:sm_90a", POOL, "gpu.pool"),
    ],
)
def test_a_rule_for_a_family_takes_the_operators_that_plug_ins_put_into_it(target: str, graph: str, rule: str) -> None:
    ((taken_by, _),) = tasks(graph, make_context(target, {"cache": False}))
    assert taken_by == rule


@pytest.mark.parametrize("activation", ["gelu", "acme.swish"])
def test_an_activation_is_computed_where_a_product_is_stored(ctx: CompileContext, activation: str) -> None:
    graph = f"""
        graph g(%x: f32[64, 32], %w: f32[48, 32]):
          %0: f32[64, 48] = linear(%x, %w)
          %1: f32[64, 48] = {activation}(%0)
          return %1
        """
    assert tasks(graph, ctx) == [("cpu.matmul", "linear", activation)]


@pytest.mark.parametrize("conversion", ["cast(%x, dtype=bool)", "acme.is_negative(%x)"])
def test_a_conversion_of_a_small_input_is_computed_by_each_of_its_readers(ctx: CompileContext, conversion: str) -> None:
    graph = f"""
        graph g(%x: f32[8, 4], %y: f32[8, 4]):
          %0: bool[8, 4] = {conversion}
          %1: f32[8, 4] = where(%0, %x, %y)
          %2: f32[4] = sum(%1, axes=[0])
          %3: f32[8, 4] = where(%0, %y, %x)
          %4: f32[8] = sum(%3, axes=[1])
          return %2, %4
        """
    operator = conversion.partition("(")[0]
    assert sorted(tasks(graph, ctx)) == [("cpu.reduce", operator, "where", "sum")] * 2


def test_a_model_of_operators_of_a_plug_in_computes_what_they_mean(ctx: CompileContext) -> None:
    graph = graph_of(
        """
        graph g(%x: f32[1, 2, 4, 4], %w: f32[3, 2], %v: f32[5, 4]):
          %0: f32[1, 3, 4, 4] = acme.mix(%x, %w)
          %1: f32[1, 3, 4, 4] = acme.swish(%0)
          %2: f32[1, 3, 2, 2] = acme.halve(%1)
          %3: f32[3, 4] = reshape(%2, shape=[3, 4])
          %4: f32[3, 5] = linear(%3, %v)
          %5: f32[3, 5] = acme.share(%4)
          %6: f32[1, 3, 5] = reshape(%5, shape=[1, 3, 5])
          %7: f32[1, 3] = acme.energy(%6)
          return %7
        """,
        ctx,
    )
    inputs = random_inputs(graph, 0)
    (expected,) = interpret(graph, inputs, {})
    with pytest.warns(FallbackWarning, match="takes 1 operators.*\n.*acme.mix"):
        compiled = compile_graph(graph, ctx)
    np.testing.assert_allclose(compiled(*inputs), expected, rtol=1e-5)


def test_core_names_no_operator_of_another_wheel() -> None:
    others = load_registry().operators.keys() - {spec.name for spec in all_operators()}
    assert "cpu.conv_packed" in others
    for path in sorted(Path(__file__).parents[1].glob("packages/hidet-core/src/**/*.py")):
        text = path.read_text()
        assert not [name for name in others if f'"{name}"' in text], path
