"""Arrays of hidet on a CUDA device: making them, and what the run time needs of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy

from hidet.cuda.arrays import DeviceArray, note_use
from hidet.cuda.devices import Device, chosen_device
from hidet.cuda.pool import pool_of
from hidet.cuda.sharing import import_array
from hidet.cuda.streams import current_stream
from hidet.dtypes import DType, from_numpy
from hidet.dtypes import dtype as dtype_of
from hidet.errors import LaunchError
from hidet.runtime.adapter import TensorFacts
from hidet.runtime.frame import row_major


class ArrayAdapter:
    """`hidet.runtime.adapter.CheckedAdapter` for arrays of one device, in hidet's current stream.

    Arrays of other libraries that lie on the device are used where they are.
    """

    is_host = False
    finished: Callable[[Any], Any] | None = None

    def __init__(self, device: Device) -> None:
        self._device = device

    def pointer(self, tensor: DeviceArray) -> int:
        """Address of element zero, for work in the current stream."""
        note_use(tensor, current_stream(self._device))
        return tensor.address

    def lie_at(self, tensors: Sequence[DeviceArray], places: list[int]) -> bool:
        """One by one."""
        return list(map(self.pointer, tensors)) == places

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[DeviceArray, int]:
        """A new uninitialised array and its address."""
        kind = dtype_of(dtype)
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        nbytes = 0 if 0 in shape else (last + 1) * kind.nbytes
        block = pool_of(self._device).allocate(nbytes, current_stream(self._device))
        return DeviceArray(self._device, block.address, shape, strides, kind, block), block.address

    def view(
        self, owner: DeviceArray, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str
    ) -> DeviceArray:
        """An array in the memory of another one."""
        kind = dtype_of(dtype)
        return DeviceArray(self._device, owner.address + offset * kind.nbytes, shape, strides, kind, owner.owner)

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> DeviceArray:
        """An array over memory that someone else keeps."""
        return DeviceArray(self._device, address, shape, strides, dtype_of(dtype), None)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy values between arrays of one layout. LaunchError for others, which need a kernel."""
        is_same = target.strides == source.strides and target.shape == source.shape and target.dtype == source.dtype
        if not is_same:
            raise LaunchError("a step of the graph runs outside compiled code, which needs tensors of a framework")
        stream = current_stream(self._device).handle
        nbytes = source.extent * source.dtype.nbytes
        StreamMemory(self._device, stream).copy(self.pointer(target), self.pointer(source), nbytes)

    def stream(self) -> int:
        """hidet's current stream of the device."""
        return current_stream(self._device).handle

    def memory_of(self, tensor: DeviceArray) -> object:
        """The owner of the memory."""
        return tensor.owner

    def on(self, device: str) -> ArrayAdapter:
        """Itself: it is made for a device."""
        return self

    def convert(self, value: Any) -> DeviceArray:
        """The value as an array, over the same memory. LaunchError for one that is on the host."""
        found = import_array(value, self._device)
        if found is None:
            raise LaunchError(
                f"a {type(value).__name__} is in memory of the host, expected an array on {self._device.name}",
                hint="hidet.cuda.asarray copies it there",
            )
        return found

    def signature(self, tensor: DeviceArray) -> Hashable:
        """What `describe` looks at."""
        return tensor.dtype, tensor.shape, tensor.strides, tensor.on.index, tensor.is_writable

    def outline(self, tensor: DeviceArray) -> Hashable:
        """What `describe` looks at, of arrays that are contiguous."""
        return (tensor.dtype, tensor.shape, tensor.on.index, tensor.is_writable) if tensor.is_contiguous() else None

    def guard(self, tensors: Sequence[DeviceArray]) -> Callable[..., bool] | None:
        """None."""
        return None

    def describe(self, tensor: DeviceArray) -> TensorFacts:
        """What a call checks."""
        return TensorFacts(
            tensor.dtype, tensor.shape, tensor.strides, is_writable=tensor.is_writable, device=tensor.device
        )

    def stream_of(self, tensor: DeviceArray) -> int:
        """hidet's current stream of the array's device."""
        return current_stream(tensor.on).handle

    def laid_out(self, tensor: DeviceArray, strides: Sequence[int]) -> DeviceArray:
        """A copy with other strides, by way of the host."""
        made, _ = self.empty(tensor.shape, strides, tensor.dtype.name)
        _write(made, tensor.numpy())
        return made


