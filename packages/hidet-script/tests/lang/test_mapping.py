"""Task mappings: who does what, in which order, and the index arithmetic that says so."""

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.errors import ShapeError
from hidet.ir import build
from hidet.ir.expr import Const, Var
from hidet.ir.printer import print_expr
from hidet.ir.visit import substitute
from hidet.lang.mapping import (
    TaskMapping,
    auto_map,
    chain,
    column_repeat,
    column_spatial,
    predicated_auto_map,
    repeat,
    spatial,
)

many = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def mappings(draw, rank=None):
    rank = draw(st.integers(1, 3)) if rank is None else rank
    made = None
    for _ in range(draw(st.integers(1, 3))):
        shape = [draw(st.integers(1, 4)) for _ in range(rank)]
        factor = draw(st.sampled_from([spatial, repeat]))(*shape, ranks=draw(st.permutations(range(rank))))
        made = factor if made is None else made * factor
    return made


def by_definition(mapping, worker):
    """The tasks of a product, as the paper defines them, from those of its factors."""
    *outer, last = mapping.factors
    if not outer:
        return mapping.map(worker)
    first, second = TaskMapping(tuple(outer)), TaskMapping((last,))
    return [
        tuple(a * extent + b for a, extent, b in zip(t1, second.task_shape, t2, strict=True))
        for t1 in by_definition(first, worker // second.num_workers)
        for t2 in second.map(worker % second.num_workers)
    ]


@many
@given(mappings())
def test_every_task_is_done_exactly_once(mapping):
    done = Counter(task for worker in range(mapping.num_workers) for task in mapping.map(worker))
    assert done == Counter(product(*map(range, mapping.task_shape)))


@many
@given(mappings())
def test_a_product_does_what_the_paper_says(mapping):
    for worker in range(mapping.num_workers):
        assert mapping.map(worker) == by_definition(mapping, worker)


@many
@given(mappings(2), mappings(2), mappings(2))
def test_products_are_associative_and_multiply_workers_and_tasks(a, b, c):
    assert (a * b) * c == a * (b * c)
    assert (a * b).num_workers == a.num_workers * b.num_workers
    assert (a * b).task_shape == tuple(x * y for x, y in zip(a.task_shape, b.task_shape, strict=True))


@many
@given(mappings(), st.data())
def test_expressions_of_workers_and_counters_give_the_same_tasks(mapping, data):
    worker = Var("w", dtypes.i64)
    counters = [Var(f"i{n}", dtypes.i64) for n, _ in enumerate(mapping.loops())]
    formulas = [build.index(index) for index in mapping.task(worker, counters)]
    number = data.draw(st.integers(0, mapping.num_workers - 1))
    turns = product(*(range(loop.extent) for loop in mapping.loops()))
    for task, values in zip(mapping.map(number), turns, strict=True):
        bound = {var: build.index(value) for var, value in zip([worker, *counters], [number, *values], strict=True)}
        found = [substitute(formula, bound) for formula in formulas]
        assert all(isinstance(f, Const) for f in found)
        assert tuple(f.value for f in found) == task


def test_neighbouring_workers_have_neighbouring_tasks_of_the_last_dim():
    assert spatial(2, 3).map(1) == [(0, 1)]
    assert column_spatial(2, 3).map(1) == [(1, 0)]
    assert repeat(2, 2).map(0) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert column_repeat(2, 2).map(0) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert (spatial(2, 2) * repeat(1, 2)).map(3) == [(1, 2), (1, 3)]
    assert (repeat(1, 2) * spatial(2, 2)).map(3) == [(1, 1), (1, 3)]


def test_methods_chain_as_products():
    assert spatial(2, 4).repeat(2, 2).spatial(4, 8) == spatial(2, 4) * repeat(2, 2) * spatial(4, 8)


def test_index_arithmetic_has_nothing_superfluous():
    worker, i, j = (Var(name, dtypes.i64) for name in "wij")
    formulas = (spatial(4, 8) * repeat(2, 2)).task(worker, [i, j])
    assert [print_expr(f) for f in formulas] == ["w // 8 * 2 + i", "w % 8 * 2 + j"]
    assert [print_expr(f) for f in spatial(32).task(worker, [])] == ["w"]


@many
@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 64), st.data())
def test_auto_map_shares_tasks_equally_whenever_that_is_possible(shape, workers, data):
    ranks = data.draw(st.permutations(range(len(shape))))
    if prod(shape) % workers:
        with pytest.raises(ShapeError, match="cannot be shared equally"):
            auto_map(*shape, workers=workers, ranks=ranks)
        return
    mapping = auto_map(*shape, workers=workers, ranks=ranks)
    assert mapping.num_workers == workers
    assert mapping.task_shape == tuple(shape)


