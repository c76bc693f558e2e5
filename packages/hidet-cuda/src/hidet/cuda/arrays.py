"""Arrays in memory of a CUDA device without a framework: what compiled code takes and returns where torch is not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.cuda.memory import chosen_device
from hidet.cuda.pool import Block
from hidet.cuda.streams import Stream, current_stream
from hidet.dtypes import DType, from_numpy
from hidet.dtypes import dtype as dtype_of
from hidet.errors import LaunchError
from hidet.runtime.adapter import TensorFacts
from hidet.runtime.frame import row_major

if TYPE_CHECKING:
    from hidet.cuda.memory import Device


class DeviceArray:
    """An array on a device; strides in elements. It shares its memory through DLPack and the CUDA array interface.

    owner: keeps the memory; a `Block` of hidet's pool, or what another library keeps it by. Work on the array is put
    into the current stream (`hidet.cuda.stream`); other libraries are told to wait for it.
    """

    __slots__ = ("__weakref__", "address", "dtype", "is_writable", "on", "owner", "shape", "strides")

    def __init__(
        self,
        on: Device,
        address: int,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: DType,
        owner: object,
        is_writable: bool = True,
    ) -> None:
        self.on = on
        self.address = address
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype = dtype
        self.owner = owner
        self.is_writable = is_writable

    @property
    def device(self) -> str:
        """Name of the device, "cuda:0"."""
        return self.on.name

    @property
    def ndim(self) -> int:
        """Axes."""
        return len(self.shape)

    @property
    def extent(self) -> int:
        """Elements from the first to the last one in memory, gaps included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))

    def data_ptr(self) -> int:
        """Address of element zero on the device."""
        return self.address

    def is_contiguous(self) -> bool:
        """Whether elements lie next to each other in row-major order."""
        pairs = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return 0 in self.shape or all(extent == 1 or have == want for extent, have, want in pairs)

    def numpy(self) -> Any:
        """A copy on the host, for which the current stream is waited for. Strides stay as they are."""
        import numpy

        flat = downloaded(self)
        if 0 in self.shape:
            return numpy.empty(self.shape, flat.dtype)
        strides = [stride * flat.itemsize for stride in self.strides]
        return numpy.ndarray(self.shape, flat.dtype, flat, 0, strides)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        """TypeError: numpy would make an array of one object without it."""
        raise TypeError(f"an array on {self.device} is not in memory of the host: its method numpy copies it there")

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule for another library. stream: of the consumer; -1 lets nothing wait."""
        from hidet.cuda.dlpack import export_array

        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"an array on {self.device} is shared, not copied or moved")
        return export_array(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's code of CUDA memory, and the number of the device."""
        return 2, self.on.index

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the protocol; AttributeError for element types that it cannot name (bf16, 8-bit floats)."""
        kind = self.dtype.numpy()
        if kind.isbuiltin != 1:
            raise AttributeError(f"the CUDA array interface has no {self.dtype.name}: use DLPack")
        handle = current_stream(self.on).handle
        return {
            "data": (self.address, not self.is_writable),
            "shape": self.shape,
            "strides": tuple(stride * kind.itemsize for stride in self.strides),
            "typestr": kind.str,
            "version": 3,
            "stream": handle or 1,
        }

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype='{self.dtype.name}', device='{self.device}')"


class ArrayAdapter:
    """`hidet.runtime.adapter.CheckedAdapter` for arrays of one device, in hidet's current stream.

    Arrays of other libraries that lie on the device are used where they are.
    """

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
        block = self._device.pool.allocate(nbytes, current_stream(self._device))
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
        from hidet.cuda.dlpack import import_array

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
        import numpy

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


def note_use(array: DeviceArray, stream: Stream) -> None:
    """Keep an array's memory, when hidet frees it, from work that was put into `stream` before."""
    if isinstance(array.owner, Block):
        array.owner.used_in(stream)


def downloaded(array: DeviceArray) -> Any:
    """The elements of an array as a flat numpy array, in the order in which they lie in memory."""
    import numpy

    found = numpy.empty(array.extent, array.dtype.numpy())
    if found.nbytes:
        stream = current_stream(array.on).handle
        with array.on.current():
            driver = array.on.driver
            driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, array.address, found.nbytes, stream, what="a copy")
            driver.call("cuStreamSynchronize", stream, what="copying an array to the host")
    return found


def placed(array: Any, device: Device) -> DeviceArray:
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
    import numpy

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
    import numpy

    from hidet.cuda.dlpack import import_array

    on = chosen_device(device)
    found = import_array(value, on)
    if found is not None:
        if device is not None and found.on is not on:
            raise LaunchError(f"the array is on {found.device}, expected {on.name}", hint="copy it there first")
        return found
    array = numpy.asarray(value)
    return placed(numpy.ascontiguousarray(array).reshape(array.shape), on)


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
