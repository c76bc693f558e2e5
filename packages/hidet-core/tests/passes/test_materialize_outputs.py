"""Which outputs are copied, so that nobody is handed memory that belongs to somebody else."""

import pytest

from hidet.passes.graph.materialize_outputs import MaterializeOutputs


@pytest.fixture
def materialized(becomes):
    """`materialized(before, after)`: checks the copies that are put in."""
    return lambda before, after: becomes(MaterializeOutputs(), before, after)


def test_a_view_of_an_input_is_copied_once(materialized):
    materialized(
        """
        graph g(%x: f64[2, 3]):
          %0: f64[3, 2] = transpose(%x, perm=[1, 0])
          return %0, %0
        """,
        """
        graph g(%x: f64[2, 3]):
          %0: f64[3, 2] = transpose(%x, perm=[1, 0])
          %1: f64[3, 2] = copy(%0)
          return %1, %1
        """,
    )


def test_views_of_a_computed_value_share_its_memory(materialized):
    text = """
        graph g(%x: f64[2, 3]):
          %0: f64[2, 3] = neg(%x)
          %1: f64[3, 2] = transpose(%0, perm=[1, 0])
          return %0, %1
        """
    materialized(text, text)


def test_a_copy_keeps_the_layout_that_the_output_has(materialized):
    materialized(
        """
        graph g(%x: f64[2, 3]{1, 2}):
          return %x
        """,
        """
        graph g(%x: f64[2, 3]{1, 2}):
          %0: f64[2, 3]{1, 2} = copy(%x)
          return %0
        """,
    )


def test_what_overwrites_an_input_and_is_returned_too_is_copied_into_it(materialized):
    materialized(
        """
        graph g(%x: f64[3]):
          %0: f64[3] = neg(%x)
          return %0, %0
          mutates 0 <- 1
        """,
        """
        graph g(%x: f64[3]):
          %0: f64[3] = neg(%x)
          %1: f64[3] = copy(%0)
          return %0, %1
          mutates 0 <- 1
        """,
    )


def test_what_overwrites_an_input_and_is_returned_as_a_view_is_copied_into_it(materialized):
    materialized(
        """
        graph g(%x: f64[4]):
          %0: f64[4] = neg(%x)
          %1: f64[2, 2] = reshape(%0, shape=[2, 2])
          return %1, %0
          mutates 0 <- 1
        """,
        """
        graph g(%x: f64[4]):
          %0: f64[4] = neg(%x)
          %1: f64[2, 2] = reshape(%0, shape=[2, 2])
          %2: f64[4] = copy(%0)
          return %1, %2
          mutates 0 <- 1
        """,
    )


def test_a_view_cannot_overwrite_an_input(materialized):
    materialized(
        """
        graph g(%x: f64[4, 2], %y: f64[2, 4]):
          %0: f64[2, 4] = neg(%y)
          %1: f64[4, 2] = transpose(%0, perm=[1, 0])
          return %1
          mutates 0 <- 0
        """,
        """
        graph g(%x: f64[4, 2], %y: f64[2, 4]):
          %0: f64[2, 4] = neg(%y)
          %1: f64[4, 2] = transpose(%0, perm=[1, 0])
          %2: f64[4, 2] = copy(%1)
          return %2
          mutates 0 <- 0
        """,
    )


def test_an_input_is_overwritten_in_its_own_layout(ctx, parse):
    graph = parse("""
        graph g(%x: f64[4, 2]{1, 4}):
          %0: f64[4, 2] = neg(%x)
          return %0
          mutates 0 <- 0
    """)
    after = MaterializeOutputs().run(graph, ctx)
    assert after.outputs[0].type == after.inputs[0].type
    assert [node.op.name for node in after.nodes] == ["neg", "copy"]
