"""Memory order of values around convolutions, and of attention results."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hidet.passes.graph.assign_layout import AssignLayout
from hidet.passes.graph.attention_layout import AttentionLayout


@pytest.fixture
def assigned(becomes):
    """`assigned(before, after)`: checks the strides that values get."""
    return lambda before, after: becomes(AssignLayout(), before, after)


def test_a_convolution_and_what_is_computed_from_it_lie_channels_last(assigned):
    assigned(
        """
        graph g(%x: f64[1, 2, 6, 6], param %w: f64[4, 2, 3, 3], %r: f64[1, 4, 6, 6], %s: f64[4, 1, 1]):
          %0: f64[1, 4, 6, 6] = conv(%x, %w, padding=1)
          %1: f64[1, 4, 6, 6] = add(%0, %r)
          %2: f64[1, 4, 6, 6] = mul(%s, %1)
          %3: f64[1, 4, 3, 3] = max_pool(%2, kernel=[2, 2], stride=[2, 2])
          %4: f64[1, 8, 3, 3] = concat(%3, %3, axis=1)
          %5: f64[1, 8, 3, 3] = relu(%4)
          return %5
        """,
        """
        graph g(%x: f64[1, 2, 6, 6], param %w: f64[4, 2, 3, 3], %r: f64[1, 4, 6, 6], %s: f64[4, 1, 1]):
          %0: f64[1, 4, 6, 6]{144, 1, 24, 4} = conv(%x, %w, padding=1)
          %1: f64[1, 4, 6, 6]{144, 1, 24, 4} = add(%0, %r)
          %2: f64[1, 4, 6, 6]{144, 1, 24, 4} = mul(%s, %1)
          %3: f64[1, 4, 3, 3]{36, 1, 12, 4} = max_pool(%2, kernel=[2, 2], stride=[2, 2])
          %4: f64[1, 8, 3, 3]{72, 1, 24, 8} = concat(%3, %3, axis=1)
          %5: f64[1, 8, 3, 3] = relu(%4)
          return %5
        """,
    )


def test_the_order_is_followed_through_views(assigned):
    assigned(
        """
        graph g(%x: f64[1, 2, 6, 6], param %w: f64[4, 2, 3, 3]):
          %0: f64[1, 4, 6, 6] = conv(%x, %w, padding=1)
          %1: f64[1, 6, 6, 4] = transpose(%0, perm=[0, 2, 3, 1])
          %2: f64[1, 6, 6, 4] = layer_norm(%1)
          %3: f64[1, 4, 6, 6] = transpose(%2, perm=[0, 3, 1, 2])
          %4: f64[1, 4, 6, 6] = relu(%3)
          %5: f64[1, 4, 6, 6] = neg(%4)
          return %5
        """,
        """
        graph g(%x: f64[1, 2, 6, 6], param %w: f64[4, 2, 3, 3]):
          %0: f64[1, 4, 6, 6]{144, 1, 24, 4} = conv(%x, %w, padding=1)
          %1: f64[1, 6, 6, 4] = transpose(%0, perm=[0, 2, 3, 1])
          %2: f64[1, 6, 6, 4] = layer_norm(%1)
          %3: f64[1, 4, 6, 6] = transpose(%2, perm=[0, 3, 1, 2])
          %4: f64[1, 4, 6, 6]{144, 1, 24, 4} = relu(%3)
          %5: f64[1, 4, 6, 6] = neg(%4)
          return %5
        """,
    )


def test_one_and_three_dimensional_images_and_symbolic_batches(assigned):
    assigned(
        """
        symbol s: 2..64
        graph g(%x: f64[s, 2, 6], param %w: f64[4, 2, 3], %y: f64[1, 2, 3, 3, 3], param %v: f64[4, 2, 1, 1, 1]):
          %0: f64[s, 4, 4] = conv(%x, %w)
          %1: f64[1, 4, 3, 3, 3] = conv(%y, %v)
          %2: f64[s, 4, 4] = neg(%0)
          %3: f64[1, 4, 3, 3, 3] = neg(%1)
          return %2, %3
        """,
        """
        symbol s: 2..64
        graph g(%x: f64[s, 2, 6], param %w: f64[4, 2, 3], %y: f64[1, 2, 3, 3, 3], param %v: f64[4, 2, 1, 1, 1]):
          %0: f64[s, 4, 4]{16, 1, 4} = conv(%x, %w)
          %1: f64[1, 4, 3, 3, 3]{108, 1, 36, 12, 4} = conv(%y, %v)
          %2: f64[s, 4, 4] = neg(%0)
          %3: f64[1, 4, 3, 3, 3] = neg(%1)
          return %2, %3
        """,
    )


def test_graphs_without_convolutions_and_targets_that_do_not_care_change_nothing(ctx, parse):
    pooled = parse("""
        graph g(%x: f64[1, 2, 6, 6]):
          %0: f64[1, 2, 5, 5] = max_pool(%x, kernel=[2, 2], stride=[1, 1])
          %1: f64[1, 2, 5, 5] = relu(%0)
          return %1
    """)
    assert AssignLayout().run(pooled, ctx) is pooled
    convolved = parse("""
        graph g(%x: f64[1, 2, 6, 6], param %w: f64[4, 2, 3, 3]):
          %0: f64[1, 4, 4, 4] = conv(%x, %w)
          %1: f64[1, 4, 4, 4] = relu(%0)
          return %1
    """)
    indifferent = replace(ctx, target=SimpleNamespace(name="none", prefers_channels_last=False))
    assert AssignLayout().run(convolved, indifferent) is convolved


def test_attention_results_lie_by_position(becomes):
    becomes(
        AttentionLayout(),
        """
        graph g(%q: f64[2, 3, 5, 4]):
          %0: f64[2, 3, 5, 4] = attention(%q, %q, %q)
          %1: f64[2, 5, 3, 4] = transpose(%0, perm=[0, 2, 1, 3])
          %2: f64[2, 5, 12] = reshape(%1, shape=[2, 5, 12])
          %3: f64[2, 3, 5, 4] = attention(%q, %q, %q)
          return %2, %3
        """,
        """
        graph g(%q: f64[2, 3, 5, 4]):
          %0: f64[2, 3, 5, 4]{60, 4, 12, 1} = attention(%q, %q, %q)
          %1: f64[2, 5, 3, 4] = transpose(%0, perm=[0, 2, 1, 3])
          %2: f64[2, 5, 12] = reshape(%1, shape=[2, 5, 12])
          %3: f64[2, 3, 5, 4] = attention(%q, %q, %q)
          return %2, %3
        """,
    )


def test_results_of_windows_lie_by_position(ctx, parse):
    graph = parse("""
        graph g(%q: f64[2, 7, 3, 5, 4]):
          %0: f64[2, 7, 3, 5, 4] = attention(%q, %q, %q)
          %1: f64[2, 7, 3, 5, 4] = relu(%0)
          return %1
    """)
    (attended, _) = AttentionLayout().run(graph, ctx).nodes
    assert attended.outputs[0].tensor.element_strides == (420, 60, 4, 12, 1)
