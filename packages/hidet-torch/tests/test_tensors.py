"""The runtime's view of torch tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hidet import dtypes
from hidet.errors import DTypeError
from hidet.torch.tensors import TorchAdapter, as_numpy, dtype_of, torch_dtype

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_go_both_ways(dtype: torch.dtype) -> None:
    assert torch_dtype(dtype_of(dtype).name) == dtype
    assert dtype_of(dtype).nbytes == dtype.itemsize


def test_quantised_types_have_no_element_type() -> None:
    with pytest.raises(DTypeError, match="quint8"):
        dtype_of(torch.quint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_numpy_shares_the_tensors_memory(dtype: torch.dtype) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).to(dtype)
    array = as_numpy(tensor)
    assert array.ctypes.data == tensor.data_ptr()
    assert array.dtype == dtype_of(dtype).numpy()
    assert np.array_equal(array.astype(np.float32), tensor.float().numpy())


def test_new_tensors_have_the_strides_asked_for() -> None:
    tensor, address = TorchAdapter.empty((2, 3), (1, 2), "float32")
    assert tensor.stride() == (1, 2)
    assert address == tensor.data_ptr() == TorchAdapter.pointer(tensor)


def test_views_lie_in_their_owners_storage() -> None:
    owner, address = TorchAdapter.empty((24,), (1,), "uint8")
    view = TorchAdapter.view(owner, (2, 2), (1, 2), 1, "float32")
    assert view.data_ptr() == address + 4
    assert view.dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_foreign_memory_is_read_and_written_in_place(dtype: str) -> None:
    source = torch.zeros(3, 4, dtype=torch_dtype(dtype))
    wrapped = TorchAdapter.wrap(source.data_ptr(), (4, 3), (1, 4), dtype)
    TorchAdapter.copy(wrapped, torch.ones(4, 3, dtype=torch_dtype(dtype)))
    assert bool((source == 1).all())


def test_foreign_memory_without_elements_is_an_empty_tensor() -> None:
    assert TorchAdapter.wrap(0, (0, 3), (3, 1), dtypes.f32.name).shape == (0, 3)


def test_memory_of_the_cpu_stays_there_whatever_the_default_device_is() -> None:
    with torch.device("meta"):
        made, address = TorchAdapter.empty((2, 3), (3, 1), "float32")
        empty = TorchAdapter.wrap(0, (0, 3), (3, 1), "float32")
        converted = TorchAdapter.convert(np.ones(2))
    assert {tensor.device.type for tensor in (made, empty, converted)} == {"cpu"}
    assert address != 0
