"""Which nodes become one task."""

import pytest

from hidet.fusion.fuse import fuse


@pytest.fixture
def cut(ctx, parse):
    """`cut(text)`: for each task, the operators it computes."""
    return lambda text: [[node.op.name for node in task.nodes] for task in fuse(parse(text), ctx).tasks]


def test_element_wise_chains_are_one_task(cut):
    assert cut("""
        graph g(%x: f32[4, 8], %y: f32[8]):
          %0: f32[4, 8] = add(%x, %y)
          %1: f32[4, 8] = relu(%0)
          %2: f32[4, 8] = mul(%1, %x)
          return %2
    """) == [["add", "relu", "mul"]]


def test_views_between_element_wise_nodes_are_index_arithmetic(cut):
    assert cut("""
        graph g(%x: f32[4, 8], %y: f32[8, 4]):
          %0: f32[4, 8] = neg(%x)
          %1: f32[8, 4] = transpose(%0, perm=[1, 0])
          %2: f32[2, 4, 4] = reshape(%1, shape=[2, 4, 4])
          %3: f32[2, 4, 4] = exp(%2)
          return %3
    """) == [["neg", "transpose", "reshape", "exp"]]


def test_a_view_of_an_input_is_no_task(cut):
    assert cut("""
        graph g(%x: f32[4, 8]):
          %0: f32[8, 4] = transpose(%x, perm=[1, 0])
          %1: f32[8, 4] = neg(%0)
          return %1
    """) == [["neg"]]


def test_an_anchor_takes_the_element_wise_nodes_that_follow(cut):
    assert cut("""
        graph g(%a: f32[4, 8], %b: f32[8, 6], %c: f32[6]):
          %0: f32[4, 6] = matmul(%a, %b)
          %1: f32[4, 6] = add(%0, %c)
          %2: f32[4, 6] = relu(%1)
          return %2
    """) == [["matmul", "add", "relu"]]


def test_a_consumer_of_another_shape_is_another_task(cut):
    assert cut("""
        graph g(%a: f32[1, 8], %b: f32[8, 6], %c: f32[3, 6]):
          %0: f32[1, 6] = matmul(%a, %b)
          %1: f32[4, 6] = concat(%0, %c)
          return %1
    """) == [["matmul"], ["concat"]]


def test_nodes_without_inputs_are_computed_by_each_reader(cut):
    assert cut("""
        graph g(%x: f32[4, 8], %y: f32[8, 4]):
          %0: f32[8] = arange(stop=8, dtype=f32)
          %1: f32[8, 1] = unsqueeze(%0, axes=[1])
          %2: f32[4, 8] = add(%x, %0)
          %3: f32[8, 4] = add(%y, %1)
          return %2, %3
    """) == [["arange", "add"], ["arange", "unsqueeze", "add"]]


def test_nodes_without_inputs_are_stored_where_somebody_needs_their_memory(cut):
    assert cut("""
        graph g(%x: f32[4, 8]):
          %0: f32[8] = arange(stop=8, dtype=f32)
          %1: f32[4, 8] = add(%x, %0)
          return %1, %0
    """) == [["arange"], ["arange", "add"]]


def test_small_casts_of_inputs_are_computed_by_each_reader(cut):
    assert cut("""
        graph g(%m: i64[4, 8], %x: f32[4, 8]):
          %0: f32[4, 8] = cast(%m, dtype=f32)
          %1: f32[4, 8] = add(%x, %0)
          %2: f32[4, 8] = mul(%x, %0)
          return %1, %2
    """) == [["cast", "add"], ["cast", "mul"]]


def test_an_expensive_producer_of_several_reads_is_a_task(cut):
    assert cut("""
        graph g(%x: f32[4, 8]):
          %0: f32[4, 8] = exp(%x)
          %1: f32[4, 8] = softmax(%0)
          return %1
    """) == [["exp"], ["softmax"]]


def test_tensors_that_the_program_allocates_alone_are_known_to_be_aligned(ctx, parse):
    graph = parse("""
        graph g(%x: f32[4, 8], %w: f32[8, 8]):
          %0: f32[4, 8] = matmul(%x, %w)
          %1: f32[2, 8] = slice(%0, starts=[1, 0], stops=[3, 8], steps=[1, 1])
          %2: f32[2, 8] = matmul(%1, %w)
          %3: f32[2, 8] = matmul(%2, %w)
          return %3
    """)
    tasks = fuse(graph, ctx).tasks
    found = [[tensor.is_aligned for tensor in (*task.inputs, *task.outputs)] for task in tasks]
    assert found == [[False, False, True], [True, False, True], [True, False, False]]


def test_equal_tasks_know_alike_what_is_aligned(ctx, parse):
    graph = parse("""
        graph g(%x: f32[8, 8], %w: f32[8, 8]):
          %0: f32[8, 8] = matmul(%x, %w)
          %1: f32[8, 8] = matmul(%0, %w)
          %2: f32[8, 8] = matmul(%1, %w)
          %3: f32[8, 8] = matmul(%2, %w)
          return %3
    """)
    _, first, second, _ = fuse(graph, ctx).tasks
    assert first.key == second.key
    for task in (first, second):
        assert [tensor.is_aligned for tensor in (*task.inputs, *task.outputs)] == [True, False, True]


def test_inputs_are_aligned_where_a_call_may_copy_them(ctx, parse, monkeypatch):
    graph = parse("""
        symbol n: 1..
        graph g(%x: f32[n, 8], %turned: f32[8, n]{1, 8}, %gaps: f32[n, 8]{16, 1}, %one: f32[1, 1], %over: f32[n, 8]):
          %0: f32[8, n] = transpose(%x, perm=[1, 0])
          %1: f32[8, n] = add(%0, %turned)
          %2: f32[n, 8] = add(%gaps, %one)
          %3: f32[n, 8] = add(%over, %2)
          return %1, %3
          mutates 4 <- 1
    """)
    assert fuse(graph, ctx).aligned == frozenset()
    monkeypatch.setattr(ctx.target, "aligns_tensors", True, raising=False)
    fused = fuse(graph, ctx)
    assert {value.name for value in fused.aligned} == {"x", "turned"}
    known = {t.value.name: t.is_aligned for task in fused.tasks for t in (*task.inputs, *task.outputs)}
    assert known == {"0": True, "turned": True, "gaps": False, "one": False, "over": False, "1": True, "3": False}


@pytest.mark.parametrize(("start", "is_aligned"), [(4, True), (3, False)])
def test_a_view_is_aligned_as_far_in_as_it_begins(ctx, parse, start, is_aligned):
    graph = parse(f"""
        graph g(%x: f32[4, 8], %w: f32[8, 8], %v: f32[4, 4]):
          %0: f32[4, 8] = matmul(%x, %w)
          %1: f32[4, 4]{{8, 1}} = slice(%0, starts=[0, {start}], stops=[4, {start + 4}], steps=[1, 1])
          %2: f32[4, 4] = matmul(%1, %v)
          return %2
    """)
    assert fuse(graph, ctx).tasks[1].inputs[0].is_aligned == is_aligned


@pytest.mark.parametrize(("function", "kernels"), [("exp", 2), ("log1p", 2), ("tan", 2), ("sqrt", 1), ("neg", 1)])
def test_costly_functions_of_what_is_broadcast_are_computed_once(cut, function, kernels):
    tasks = cut(f"""
        graph g(%x: f32[8], %y: f32[64, 8]):
          %0: f32[8] = {function}(%x)
          %1: f32[64, 8] = add(%y, %0)
          return %1
    """)
    assert len(tasks) == kernels
