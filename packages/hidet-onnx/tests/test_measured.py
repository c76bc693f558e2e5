"""Shapes that data decide: one compiled graph serves every value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hidet
from hidet.errors import HidetError

Make = Callable[..., onnx.ModelProto]
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _binary(make_model: Make, operator: str, count: int, dtype: Any = np.int64, **attributes: Any) -> Any:
    node = helper.make_node(operator, ["x", "s"], ["y"], **attributes)
    return hidet.compile(make_model([node], {"x": (np.float32, X.shape), "s": (dtype, [count])}, ["y"]))


@pytest.mark.parametrize("shape", [(4, 6), (-1, 8), (0, -1), (24, 1)])
def test_reshape_to_a_shape_that_is_data(make_model: Make, shape: tuple[int, ...]) -> None:
    compiled = _binary(make_model, "Reshape", 2)
    expected = X.reshape([X.shape[axis] if extent == 0 else extent for axis, extent in enumerate(shape)])
    np.testing.assert_array_equal(compiled(X, np.array(shape)), expected)


@pytest.mark.parametrize("shape", [(5, 5), (-2, 4), (-1, -1), (100, 100)])
def test_reshape_to_another_number_of_elements_is_refused(make_model: Make, shape: tuple[int, ...]) -> None:
    compiled = _binary(make_model, "Reshape", 2)
    with pytest.raises(HidetError):
        compiled(X, np.array(shape))


def test_constant_of_shape_and_tile_by_data(make_model: Make) -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    filled = hidet.compile(make_model([node], {"s": (np.int64, [2])}, ["y"]))
    for shape in ((2, 3), (0, 4), (5, 1)):
        np.testing.assert_array_equal(filled(np.array(shape)), np.zeros(shape, np.float32))
    tiled = _binary(make_model, "Tile", 3)
    for repeats in ((1, 2, 1), (2, 1, 3)):
        np.testing.assert_array_equal(tiled(X, np.array(repeats)), np.tile(X, repeats))


@pytest.mark.parametrize("bounds", [(1, 3), (-2, 100), (-100, -1), (3, 1), (2, 2)])
def test_slice_between_positions_that_are_data(make_model: Make, bounds: tuple[int, int]) -> None:
    node = helper.make_node("Slice", ["x", "a", "b", "axes"], ["y"])
    inputs = {"x": (np.float32, X.shape), "a": (np.int64, [1]), "b": (np.int64, [1])}
    compiled = hidet.compile(make_model([node], inputs, ["y"], {"axes": np.array([-1])}))
    first, last = (np.array([bound]) for bound in bounds)
    np.testing.assert_array_equal(compiled(X, first, last), X[..., slice(*bounds)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize("given", [(0, 5, 1), (3, -4, -2), (2, 2, 1), (5, 1, 1)])
def test_range_between_numbers_that_are_data(make_model: Make, dtype: Any, given: tuple[int, int, int]) -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    compiled = hidet.compile(make_model([node], {name: (dtype, []) for name in "abc"}, ["y"]))
    np.testing.assert_array_equal(compiled(*[np.array(n, dtype) for n in given]), np.arange(*given, dtype=dtype))


def test_expand_to_a_shape_that_is_data(make_model: Make) -> None:
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    compiled = hidet.compile(make_model([node], {"x": (np.float32, [3, 1]), "s": (np.int64, [2])}, ["y"]))
    x = X[0, :, :1]
    for shape in ((3, 4), (1, 2), (3, 1)):
        np.testing.assert_array_equal(compiled(x, np.array(shape)), x * np.ones(shape, np.float32))
