"""Which tasks write into the memory of an input, and when results that overwrite an input are written."""

import pytest

from hidet.fusion.fuse import fuse


@pytest.fixture
def cut(ctx, parse):
    """`cut(text)`: the graph's tasks."""
    return lambda text: fuse(parse(text), ctx)


def shared(task_graph):
    """(task, output, input) names of tensors that share memory."""
    return [
        (task.name, task.outputs[o].value.name, task.inputs[i].value.name)
        for task in task_graph.tasks
        for o, i in task.in_place
    ]


def names(task_graph):
    return [task.name for task in task_graph.tasks]


def test_an_update_of_a_replaced_input_is_written_in_place(cut):
    tasks = cut("""
        graph g(%cache: f32[8, 64, 16], %row: f32[8, 1, 16]):
          %0: f32[8, 64, 16] = slice_scatter(%cache, %row, starts=[None, 3, None], stops=[None, 4, None])
          return %0
          mutates 0 <- 0
    """)
    assert shared(tasks) == [("slice_scatter", "0", "cache")]


def test_a_chain_of_updates_is_written_in_place(cut):
    tasks = cut("""
        graph g(%cache: f32[2, 64, 16], %k: f32[64, 16], %v: f32[64, 16]):
          %0: f32[2, 64, 16] = select_scatter(%cache, %k, axis=0, index=0)
          %1: f32[2, 64, 16] = select_scatter(%0, %v, axis=0, index=1)
          return %1
          mutates 0 <- 0
    """)
    assert shared(tasks) == [("select_scatter", "0", "cache"), ("select_scatter", "1", "0")]


def test_rows_of_a_part_are_written_where_the_part_lies(cut):
    tasks = cut("""
        graph g(%cache: f32[2, 4, 64, 16], %k: f32[4, 1, 16], %v: f32[4, 1, 16], %at: i64[1]):
          %0: f32[4, 64, 16] = select(%cache, axis=0, index=0)
          %1: f32[4, 64, 16] = index_put(%0, %k, none, %at)
          %2: f32[2, 4, 64, 16] = select_scatter(%cache, %1, axis=0, index=0)
          %3: f32[4, 64, 16] = select(%2, axis=0, index=1)
          %4: f32[4, 64, 16] = index_put(%3, %v, none, %at)
          %5: f32[2, 4, 64, 16] = select_scatter(%2, %4, axis=0, index=1)
          return %5
          mutates 0 <- 0
    """)
    assert shared(tasks) == [("index_put", "1", "0"), ("index_put", "4", "3")]
    assert names(tasks) == ["index_put", "index_put"]


def test_rows_of_a_part_of_a_part_are_written_where_it_lies(cut):
    tasks = cut("""
        graph g(%cache: f32[2, 4, 64, 16], %k: f32[64, 16], %at: i64[64, 16]):
          %0: f32[4, 64, 16] = select(%cache, axis=0, index=1)
          %1: f32[64, 16] = select(%0, axis=0, index=3)
          %2: f32[64, 16] = scatter(%1, %at, %k, axis=0)
          %3: f32[4, 64, 16] = select_scatter(%0, %2, axis=0, index=3)
          %4: f32[2, 4, 64, 16] = select_scatter(%cache, %3, axis=0, index=1)
          return %4
          mutates 0 <- 0
    """)
    assert names(tasks) == ["scatter"]
    assert shared(tasks) == [("scatter", "2", "1")]


@pytest.mark.parametrize(
    ("put_back", "results"),
    [
        ("select_scatter(%cache, %1, axis=0, index=1)", "%2"),
        ("select_scatter(%other, %1, axis=0, index=0)", "%2"),
        ("select_scatter(%cache, %1, axis=0, index=0)", "%2, %1"),
    ],
    ids=["put elsewhere", "put into another tensor", "read by others"],
)
def test_a_part_that_is_needed_elsewhere_is_copied(cut, put_back, results):
    tasks = cut(f"""
        graph g(%cache: f32[2, 64, 16], %other: f32[2, 64, 16], %k: f32[1, 16], %at: i64[1]):
          %0: f32[64, 16] = select(%cache, axis=0, index=0)
          %1: f32[64, 16] = index_put(%0, %k, %at)
          %2: f32[2, 64, 16] = {put_back}
          return {results}
          mutates 0 <- 0
    """)
    assert "select_scatter" in names(tasks)
    assert ("index_put", "1", "0") not in shared(tasks)


