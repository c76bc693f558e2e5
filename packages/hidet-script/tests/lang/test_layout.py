"""Layouts: where elements lie."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.errors import ShapeError
from hidet.ir import build
from hidet.ir.expr import Const, Var
from hidet.ir.visit import substitute
from hidet.lang.layout import column_major, local_layout, row_major, strided, strided_layout

many = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def layouts(draw):
    made = None
    for _ in range(draw(st.integers(1, 3))):
        shape = [draw(st.integers(1, 4)) for _ in range(2)]
        factor = draw(st.sampled_from([row_major, column_major, local_layout]))(*shape)
        made = factor if made is None else made * factor
    return made


def indices(layout):
    return product(*map(range, layout.shape))


@many
@given(layouts())
def test_elements_lie_within_the_size_and_every_place_is_used(layout):
    assert {layout(*index) for index in indices(layout)} == set(range(layout.size))


@many
@given(layouts(), st.data())
def test_expressions_give_the_same_places(layout, data):
    variables = [Var(name, dtypes.i64) for name in "ij"]
    formula = build.index(layout(*variables))
    index = data.draw(st.sampled_from(list(indices(layout))))
    place = substitute(formula, {var: build.index(i) for var, i in zip(variables, index, strict=True)})
    assert isinstance(place, Const)
    assert place.value == layout(*index)


@many
@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))
def test_a_swizzle_moves_elements_within_their_row_only(rows, columns, log_step):
    plain, width = row_major(2**rows, 2**columns), 2**columns
    moved = plain.swizzle(1, 0, log_step)
    assert moved.size == plain.size
    for row in range(2**rows):
        places = [moved(row, j) - plain(row, 0) for j in range(width)]
        assert places == [j ^ (row >> log_step) % width for j in range(width)]
        assert sorted(places) == list(range(width))


def test_the_standard_layouts():
    assert row_major(2, 3)(1, 2) == 5
    assert column_major([2, 3])(1, 2) == 5
    assert column_major(2, 3)(1, 0) == 1
    assert strided_layout([2, 3, 4], ranks=[0, 2, 1])(0, 1, 0) == 1
    assert strided([2, 3], [10, 2])(1, 2) == 14
    assert strided([2, 3], [10, 2]).size == 15
    threads = local_layout(8, 4) * row_major(2, 2)
    assert (threads.shape, threads.size, threads(15, 6)) == ((16, 8), 4, 2)
    assert str(threads.swizzle(1, 0, 1)) == "(local_layout(8, 4) * row_major(2, 2)).swizzle(1, 0, 1)"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: row_major(2) * row_major(2, 2), "different ranks"),
        (lambda: row_major(2, 2)(1), "takes 2 indices, got 1"),
        (lambda: row_major(2, 3).swizzle(1, 0), "extent 3: a swizzle needs a power of two"),
        (lambda: row_major(2, 4).swizzle(1, 1), "does not name two dims"),
        (lambda: row_major("x"), "takes extents, got 'x'"),
        (lambda: strided([2], [1, 2]), "2 strides for 1 extents"),
        (lambda: strided_layout([2, 2], ranks=[0, 0]), "permutation"),
    ],
)
def test_what_does_not_fit_is_refused(make, problem):
    with pytest.raises(ShapeError, match=problem):
        make()
