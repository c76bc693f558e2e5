"""Which nodes run once, in the prepare graph, and what stays in the call."""

import pytest

from hidet.passes.graph.materialize_outputs import MaterializeOutputs
from hidet.passes.graph.split_prepare import SplitPrepare


@pytest.fixture
def split(becomes):
    """`split(before, after)`: checks what becomes of an indented text."""
    return lambda before, after: becomes(SplitPrepare(), before, after)


def test_work_on_constants_is_prepared_and_work_on_parameters_stays(split):
    split(
        """
        graph g(%x: f64[4], param %v: f64[4]):
          const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]
          const %c: f64[] = 2.0
          %0: f64[4] = mul(%w, %c)
          %1: f64[4] = exp(%0)
          %2: f64[4] = mul(%x, %1)
          %3: f64[4] = exp(%v)
          %4: f64[4] = mul(%2, %3)
          return %4
        """,
        """
        graph g(%x: f64[4], param %v: f64[4]):
          prepare %1: f64[4]
            graph p():
              const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]
              const %c: f64[] = 2.0
              %0: f64[4] = mul(%w, %c)
              %1: f64[4] = exp(%0)
              return %1
          %2: f64[4] = mul(%x, %1)
          %3: f64[4] = exp(%v)
          %4: f64[4] = mul(%2, %3)
          return %4
        """,
    )


def test_views_of_constants_and_of_prepared_values_stay(split):
    split(
        """
        graph g(%x: f64[6]):
          const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
          %0: f64[3, 2] = transpose(%w, perm=[1, 0])
          %1: f64[3, 2] = exp(%0)
          %2: f64[6] = reshape(%1, shape=[6])
          %3: f64[6] = add(%x, %2)
          %4: f64[2] = select(%0, axis=0, index=0)
          return %3, %4
        """,
        """
        graph g(%x: f64[6]):
          const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
          prepare %1: f64[3, 2]
            graph p():
              const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
              %0: f64[3, 2] = transpose(%w, perm=[1, 0])
              %1: f64[3, 2] = exp(%0)
              return %1
          %0: f64[3, 2] = transpose(%w, perm=[1, 0])
          %2: f64[6] = reshape(%1, shape=[6])
          %3: f64[6] = add(%x, %2)
          %4: f64[2] = select(%0, axis=0, index=0)
          return %3, %4
        """,
    )


def test_a_view_that_only_a_copy_can_make_is_prepared(split):
    split(
        """
        graph g(%x: f64[6]):
          const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
          %0: f64[3, 2] = transpose(%w, perm=[1, 0])
          %1: f64[6] = reshape(%0, shape=[6])
          %2: f64[6] = add(%x, %1)
          return %2
        """,
        """
        graph g(%x: f64[6]):
          const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
          prepare %1: f64[6]
            graph p():
              const %w: f64[2, 3] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]
              %0: f64[3, 2] = transpose(%w, perm=[1, 0])
              %1: f64[6] = reshape(%0, shape=[6])
              return %1
          %0: f64[3, 2] = transpose(%w, perm=[1, 0])
          %2: f64[6] = add(%x, %1)
          return %2
        """,
    )


def test_a_node_without_inputs_is_prepared_and_stays_for_other_readers(split):
    split(
        """
        graph g(%x: f64[4]):
          const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]
          %0: f64[4] = arange(stop=4, dtype=f64)
          %1: f64[4] = mul(%w, %0)
          %2: f64[4] = add(%x, %0)
          %3: f64[4] = mul(%2, %1)
          return %3
        """,
        """
        graph g(%x: f64[4]):
          prepare %1: f64[4]
            graph p():
              const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]
              %0: f64[4] = arange(stop=4, dtype=f64)
              %1: f64[4] = mul(%w, %0)
              return %1
          %0: f64[4] = arange(stop=4, dtype=f64)
          %2: f64[4] = add(%x, %0)
          %3: f64[4] = mul(%2, %1)
          return %3
        """,
    )


@pytest.mark.parametrize(
    "line",
    ["%0: f64[4] = bernoulli(%w, %seed, %seed)", "%0: f64[4] = add(%w, %x)"],
    ids=["random numbers", "inputs of a call"],
)
def test_what_may_differ_between_calls_stays(split, line):
    text = f"""
        graph g(%x: f64[4], %seed: i64[]):
          const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]
          {line}
          return %0
        """
    split(text, text)


def test_sizes_of_a_call_are_not_known_to_prepare(split):
    text = """
        symbol s: 2..64
        graph g(%x: f64[s]):
          const %w: f64[1] = [2.0]
          %0: f64[s] = arange(stop=dim(s), dtype=f64)
          %1: f64[s] = mul(%w, %0)
          %2: f64[s] = add(%x, %1)
          return %2
        """
    split(text, text)


def test_large_work_on_constants_alone_is_prepared(ctx, parse):
    graph = parse("""
        graph g(%x: f64[1000]):
          const %c: f64[1] = [2.0]
          %0: f64[1000, 1000] = expand(%c, shape=[1000, 1000])
          %1: f64[1000, 1000] = exp(%0)
          %2: f64[1000, 1000] = add(%x, %1)
          return %2
    """)
    after = SplitPrepare().run(graph, ctx)
    assert after.prepare is not None
    assert [node.op.name for node in after.prepare.graph.nodes] == ["expand", "exp"]


@pytest.mark.parametrize(
    "lines, result",
    [
        (["%0: f64[4] = exp(%w)"], "%0"),
        (["%0: f64[4] = exp(%w)", "%1: f64[2, 2] = reshape(%0, shape=[2, 2])"], "%1"),
        (["%0: f64[2, 2] = reshape(%w, shape=[2, 2])"], "%0"),
        ([], "%w"),
        ([], "%x"),
    ],
    ids=["prepared", "view of prepared", "view of a constant", "a constant", "an input"],
)
def test_outputs_get_memory_of_their_own(ctx, parse, same_result, lines, result):
    body = "".join(f"          {line}\n" for line in lines)
    weight = "          const %w: f64[4] = [1.0, -2.0, 0.5, 3.0]\n"
    graph = parse(f"\n        graph g(%x: f64[4]):\n{weight}{body}          return {result}\n")
    after = SplitPrepare().run(MaterializeOutputs().run(graph, ctx), ctx)
    same_result(graph, after)
    (node,) = (node for node in after.nodes if after.outputs[0] in node.outputs)
    assert node.op.name == "copy"
