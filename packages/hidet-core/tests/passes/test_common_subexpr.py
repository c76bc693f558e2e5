"""Common sub-expressions and dead code."""

from dataclasses import replace

import pytest

from hidet import dtypes
from hidet.graph import GraphBuilder, TensorType
from hidet.passes.graph.common_subexpr import CommonSubexpr
from hidet.passes.graph.eliminate_dead import EliminateDead


@pytest.fixture
def numbered(becomes):
    """`numbered(before, after)`: checks what value numbering makes of a text."""
    return lambda before, after: becomes(CommonSubexpr(), before, after)


def test_equal_nodes_are_computed_once_and_so_are_their_readers(numbered):
    numbered(
        """
        graph g(%x: f64[3]):
          %0: f64[3] = exp(%x)
          %1: f64[3] = exp(%x)
          %2: f64[3] = neg(%0)
          %3: f64[3] = neg(%1)
          %4: f64[3] = add(%2, %3)
          return %4
        """,
        """
        graph g(%x: f64[3]):
          %0: f64[3] = exp(%x)
          %2: f64[3] = neg(%0)
          %4: f64[3] = add(%2, %2)
          return %4
        """,
    )


def test_small_constants_of_equal_bits_are_one(numbered):
    numbered(
        """
        graph g(%x: f64[3]):
          const %a: f64[] = 0.5
          const %b: f64[] = 0.5
          const %c: f64[] = -0.5
          %0: f64[3] = mul(%x, %a)
          %1: f64[3] = mul(%x, %b)
          %2: f64[3] = mul(%x, %c)
          %3: f64[3] = add(%0, %1)
          %4: f64[3] = add(%3, %2)
          return %4
        """,
        """
        graph g(%x: f64[3]):
          const %a: f64[] = 0.5
          const %c: f64[] = -0.5
          %0: f64[3] = mul(%x, %a)
          %2: f64[3] = mul(%x, %c)
          %3: f64[3] = add(%0, %0)
          %4: f64[3] = add(%3, %2)
          return %4
        """,
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["const %a: f64[] = 0.0", "const %b: f64[] = -0.0", "%1: f64[3] = div(%x, %a)", "%2: f64[3] = div(%x, %b)"],
        ["%1: f64[3] = clamp(%x, min=0.0)", "%2: f64[3] = clamp(%x, min=-0.0)"],
        ["%1: f64[3]{2} = exp(%x)", "%2: f64[3] = exp(%x)"],
    ],
    ids=["constants of different signs", "attributes of different signs", "other strides"],
)
def test_nodes_that_differ_are_both_kept(numbered, lines):
    text = "".join(f"          {line}\n" for line in [*lines, "%3: f64[3] = copysign(%1, %2)"])
    whole = f"\n        graph g(%x: f64[3]):\n{text}          return %3\n"
    numbered(whole, whole)


@pytest.mark.parametrize("flags", [{"is_random": True}, {"has_effect": True}, {"kind": "eager"}])
def test_what_chance_or_another_framework_decides_is_kept(ctx, flags):
    spec = replace(ctx.registry.operators["neg"], name="strange", **flags)
    builder = GraphBuilder(ctx.registry.operators)
    x = builder.input(TensorType(dtypes.f32, (3,)))
    graph = builder.build([builder.emit("add", builder.emit(spec, x), builder.emit(spec, x))])
    assert CommonSubexpr().run(graph, ctx) is graph


def test_equal_outputs_keep_memory_of_their_own(numbered):
    text = """
        graph g(%x: f64[3]):
          %0: f64[3] = exp(%x)
          %1: f64[3] = exp(%x)
          return %0, %1
        """
    numbered(text, text)


def test_dead_nodes_and_constants_disappear(becomes):
    becomes(
        EliminateDead(),
        """
        graph g(%x: f64[3]):
          const %a: f64[] = 0.5
          %0: f64[3] = exp(%x)
          %1: f64[3] = mul(%0, %a)
          %2: f64[3] = neg(%x)
          return %2
        """,
        """
        graph g(%x: f64[3]):
          %2: f64[3] = neg(%x)
          return %2
        """,
    )


def test_values_that_are_returned_as_views_are_computed_apart(numbered):
    text = """
        graph g(%x: f64[4]):
          %0: f64[4] = exp(%x)
          %1: f64[4] = exp(%x)
          %2: f64[2, 2] = reshape(%1, shape=[2, 2])
          %3: f64[2, 2] = transpose(%2, perm=[1, 0])
          return %0, %3
        """
    numbered(text, text)


def test_a_value_that_is_returned_as_a_view_is_computed_once_with_one_that_is_not_returned(numbered):
    numbered(
        """
        graph g(%x: f64[4]):
          %0: f64[4] = exp(%x)
          %1: f64[4] = exp(%x)
          %2: f64[4] = exp(%x)
          %3: f64[4] = neg(%0)
          %4: f64[2, 2] = reshape(%1, shape=[2, 2])
          %5: f64[4, 1] = reshape(%2, shape=[4, 1])
          return %3, %4, %5
        """,
        """
        graph g(%x: f64[4]):
          %0: f64[4] = exp(%x)
          %2: f64[4] = exp(%x)
          %3: f64[4] = neg(%0)
          %4: f64[2, 2] = reshape(%0, shape=[2, 2])
          %5: f64[4, 1] = reshape(%2, shape=[4, 1])
          return %3, %4, %5
        """,
    )
