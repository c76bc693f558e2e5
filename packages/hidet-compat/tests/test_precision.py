"""Options `compat.precision` and `compat.attention`: what graphs become, and how far results are from those of f32."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

from hidet.compat.passes.compose_attention import ComposeAttention
from hidet.compat.passes.convert_precision import ConvertPrecision
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.verify import verify_graph
from hidet.ir.expr import Reduce
from hidet.ir.visit import walk
from hidet.plugins.host import load_registry


def graph_of(text: str) -> Graph:
    return parse_graph("graph g" + textwrap.dedent(text).strip() + "\n", load_registry().operators)


def converted(text: str, precision: str = "float16") -> Graph:
    graph = graph_of(text)
    made = ConvertPrecision().run(graph, make_context("cpu", {"compat.precision": precision}))
    verify_graph(made)
    assert [value.type for value in made.outputs] == [value.type for value in graph.outputs]
    return made


def shown(graph: Graph) -> list[str]:
    """The nodes: operator, and types of what it reads, and of its result."""
    return [
        f"{node.op.name} {','.join(v.tensor.dtype.short for v in node.values)} -> {node.outputs[0].tensor.dtype.short}"
        for node in graph.nodes
    ]


def computed(text: str, *arrays: Any, **options: Any) -> Any:
    given = {name.replace("_", ".", 1): value for name, value in options.items()}
    return compile_graph(graph_of(text), make_context("cpu", given))(*arrays)


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


LAYERS = """(%x: f32[4, 8], param %w: f32[8, 8], param %b: f32[8]):
  %0: f32[4, 8] = linear(%x, %w, %b)
  %1: f32[4, 8] = relu(%0)
  %2: f32[4, 8] = linear(%1, %w, %b)
  %3: f32[4, 8] = add(%2, %1)
  return %3
