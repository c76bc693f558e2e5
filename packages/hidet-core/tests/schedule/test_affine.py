"""Affine analysis of index expressions, and merging of axes that every operand walks as one."""

from __future__ import annotations

from hidet import dims
from hidet.ir import build
from hidet.schedule.affine import Affine, affine_index, affine_offset, collapse_axes

I, J, K = (build.size_var(name) for name in "ijk")


def test_sums_and_products_with_constants_are_affine() -> None:
    found = affine_index((I * 6 + J) * 2 - 5 + I)
    assert found is not None
    assert found.coefficients == {I: 13, J: 2}
    assert found.constant == -5


def test_symbolic_sizes_are_coefficients() -> None:
    n = dims.symbol("n", 1)
    found = affine_index(I * build.index(n) + J)
    assert found is not None
    assert found.coefficient(I) == n
    assert found.coefficient(K) == 0


def test_products_of_axes_and_divisions_are_not_affine() -> None:
    assert affine_index(build.binary("mul", I, J)) is None
    assert affine_index(build.binary("floordiv", I, 3)) is None


def test_terms_that_cancel_leave_no_coefficient() -> None:
    found = affine_index(I * 3 - I * 3 + J)
    assert found is not None
    assert found.coefficients == {J: 1}


def test_an_offset_scales_each_index_by_its_stride() -> None:
    found = affine_offset((I, J + 1), (10, 3))
    assert found == Affine({I: 10, J: 3}, 3)


def test_contiguous_axes_merge_into_one_loop() -> None:
    walk = Affine({I: 12, J: 4, K: 1}, 0)
    assert collapse_axes((I, J, K), (5, 3, 4), [walk, walk], frozenset()) == [[0, 1, 2]]


def test_a_broadcast_operand_keeps_its_axis_apart() -> None:
    dense, row = Affine({I: 12, J: 4, K: 1}, 0), Affine({K: 1}, 0)
    assert collapse_axes((I, J, K), (5, 3, 4), [dense, row], frozenset()) == [[0, 1], [2]]


def test_axes_of_extent_one_need_no_loop() -> None:
    assert collapse_axes((I, J, K), (1, 1, 4), [Affine({K: 1}, 0)], frozenset()) == [[2]]


def test_pinned_axes_stay_alone() -> None:
    walk = Affine({I: 12, J: 4, K: 1}, 0)
    assert collapse_axes((I, J, K), (5, 3, 4), [walk], frozenset({J})) == [[0], [1], [2]]


def test_symbolic_extents_merge_when_the_strides_provably_fit() -> None:
    n = dims.symbol("n", 1)
    walk = Affine({I: n, J: 1}, 0)
    assert collapse_axes((I, J), (7, n), [walk], frozenset()) == [[0, 1]]
