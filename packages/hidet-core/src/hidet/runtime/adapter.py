"""How the runtime talks to a tensor library: addresses, allocation, views. numpy's adapter is here."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from hidet.dtypes import dtype as dtype_of


class TensorAdapter(Protocol):
    """The few operations the runtime needs from a tensor library. Strides are in elements."""

    def pointer(self, tensor: Any) -> int:
        """Address of element zero."""

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[Any, int]:
        """A new uninitialised tensor and its address (aligned to 64 bytes where the library allows it)."""

    def view(self, owner: Any, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str) -> Any:
        """A tensor in the storage of `owner`, `offset` elements after its start."""

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Any:
        """A tensor over memory that someone else owns and keeps alive during the call."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy values."""


class NumpyAdapter:
    """numpy arrays."""

    def pointer(self, tensor: Any) -> int:
        """Address of element zero."""
        address: int = tensor.ctypes.data
        return address

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[Any, int]:
        """A new uninitialised array."""
        import numpy

        kind = dtype_of(dtype).numpy()
        count = 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        flat = numpy.empty(count, kind)
        made = numpy.lib.stride_tricks.as_strided(flat, tuple(shape), tuple(s * kind.itemsize for s in strides))
        return made, flat.ctypes.data

    def view(self, owner: Any, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str) -> Any:
        """An array in the memory of `owner`."""
        import numpy

        kind = dtype_of(dtype).numpy()
        # Not reshape(-1): it would copy an owner whose axes lie in another order.
        extent = sum((n - 1) * s for n, s in zip(owner.shape, owner.strides, strict=True)) + owner.itemsize
        owned = numpy.lib.stride_tricks.as_strided(owner, (extent // owner.itemsize,), (owner.itemsize,))
        flat = owned.view(numpy.uint8)[offset * kind.itemsize :].view(kind)
        return numpy.lib.stride_tricks.as_strided(flat, tuple(shape), tuple(s * kind.itemsize for s in strides))

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Any:
        """An array over foreign memory."""
        import numpy

        kind = dtype_of(dtype).numpy()
        count = 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        memory = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
        flat = numpy.frombuffer(memoryview(memory).cast("B"), kind, count)
        return numpy.lib.stride_tricks.as_strided(flat, tuple(shape), tuple(s * kind.itemsize for s in strides))

    def copy(self, target: Any, source: Any) -> None:
        """Copy values."""
        target[...] = source
