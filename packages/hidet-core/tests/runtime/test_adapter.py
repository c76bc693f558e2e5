"""numpy's arrays as memory of compiled code."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators
from hidet.runtime.adapter import NumpyAdapter

ADAPTER = NumpyAdapter()
CACHE_LINE = 64


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 1000)])
def test_new_arrays_begin_with_a_cache_line(shape: tuple[int, ...]) -> None:
    strides = np.empty(shape, np.float32).strides
    made = [ADAPTER.empty(shape, [stride // 4 for stride in strides], "float32") for _ in range(20)]
    assert all(address % CACHE_LINE == 0 and array.ctypes.data == address for array, address in made)
    assert all(array.shape == shape for array, _ in made)
    assert all(array.strides == strides for array, _ in made if array.size)


def test_a_view_counts_from_the_first_element_of_its_owner() -> None:
    owner, _ = ADAPTER.empty((24,), (1,), "uint8")
    owner[...] = np.arange(6, dtype=np.float32).view(np.uint8)
    view = ADAPTER.view(owner, (2, 2), (1, 2), 1, "float32")
    np.testing.assert_array_equal(view, [[1, 3], [2, 4]])


def test_weights_that_a_graph_keeps_begin_with_a_cache_line() -> None:
    builder = GraphBuilder({spec.name: spec for spec in all_operators()})
    total = builder.input(TensorType(dtypes.f32, (1001,)))
    for number in range(20):
        total = builder.emit("mul", total, builder.constant(np.full(1001, number, np.float32)))
    compiled = hidet.compile(builder.build([total]))
    addresses = [array.ctypes.data for array in compiled.bundle.constants]
    assert len(addresses) == 20
    assert all(address % CACHE_LINE == 0 for address in addresses)