class StreamMemory:
    """`hidet.runtime.memory.Memory`: the host reads and writes a few numbers, in the order of a stream."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._stream = stream

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """Integers or bools that lie next to each other. The host waits for them."""
        found = numpy.empty(count, dtype.numpy())
        self.to_host(found.ctypes.data, address, found.nbytes)
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
        if nbytes:
            self._device.call("cuMemcpyDtoDAsync_v2", target, source, nbytes, self._stream)

    def to_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes to this process and wait for them."""
        if nbytes == 0:
            return
        device = self._device
        with device.current():
            device.driver.call("cuMemcpyDtoHAsync_v2", target, source, nbytes, self._stream, what="copying to the host")
            device.driver.call("cuStreamSynchronize", self._stream, what="copying to the host")

    def from_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes of this process, which the driver has read when this returns."""
        if nbytes:
            self._device.call("cuMemcpyHtoDAsync_v2", target, source, nbytes, self._stream)


def place_array(array: Any, device: Device) -> DeviceArray:
    """A copy of a numpy array on a device, strides and all, ready for work in the current stream.

    DTypeError for elements that no device knows.
    """
    kind = from_numpy(array.dtype)
    strides = [stride // array.itemsize for stride in array.strides]
    made, _ = ArrayAdapter(device).empty(array.shape, strides, kind.name)
    _write(made, array)
    return made


def _write(target: DeviceArray, values: Any) -> None:
    """Copy a host array to a device, strides as the device's array has them. The host's may change afterwards."""
    flat = numpy.empty(target.extent, values.dtype)
    if not flat.nbytes:
        return
    strides = [stride * flat.itemsize for stride in target.strides]
    numpy.ndarray(target.shape, flat.dtype, flat, 0, strides)[...] = values
    stream = current_stream(target.on).handle
    # From memory that is not pinned the driver has copied, or set aside, what it needs before it returns.
    target.on.call(
        "cuMemcpyHtoDAsync_v2", target.address, flat.ctypes.data, flat.nbytes, stream, what="copying an array"
    )


def asarray(value: Any, device: int | None = None) -> DeviceArray:
    """An array on a CUDA device: over the memory of what is on one, a copy of what is on the host.

    device: number of the device for copies, None for the current one. DTypeError for elements that no device knows.
    """
    on = chosen_device(device)
    found = import_array(value, on)
    if found is not None:
        if device is not None and found.on is not on:
            raise LaunchError(f"the array is on {found.device}, expected {on.name}", hint="copy it there first")
        return found
    array = numpy.asarray(value)
    return place_array(numpy.ascontiguousarray(array).reshape(array.shape), on)


def empty(shape: int | Sequence[int], dtype: str | DType = "float32", device: int | None = None) -> DeviceArray:
    """An uninitialised array of hidet's own pool, for work in the current stream. DeviceOutOfMemory tells the sizes."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    made, _ = ArrayAdapter(chosen_device(device)).empty(extents, row_major(extents), dtype_of(dtype).name)
    return made


def zeros(shape: int | Sequence[int], dtype: str | DType = "float32", device: int | None = None) -> DeviceArray:
    """As `empty`, all zero: bits of zero mean that in every element type."""
    made = empty(shape, dtype, device)
    nbytes = made.extent * made.dtype.nbytes
    if nbytes:
        made.on.call("cuMemsetD8Async", made.address, 0, nbytes, current_stream(made.on).handle)
    return made