def test_a_part_is_copied_where_the_old_whole_is_read_later(cut):
    tasks = cut("""
        graph g(%cache: f32[2, 16, 16], %k: f32[1, 16], %at: i64[1]):
          %0: f32[16, 16] = select(%cache, axis=0, index=0)
          %1: f32[16, 16] = index_put(%0, %k, %at)
          %2: f32[2, 16, 16] = select_scatter(%cache, %1, axis=0, index=0)
          %3: f32[2, 16, 16] = matmul(%2, %cache)
          return %3, %2
          mutates 0 <- 1
    """)
    assert ("index_put", "1", "0") not in shared(tasks)


def test_an_input_that_is_not_replaced_is_copied_first(cut):
    tasks = cut("""
        graph g(%cache: f32[8, 64, 16], %row: f32[8, 1, 16]):
          %0: f32[8, 64, 16] = slice_scatter(%cache, %row, starts=[None, 3, None], stops=[None, 4, None])
          return %0
    """)
    assert shared(tasks) == []


def test_a_temporary_is_overwritten_by_its_last_reader(cut):
    tasks = cut("""
        graph g(%a: f32[4, 8], %b: f32[8, 8], %row: f32[8]):
          %0: f32[4, 8] = matmul(%a, %b)
          %1: f32[4, 8] = select_scatter(%0, %row, axis=0, index=1)
          return %1
    """)
    assert shared(tasks) == [("select_scatter", "1", "0")]


def test_a_temporary_with_a_later_reader_is_copied(cut):
    tasks = cut("""
        graph g(%a: f32[4, 8], %b: f32[8, 8], %row: f32[8]):
          %0: f32[4, 8] = matmul(%a, %b)
          %1: f32[4, 8] = select_scatter(%0, %row, axis=0, index=1)
          %2: f32[8, 4] = transpose(%0, perm=[1, 0])
          %3: f32[4, 4] = matmul(%1, %2)
          return %3
    """)
    assert shared(tasks) == []


def test_an_update_computed_from_the_same_memory_is_not_written_in_place(cut):
    tasks = cut("""
        graph g(%x: f32[4, 8]):
          %0: f32[2, 8] = slice(%x, starts=[0, None], stops=[2, None])
          %1: f32[4, 8] = slice_scatter(%x, %0, starts=[1, None], stops=[3, None])
          return %1
          mutates 0 <- 0
    """)
    assert shared(tasks) == []
    assert names(tasks) == ["slice_scatter", "copy"]


def test_a_scatter_of_several_stages_is_not_written_in_place(cut):
    tasks = cut("""
        graph g(%x: bf16[4, 8], %i: i64[2, 8], %v: bf16[2, 8]):
          %0: bf16[4, 8] = scatter(%x, %i, %v, axis=0, reduce='sum')
          return %0
          mutates 0 <- 0
    """)
    assert shared(tasks) == []


def test_a_value_computed_inside_the_task_is_no_memory_to_reuse(cut):
    tasks = cut("""
        graph g(%x: f32[4, 8], %row: f32[8]):
          %0: f32[4, 8] = neg(%x)
          %1: f32[4, 8] = select_scatter(%0, %row, axis=0, index=1)
          return %1
    """)
    assert names(tasks) == ["select_scatter_fused2"]
    assert shared(tasks) == []


def test_an_element_wise_update_overwrites_its_input_directly(cut):
    tasks = cut("""
        graph g(%count: f32[8], %x: f32[8]):
          %0: f32[8] = add(%count, %x)
          return %0
          mutates 0 <- 0
    """)
    assert names(tasks) == ["add"]


@pytest.mark.parametrize(
    "line",
    ["%0: f32[8, 8] = flip(%x, axes=[0])", "%0: f32[8, 8] = matmul(%x, %w)", "%0: f32[8, 8] = softmax(%x)"],
    ids=["reads other elements", "matmul", "anchor"],
)
def test_a_result_computed_from_other_elements_of_the_overwritten_input_is_copied_last(cut, line):
    tasks = cut(f"""
        graph g(%x: f32[8, 8], %w: f32[8, 8]):
          {line}
          return %0
          mutates 0 <- 0
    """)
    assert names(tasks)[1:] == ["copy"]


def test_an_input_with_a_later_reader_is_overwritten_last(cut):
    tasks = cut("""
        graph g(%x: f32[8, 8], %w: f32[8, 8]):
          %0: f32[8, 8] = add(%x, %w)
          %1: f32[8, 8] = transpose(%x, perm=[1, 0])
          %2: f32[8, 8] = matmul(%1, %w)
          return %2, %0
          mutates 0 <- 1
    """)
    assert names(tasks) == ["add", "matmul", "copy"]
