"""Products with one matrix: results lie as the rows they are computed from, and rows in any order are one matrix."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet import dtypes
from hidet.cuda.testing.schedules import assert_right, context_for, sources_of
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.collapse_rows import CollapseRows
from hidet.gpu.schedules.operands import find_product
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.storage import find_views
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret


def parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def ordered(text: str) -> tuple[Graph, Graph]:
    """A graph before and after the pass; both mean the same."""
    graph = parsed(text)
    changed = CollapseRows().run(graph, context_for("sm_90a"))
    random = np.random.default_rng(0)
    given = [random.standard_normal(value.tensor.shape).astype(np.float16) for value in graph.inputs]
    for old, new in zip(interpret(graph, given), interpret(changed, given), strict=True):
        np.testing.assert_array_equal(old, new)
    assert [value.type for value in changed.outputs] == [value.type for value in graph.outputs]
    return graph, changed


def strides_of(graph: Graph, op: str) -> object:
    (node,) = (node for node in graph.nodes if node.op.name == op)
    return node.outputs[0].tensor.strides


LAYER = """
graph g(%x: f16[2, 5, 8], %w: f16[24, 8], %v: f16[8, 24]):
  %0: f16[5, 2, 8] = transpose(%x, perm=[1, 0, 2])
  %1: f16[5, 2, 24] = linear(%0, %w)
  %2: f16[5, 2, 24] = relu(%1)
  %3: f16[2, 5, 24] = transpose(%2, perm=[1, 0, 2])
  %4: f16[2, 5, 8] = linear(%3, %v)
  return %4
