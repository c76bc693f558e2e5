"""Affine analysis of index expressions, and merging of axes that every operand walks as one."""

from __future__ import annotations

from hidet import dims
from hidet.ir import build
from hidet.schedule.affine import Affine, affine_index, affine_offset, collapse_axes

ROW, COLUMN, DEPTH = (build.size_var(name) for name in "ijk")


def test_sums_and_products_with_constants_are_affine() -> None:
    found = affine_index((ROW * 6 + COLUMN) * 2 - 5 + ROW)
    assert found is not None
    assert found.coefficients == {ROW: 13, COLUMN: 2}
    assert found.constant == -5


def test_symbolic_sizes_are_coefficients() -> None:
    n = dims.symbol("n", 1)
    found = affine_index(ROW * build.index(n) + COLUMN)
    assert found is not None
    assert found.coefficient(ROW) == n
    assert found.coefficient(DEPTH) == 0


def test_products_of_axes_and_divisions_are_not_affine() -> None:
    assert affine_index(build.binary("mul", ROW, COLUMN)) is None
    assert affine_index(build.binary("floordiv", ROW, 3)) is None


def test_terms_that_cancel_leave_no_coefficient() -> None:
    found = affine_index(ROW * 3 - ROW * 3 + COLUMN)
    assert found is not None
    assert found.coefficients == {COLUMN: 1}


def test_an_offset_scales_each_index_by_its_stride() -> None:
    found = affine_offset((ROW, COLUMN + 1), (10, 3))
    assert found == Affine({ROW: 10, COLUMN: 3}, 3)


def test_contiguous_axes_merge_into_one_loop() -> None:
    walk = Affine({ROW: 12, COLUMN: 4, DEPTH: 1}, 0)
    assert collapse_axes((ROW, COLUMN, DEPTH), (5, 3, 4), [walk, walk], frozenset()) == [[0, 1, 2]]


def test_a_broadcast_operand_keeps_its_axis_apart() -> None:
    dense, row = Affine({ROW: 12, COLUMN: 4, DEPTH: 1}, 0), Affine({DEPTH: 1}, 0)
    assert collapse_axes((ROW, COLUMN, DEPTH), (5, 3, 4), [dense, row], frozenset()) == [[0, 1], [2]]


def test_axes_of_extent_one_need_no_loop() -> None:
    assert collapse_axes((ROW, COLUMN, DEPTH), (1, 1, 4), [Affine({DEPTH: 1}, 0)], frozenset()) == [[2]]


def test_pinned_axes_stay_alone() -> None:
    walk = Affine({ROW: 12, COLUMN: 4, DEPTH: 1}, 0)
    assert collapse_axes((ROW, COLUMN, DEPTH), (5, 3, 4), [walk], frozenset({COLUMN})) == [[0], [1], [2]]


def test_symbolic_extents_merge_when_the_strides_provably_fit() -> None:
    n = dims.symbol("n", 1)
    walk = Affine({ROW: n, COLUMN: 1}, 0)
    assert collapse_axes((ROW, COLUMN), (7, n), [walk], frozenset()) == [[0, 1]]
