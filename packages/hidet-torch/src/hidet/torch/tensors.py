"""torch tensors for the runtime: element types, addresses, allocation, views."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError


@cache
def dtype_of(dtype: torch.dtype) -> DType:
    """The element type of a torch dtype. DTypeError for quantised and packed types, which have none."""
    try:
        return dtypes.dtype(str(dtype).removeprefix("torch."))
    except DTypeError:
        raise DTypeError(
            f"{dtype} has no element type in hidet",
            hint="quantised tensors: pass values, scale and zero point as plain tensors",
        ) from None


@cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an element type's full name. DTypeError where torch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise DTypeError(f"torch has no dtype for {name}")
    return found


def as_numpy(tensor: torch.Tensor) -> Any:
    """A CPU tensor as a numpy array over the same memory; 16-bit and 8-bit floats get the types of ml_dtypes."""
    source = tensor.detach().resolve_conj().resolve_neg()
    kind = dtype_of(source.dtype).numpy()
    # 1 marks numpy's own types; those of ml_dtypes are registered with 2.
    if kind.isbuiltin == 1:
        return source.numpy()
    carrier = {1: torch.uint8, 2: torch.int16}[source.element_size()]
    return source.view(carrier).numpy().view(kind)


class TorchAdapter:
    """torch's side of `hidet.runtime.adapter.TensorAdapter`, for CPU tensors. Strides are in elements."""

    # The unbound method itself: a call of it is cheaper than one through a Python function.
    pointer = staticmethod(torch.Tensor.data_ptr)

    @staticmethod
    def empty(shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[torch.Tensor, int]:
        """A new uninitialised tensor and its address; torch aligns CPU memory to 64 bytes."""
        tensor = torch.empty_strided(shape, strides, dtype=torch_dtype(dtype))
        return tensor, tensor.data_ptr()

    @staticmethod
    def view(
        owner: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str
    ) -> torch.Tensor:
        """A tensor in the storage of `owner`, `offset` elements of `dtype` after its start."""
        kind = torch_dtype(dtype)
        flat = owner if owner.dtype == kind else owner.view(kind)
        return flat.as_strided(shape, strides, flat.storage_offset() + offset)

    @staticmethod
    def wrap(address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> torch.Tensor:
        """A tensor over memory that someone else keeps alive while it is used."""
        kind = torch_dtype(dtype)
        if 0 in shape:
            return torch.empty(tuple(shape), dtype=kind)
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        memory = (ctypes.c_char * ((last + 1) * kind.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=kind).as_strided(tuple(shape), tuple(strides))

    @staticmethod
    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy values."""
        target.copy_(source)


def version_of(tensor: torch.Tensor) -> object:
    """Something that differs from its earlier value after an in-place update of `tensor`.

    Tensors made under `torch.inference_mode` count no versions; they look changed at every call.
    """
    try:
        return tensor._version
    except RuntimeError:
        return object()