"""


def test_products_and_what_follows_them_are_of_16_bits_between_conversions_at_the_borders() -> None:
    assert shown(converted(LAYERS)) == [
        *["cast f32 -> f16"] * 3,
        "linear f16,f16,f16 -> f16",
        "relu f16 -> f16",
        "linear f16,f16,f16 -> f16",
        "add f16,f16 -> f16",
        "cast f16 -> f32",
    ]


def test_bfloat16_is_another_type_of_16_bits() -> None:
    assert "linear bf16,bf16,bf16 -> bf16" in shown(converted(LAYERS, "bfloat16"))


def test_graphs_stay_as_they_are_where_nothing_is_asked_for() -> None:
    graph = graph_of(LAYERS)
    assert ConvertPrecision().run(graph, make_context("cpu")) is graph
    assert ConvertPrecision().run(graph, make_context("cpu", {"compat.precision": "float32"})) is graph


@pytest.mark.parametrize("operator", ["exp", "log", "rsqrt", "square", "reciprocal", "log_softmax"])
def test_functions_whose_values_16_bits_do_not_hold_are_computed_in_f32(operator) -> None:
    made = shown(
        converted(f"""(%x: f32[4, 8], param %w: f32[8, 8]):
          %0: f32[4, 8] = linear(%x, %w)
          %1: f32[4, 8] = {operator}(%0)
          %2: f32[4, 8] = add(%1, %0)
          return %2
        """)
    )
    assert made[-4:] == ["linear f16,f16 -> f16", "cast f16 -> f32", f"{operator} f32 -> f32", "add f32,f32 -> f32"]


def test_reductions_are_computed_in_f32_and_stay_so_until_a_product_reads_them() -> None:
    made = shown(
        converted("""(%x: f32[4, 8], param %w: f32[8, 8]):
          %0: f32[4, 8] = linear(%x, %w)
          %1: f32[4, 1] = mean(%0, axes=[1], keepdim=True)
          %2: f32[4, 8] = sub(%0, %1)
          %3: f32[4, 8] = linear(%2, %w)
          return %3
        """)
    )
    assert made[3:] == [
        *("cast f16 -> f32", "mean f32 -> f32", "sub f32,f32 -> f32", "cast f32 -> f16"),
        *("linear f16,f16 -> f16", "cast f16 -> f32"),
    ]


@pytest.mark.parametrize("norm", ["layer_norm(%0, %g, %g)", "rms_norm(%0, %g)", "softmax(%0)"])
def test_norms_and_softmax_read_and_give_16_bits_and_compute_in_f32(norm) -> None:
    made = converted(f"""(%x: f32[4, 8], param %w: f32[8, 8], param %g: f32[8]):
      %0: f32[4, 8] = linear(%x, %w)
      %1: f32[4, 8] = {norm}
      %2: f32[4, 8] = linear(%1, %w)
      return %2
    """)
    (inner,) = [node for node in made.nodes if node.op.name == norm.partition("(")[0]]
    assert {value.tensor.dtype.short for value in (*inner.values, *inner.outputs)} == {"f16"}
    assert inner.definition is not None
    sums = [node for stage in inner.definition.stages for node in walk(stage.value) if isinstance(node, Reduce)]  # type: ignore[union-attr]  # of no other kind
    assert {node.dtype.short for node in sums} == {"f32"}


def test_norms_of_what_16_bits_do_not_hold_read_f32_and_give_16_bits() -> None:
    made = shown(
        converted("""(%x: f32[4, 8], param %w: f32[8, 8], param %g: f32[8]):
          %0: f32[4, 8] = exp(%x)
          %1: f32[4, 8] = rms_norm(%0, %g)
          %2: f32[4, 8] = linear(%1, %w)
          return %2
        """)
    )
    assert made == [
        *("exp f32 -> f32", "rms_norm f32,f32 -> f32", "cast f32 -> f16", "cast f32 -> f16"),
        *("linear f16,f16 -> f16", "cast f16 -> f32"),
    ]


def test_statistics_of_batch_norms_stay_in_f32() -> None:
    made = converted("""(%x: f32[2, 4, 3, 3], param %w: f32[4, 4, 1, 1], param %v: f32[4]):
      %0: f32[2, 4, 3, 3] = conv(%x, %w)
      %1: f32[2, 4, 3, 3] = relu(%0)
      %2: f32[2, 4, 3, 3] = batch_norm(%1, %v, %v, %v, %v)
      %3: f32[2, 4, 3, 3] = conv(%2, %w)
      return %3
    """)
    assert "batch_norm f32,f32,f32,f32,f32 -> f32" in shown(made)
    assert [line for line in shown(made) if line.startswith("conv")] == ["conv f16,f16 -> f16"] * 2


def test_what_is_made_of_weights_alone_is_computed_in_f32_and_converted_where_it_is_used() -> None:
    made = converted("""(%x: f32[4, 8], param %w: f32[8, 8], param %s: f32[8]):
      %0: f32[8, 8] = mul(%w, %s)
      %1: f32[8, 8] = transpose(%0, perm=[1, 0])
      %2: f32[4, 8] = linear(%x, %1)
      return %2
    """)
    assert shown(made)[:2] == ["mul f32,f32 -> f32", "transpose f32 -> f32"]


def test_numbers_that_16_bits_do_not_hold_keep_what_they_are_added_to_in_f32() -> None:
    text = """(%x: f32[4, 8], param %w: f32[8, 8]):
      const %c: f32[] = {number}
      %0: f32[4, 8] = linear(%x, %w)
      %1: f32[4, 8] = add(%0, %c)
      return %1
    """
    assert "add f32,f32 -> f32" in shown(converted(text.format(number="-1e+09")))
    assert "add f16,f16 -> f16" in shown(converted(text.format(number="-1e+03")))


def test_masks_of_large_numbers_do_not_make_rows_of_nothing() -> None:
    text = """(%q: f32[1, 4, 8], %m: f32[1, 4, 4]):
      %0: f32[1, 4, 8] = attention(%q, %q, %q, %m)
      return %0
    """
    q, mask = draw(1, 4, 8), np.zeros((1, 4, 4), np.float32)
    mask[0, 1], mask[0, 2, :2] = -1e9, -1e9
    rounded, exact = computed(text, q, mask, compat_precision="float16"), computed(text, q, mask)
    np.testing.assert_allclose(rounded[0, [0, 2, 3]], exact[0, [0, 2, 3]], rtol=1e-2, atol=1e-2)
    assert (np.abs(rounded[0, 1]) > 0).all(), "a row that reads nothing is 0, or no number"


def test_other_types_and_what_is_updated_in_place_are_left_alone() -> None:
    made = shown(
        converted("""(%x: f64[4, 8], %y: f64[8, 8], %cache: f32[16, 8], %i: i64[4], %h: f32[4, 8], param %w: f32[8, 8]):
          %0: f64[4, 8] = linear(%x, %y)
          %1: f32[4, 8] = linear(%h, %w)
          %2: f32[16, 8] = index_put(%cache, %1, %i, accumulate=False)
          return %0, %2
        """)
    )
    assert "linear f64,f64 -> f64" in made
    assert "index_put f32,f32,i64 -> f32" in made


def test_results_are_within_what_16_bits_hold() -> None:
    arrays = draw(4, 8), draw(8, 8), draw(8)
    exact, rounded = computed(LAYERS, *arrays), computed(LAYERS, *arrays, compat_precision="float16")
    assert rounded.dtype == np.float32
    assert (rounded != exact).any()
    np.testing.assert_allclose(rounded, exact, rtol=1e-2, atol=1e-2)


ATTENTION = """(%q: f32[2, 5, 8], %k: f32[2, 7, 8], %v: f32[2, 7, 6]{mask}):
  %0: f32[2, 5, 6] = attention(%q, %k, %v{given})
  return %0
