"""When attribute mappings are equal: exactly when nodes with them compute the same."""

import math

import pytest

from hidet.graph.attrs import Attrs


@pytest.mark.parametrize(
    "a, b", [(1, 1.0), (1, True), (0.0, -0.0), ((0, 1), (False, True)), ((0.0,), (-0.0,)), (1j, 1.0)]
)
def test_values_of_other_types_or_signs_differ(a, b):
    assert Attrs({"value": a}) != Attrs({"value": b})


@pytest.mark.parametrize(
    "value", [3, 2.5, "mean", None, math.nan, (1, (math.nan, -0.0)), -math.inf, complex(0, math.nan)]
)
def test_equal_values_are_equal_and_hash_alike(value):
    a, b = Attrs({"value": value, "axis": 1}), Attrs({"axis": 1, "value": value})
    assert a == b
    assert hash(a) == hash(b)


def test_lists_are_frozen():
    assert Attrs({"perm": [1, 0]}) == Attrs({"perm": (1, 0)})


def test_a_mapping_with_more_names_differs():
    assert Attrs({"axis": 1}) != Attrs({"axis": 1, "keepdim": True})
