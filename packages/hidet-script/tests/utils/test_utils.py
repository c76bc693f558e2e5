"""What users' scripts import from `hidet.utils`."""

from __future__ import annotations

from hidet.utils import prod, same_list


def test_lists_and_products_of_utils() -> None:
    assert (prod([2, 3, 4]), prod([])) == (24, 1)
    assert same_list([1, (2,)], [1, (2,)]) and not same_list([1], [1, 2])
    assert not same_list([[1]], [[1]], use_equal=False)