"""
MASKS = {
    "none": ("", "", None),
    "scale": ("", ", scale=0.5", None),
    "causal": ("", ", is_causal=True", None),
    "bool": (", %m: bool[5, 7]", ", %m", np.arange(35).reshape(5, 7) % 3 > 0),
    "float": (", %m: f32[2, 1, 7]", ", %m", draw(2, 1, 7)),
    "empty row": (", %m: bool[5, 7]", ", %m", np.arange(35).reshape(5, 7) > 9),
}


@pytest.mark.parametrize("name", MASKS)
def test_attention_is_products_and_a_softmax_where_no_kernel_of_its_own_is_wanted(name) -> None:
    declared, given, mask = MASKS[name]
    text = ATTENTION.format(mask=declared, given=given)
    made = ComposeAttention().run(graph_of(text), make_context("cpu", {"compat.attention": False}))
    verify_graph(made)
    assert [node.op.name for node in made.nodes].count("matmul") == 2
    assert "attention" not in [node.op.name for node in made.nodes]
    arrays = [draw(2, 5, 8), draw(2, 7, 8), draw(2, 7, 6), *([] if mask is None else [mask])]
    right, composed = computed(text, *arrays), computed(text, *arrays, compat_attention=False)
    np.testing.assert_allclose(composed, right, rtol=1e-5, atol=1e-6)


def test_attention_is_one_kernel_where_nothing_is_said() -> None:
    graph = graph_of(ATTENTION.format(mask="", given=""))
    assert ComposeAttention().run(graph, make_context("cpu")) is graph


def test_grouped_queries_stay_one_operator() -> None:
    graph = graph_of("""(%q: f32[4, 5, 8], %k: f32[2, 7, 8]):
      %0: f32[4, 5, 8] = attention(%q, %k, %k, enable_gqa=True)
      return %0
    """)
    assert ComposeAttention().run(graph, make_context("cpu", {"compat.attention": False})) is graph