"""
PRODUCTS = [LAYER, LAYER.replace("linear(%0, %w)", "matmul(%0, %w, trans_b=True)")]


@pytest.mark.parametrize("text", PRODUCTS)
def test_products_with_one_matrix_and_what_is_element_wise_on_them_keep_the_order_of_rows(text) -> None:
    _, changed = ordered(text)
    assert changed.nodes[1].op.name in ("linear", "matmul")
    assert changed.nodes[1].outputs[0].tensor.strides == (24, 120, 1)
    assert strides_of(changed, "relu") == (24, 120, 1)


@pytest.mark.parametrize("text", PRODUCTS)
def test_such_products_are_one_matrix_each(text) -> None:
    ctx = context_for("sm_90a")
    for task in fuse(CollapseRows().run(parsed(text), ctx), ctx).tasks:
        product = find_product(task, dtypes.f16, dtypes.f32)
        assert product is not None and (product.batch, product.m) == (1, 10)


def test_rows_of_a_known_order_change_nothing() -> None:
    graph, changed = ordered("""
        graph g(%x: f16[2, 5, 8], %w: f16[24, 8]):
          %0: f16[2, 5, 24] = linear(%x, %w)
          %1: f16[2, 5, 24] = relu(%0)
          return %1
    """)
    assert changed is graph


READERS = {
    "the result of the graph": ("%1: f16[5, 2, 24] = relu(%0)", "%1"),
    "a reshape that merges the rows": ("%1: f16[10, 24] = reshape(%0, shape=[10, 24])", "%1"),
    "a product of matrices": ("%1: f16[5, 2, 2] = matmul(%0, %0, trans_b=True)", "%1"),
    "a sum over rows": ("%1: f16[24] = sum(%0, axes=[0, 1], keepdim=False)", "%1"),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_others_read_in_order_stays_there(reader) -> None:
    line, result = READERS[reader]
    graph, changed = ordered(f"""
        graph g(%x: f16[5, 2, 8]{{8, 40, 1}}, %w: f16[24, 8]):
          %0: f16[5, 2, 24] = linear(%x, %w)
          {line}
          return {result}
    """)
    is_last = reader == "the result of the graph"
    assert strides_of(changed, "linear") == ((24, 120, 1) if is_last else None)
    assert changed.outputs[0].tensor.is_contiguous
    assert len(find_views(changed)) == len(find_views(graph))


def test_heads_lie_next_to_each_other_where_they_are_merged() -> None:
    _, changed = ordered("""
        graph g(%p: f16[2, 3, 5, 7], %v: f16[2, 3, 7, 4], %w: f16[6, 12]):
          %0: f16[2, 3, 5, 4] = matmul(%p, %v)
          %1: f16[2, 5, 3, 4] = transpose(%0, perm=[0, 2, 1, 3])
          %2: f16[2, 5, 12] = reshape(%1, shape=[2, 5, 12])
          %3: f16[2, 5, 6] = linear(%2, %w)
          return %3
    """)
    assert strides_of(changed, "matmul") == (60, 4, 12, 1)
    assert len(find_views(changed)) == 2


def test_images_times_one_matrix_are_one_product() -> None:
    graph = parsed("""
        graph g(%x: f16[8, 19, 64], %w: f16[64, 32], %b: f16[32]):
          %0: f16[8, 19, 32] = matmul(%x, %w)
          %1: f16[8, 19, 32] = add(%0, %b)
          return %1
    """)
    (task,) = fuse(graph, context_for("sm_90a")).tasks
    product = find_product(task, dtypes.f16, dtypes.f32)
    assert product is not None and (product.batch, product.m) == (1, 152)


BATCHES = {
    "rows in another order than the result": ("f16[197, 8, 64]{64, 12608, 1}", "f16[197, 8, 32]", 8, 197),
    "a result in another order than rows": ("f16[197, 8, 64]", "f16[197, 8, 32]{32, 6304, 1}", 8, 197),
    "parts of images that lie apart": ("f16[4, 3, 50, 64]{12800, 3200, 64, 1}", "f16[4, 3, 50, 32]", 4, 150),
    "parts of rows that lie apart": ("f16[4, 50, 64]{6400, 64, 1}", "f16[4, 50, 32]", 4, 50),
}


@pytest.mark.parametrize("case", BATCHES)
def test_rows_that_are_no_single_matrix_are_few_large_ones(case) -> None:
    x, result, batch, rows = BATCHES[case]
    graph = parsed(f"""
        graph g(%x: {x}, %w: f16[32, 64]):
          %0: {result} = linear(%x, %w)
          return %0
    """)
    (task,) = fuse(graph, context_for("sm_90a")).tasks
    product = find_product(task, dtypes.f16, dtypes.f32)
    assert product is not None and (product.batch, product.m) == (batch, rows)


@pytest.mark.parametrize("result", ["{24, 456, 1}", ""], ids=["as its rows", "row-major"])
def test_layers_of_rows_in_another_order_are_right(result) -> None:
    assert_right(
        f"""
        graph g(%x: f16[19, 3, 32]{{32, 608, 1}}, %w: f16[24, 32], %b: f16[24], %y: f16[19, 3, 24]{{24, 456, 1}}):
          %0: f16[19, 3, 24]{result} = linear(%x, %w, %b)
          %1: f16[19, 3, 24]{result} = add(%0, %y)
          return %1
        """,
        "cuda.matmul",
        8e-3,
    )


HEADS = """
graph g(%q: f16[2, 3, 40, 16]{{1920, 16, 48, 1}}, %k: f16[2, 3, 24, 16]{{1152, 16, 48, 1}}, %m: f16[{mask}, 40, 24]):
  %0: f16[2, 3, 40, 24] = matmul(%q, %k, trans_b=True)
  %1: f16[2, 3, 40, 24] = add(%0, %m)
  return %1
"""


@pytest.mark.parametrize("mask", ["1, 3", "2, 1", "2, 3"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_of_heads_that_lie_between_positions_are_right(mask, arch) -> None:
    assert_right(HEADS.format(mask=mask), "cuda.matmul", 8e-3, arch=arch)


def test_other_types_find_such_heads_without_matrix_units() -> None:
    assert_right(
        """
        graph g(%q: f32[2, 3, 48, 16]{2304, 16, 48, 1}, %k: f32[2, 3, 64, 16]{3072, 16, 48, 1}):
          %0: f32[2, 3, 48, 64] = matmul(%q, %k, trans_b=True)
          return %0
        """,
        "cuda.matmul",
        1e-4,
    )


def test_tma_finds_heads_that_lie_between_positions() -> None:
    assert any("cuda_tensor_load_4d" in source for source in sources_of(HEADS.format(mask="2, 3"), "sm_90a"))


def test_axes_that_all_operands_walk_as_one_count_as_one() -> None:
    graph = parsed("""
        graph g(%a: f16[5, 2, 3, 40, 16], %b: f16[2, 3, 16, 24]{1152, 24, 72, 1}):
          %0: f16[5, 2, 3, 40, 24] = matmul(%a, %b)
          return %0
    """)
    (task,) = fuse(graph, context_for("sm_90a")).tasks
    product = find_product(task, dtypes.f16, dtypes.f32)
    assert product is not None
    assert product.batches == (5, 2, 3)
    assert product.b.batch_strides == (0, 1152, 24)
