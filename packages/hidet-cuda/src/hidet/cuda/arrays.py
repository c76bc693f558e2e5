"""Arrays in memory of a CUDA device without a framework, for work that the compiler itself runs there."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.dtypes import DType
from hidet.dtypes import dtype as dtype_of
from hidet.errors import LaunchError

if TYPE_CHECKING:
    from hidet.cuda.memory import Device


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array on a device; strides in elements. `owner` keeps the memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: object

    @property
    def elements(self) -> int:
        """Elements from the first to the last one."""
        if 0 in self.shape:
            return 0
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))


class ArrayAdapter:
    """`hidet.runtime.adapter.TensorAdapter` for device arrays, in the device's default stream."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def pointer(self, tensor: DeviceArray) -> int:
        """Address of element zero."""
        return tensor.address

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[DeviceArray, int]:
        """A new uninitialised array and its address."""
        kind = dtype_of(dtype)
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        owner = self._device.allocate(0 if 0 in shape else (last + 1) * kind.nbytes)
        return DeviceArray(owner.address, tuple(shape), tuple(strides), kind, owner), owner.address

    def view(
        self, owner: DeviceArray, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str
    ) -> DeviceArray:
        """An array in the memory of another one."""
        kind = dtype_of(dtype)
        return DeviceArray(owner.address + offset * kind.nbytes, tuple(shape), tuple(strides), kind, owner.owner)

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> DeviceArray:
        """An array over memory that someone else keeps."""
        return DeviceArray(address, tuple(shape), tuple(strides), dtype_of(dtype), None)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """LaunchError: values are copied by steps outside compiled code, which need a framework."""
        raise LaunchError("a step of the graph runs outside compiled code, which needs tensors of a framework")

    def stream(self) -> int:
        """The default stream."""
        return 0

    def memory_of(self, tensor: DeviceArray) -> object:
        """The owner of the memory."""
        return tensor.owner


class StreamMemory:
    """`hidet.runtime.memory.Memory`: the host reads and writes a few numbers, in the order of a stream."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._stream = stream

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """Integers or bools that lie next to each other. The host waits for them."""
        import numpy

        found = numpy.empty(count, dtype.numpy())
        device = self._device
        with device.current():
            device.driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, address, found.nbytes, self._stream)
            device.driver.call("cuStreamSynchronize", self._stream, what="reading sizes")
        return [int(value) for value in found]

    def write(self, address: int, value: int) -> None:
        """Store one i64."""
        words = (ctypes.c_uint32 * 2)(value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF)
        device = self._device
        with device.current():
            for number, word in enumerate(words):
                device.driver.call("cuMemsetD32Async", address + 4 * number, word, 1, self._stream)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes on the device."""
        device = self._device
        if nbytes:
            with device.current():
                device.driver.call("cuMemcpyDtoDAsync_v2", target, source, nbytes, self._stream)


def downloaded(device: Device, array: DeviceArray) -> Any:
    """The elements of an array as a flat numpy array, in the order in which they lie in memory."""
    import numpy

    found = numpy.empty(array.elements, array.dtype.numpy())
    if found.nbytes:
        with device.current():
            device.driver.call("cuStreamSynchronize", 0, what="preparing constants")
            device.driver.call("cuMemcpyDtoH_v2", found.ctypes.data, array.address, found.nbytes)
    return found