def test_auto_map_puts_neighbours_on_contiguous_tasks():
    assert str(auto_map(8, 64, workers=128)) == "repeat(4, 1) * spatial(2, 64)"
    assert str(auto_map(64, 8, workers=128, ranks=[1, 0])) == "column_repeat(1, 4) * column_spatial(64, 2)"
    assert repr(spatial(4, 8) * repeat(2, 2)) == "spatial(4, 8) * repeat(2, 2)"


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        (spatial(4, 8) * repeat(2, 2), "spatial(4, 8) * repeat(2, 2)"),
        (column_spatial(4, 8) * column_repeat(1, 2), "column_spatial(4, 8) * column_repeat(1, 2)"),
        (spatial(2, 3, 4, ranks=[0, 2, 1]), "spatial(2, 3, 4, ranks=[0, 2, 1])"),
        (repeat(2, 2, attrs="u."), "repeat(2, 2, attrs='u.')"),
        (spatial(32), "spatial(32)"),
    ],
)
def test_mappings_print_as_they_are_written(mapping, text):
    assert str(mapping) == text


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: spatial(2) * repeat(2, 2), r"spatial\(2\) has 1 dims and repeat\(2, 2\) has 2"),
        (lambda: spatial(), "at least one extent"),
        (lambda: spatial(0, 2), "positive integers known at build time, got 0"),
        (lambda: spatial(2, ranks=[1]), "permutation of 0 to 0"),
        (lambda: repeat(2, 2, attrs="x"), "must have one letter for each of 2 loops"),
        (lambda: spatial(4).map(4), "workers 0 to 3, not 4"),
        (lambda: repeat(2).single_task_of(0), "has 2 tasks, expected one"),
        (lambda: list(spatial(4).on(Var("w", dtypes.i64))), "known at run time only"),
    ],
)
def test_what_does_not_fit_is_refused(make, problem):
    with pytest.raises(ShapeError, match=problem):
        make()


def test_python_loops_over_the_tasks_of_a_worker():
    assert list(repeat(3).on(0)) == [0, 1, 2]
    assert list(repeat(3).on(0, bind_tuple=True)) == [(0,), (1,), (2,)]
    assert [i + j for i, j in spatial(2, 2).on(3)] == [2]
    assert spatial(2, 4).single_task_of(5) == (1, 1)


@pytest.mark.parametrize(("shape", "workers"), [((8, 64), 128), ((6, 10), 128), ((3, 7), 4), ((5,), 32), ((16, 3), 10)])
def test_a_predicated_mapping_covers_each_task_once_by_the_workers_that_have_any(shape, workers):
    mapping, has_tasks = predicated_auto_map(*shape, workers=workers)
    working = [worker for worker in range(workers) if has_tasks(worker)]
    tasks = [task for worker in working for task in mapping.map(worker)]
    assert sorted(tasks) == list(product(*map(range, shape)))
    assert mapping.task_shape == shape


def test_a_chain_is_the_product():
    assert chain(spatial(4, 1), repeat(2, 2), spatial(1, 8)) == spatial(4, 1) * repeat(2, 2) * spatial(1, 8)
    with pytest.raises(ShapeError, match="at least one mapping"):
        chain()
