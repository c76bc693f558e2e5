"""Memory of a device that the host cannot read as it is: coarse-grained SVM.

What `clSVMAlloc` gives are real addresses, which the table of slots holds and kernels take; the host reads and writes
there by copies in the device's queue alone, which wait for what was put into it before.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from hidet.dtypes import DType, from_numpy
from hidet.dtypes import dtype as dtype_of
from hidet.errors import DeviceOutOfMemory, LaunchError
from hidet.opencl.devices import Device, find_device
from hidet.opencl.driver import check, function
from hidet.runtime.adapter import TensorFacts
from hidet.runtime.frame import row_major, span
from hidet.runtime.memory import Memory

_READ_WRITE = 1
_DLPACK_OPENCL = 4
_ALIGN = 64
_GRAIN = 512
"""Bytes that sizes of blocks are rounded up to, so that more of them are alike."""


class _Pool:
    """Memory of one device that blocks have had, for others of their size.

    Whoever takes it puts work into the one queue behind the work of those that had it, so that nobody has to wait.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: dict[int, list[int]] = {}

    def take(self, nbytes: int) -> int:
        """An address. DeviceOutOfMemory where there is none, even when all that is unused has been freed."""
        try:
            return self._free[nbytes].pop()
        except (KeyError, IndexError):
            pass
        found = self._allocate(nbytes)
        if found is None:
            self.release()
            found = self._allocate(nbytes)
        if found is None:
            raise DeviceOutOfMemory(
                f"{nbytes} bytes of memory of {self._device.name} cannot be had",
                hint="free tensors, or use smaller batches",
            )
        return found

    def _allocate(self, nbytes: int) -> int | None:
        found: int | None = function("clSVMAlloc")(self._device.context.int_ptr, _READ_WRITE, nbytes, _ALIGN)
        return found

    def put(self, nbytes: int, address: int) -> None:
        """Give memory back."""
        self._free.setdefault(nbytes, []).append(address)

    def release(self) -> None:
        """Free all that nobody has, when the queue is done with it."""
        function("clFinish")(self._device.queue.int_ptr)
        context = self._device.context.int_ptr
        for unused in list(self._free.values()):
            while unused:
                function("clSVMFree")(context, unused.pop())


@functools.cache
def _pool(device: Device) -> _Pool:
    return _Pool(device)


class Block:
    """A run of bytes of a device, which others may have when this object is gone."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.address = 0
        if nbytes == 0:
            return
        pool, rounded = _pool(device), -(-nbytes // _GRAIN) * _GRAIN
        self.address = pool.take(rounded)
        weakref.finalize(self, pool.put, rounded, self.address).atexit = False


def release_memory(machine: str | None = None) -> None:
    """Free memory that hidet keeps for later blocks, on the device that `target="opencl:<machine>"` names."""
    _pool(find_device(machine)).release()


class DeviceArray:
    """An array on a device; strides in elements. owner: keeps its memory."""

    __slots__ = ("__weakref__", "address", "dtype", "on", "owner", "shape", "strides")

    def __init__(
        self, on: Device, address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType, owner: object
    ) -> None:
        self.on = on
        self.address = address
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype = dtype
        self.owner = owner

    @property
    def extent(self) -> int:
        """Elements from the first to the last one in memory, gaps included."""
        return span(self.shape, self.strides)

    def flat(self) -> Any:
        """A copy on the host, as elements lie in memory."""
        found = numpy.empty(self.extent, self.dtype.numpy())
        QueueMemory(self.on).copy(found.ctypes.data, self.address, found.nbytes)
        return found

    def numpy(self) -> Any:
        """A copy on the host, strides and all."""
        found = self.flat()
        if 0 in self.shape:
            return numpy.empty(self.shape, found.dtype)
        strides = [stride * found.itemsize for stride in self.strides]
        return numpy.ndarray(self.shape, found.dtype, found, 0, strides)

    def __dlpack__(self, **options: object) -> object:
        """BufferError: DLPack has handles of OpenCL's buffers, and no addresses of SVM."""
        raise BufferError(
            f"memory of {device_name(self.on)} is shared with no other library: its method numpy copies it"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's code of OpenCL, and the number of the device."""
        return _DLPACK_OPENCL, self.on.number

    def write(self, values: Any) -> None:
        """Copy a host array of its shape to it."""
        flat = numpy.empty(self.extent, self.dtype.numpy())
        if flat.nbytes:
            strides = [stride * flat.itemsize for stride in self.strides]
            numpy.ndarray(self.shape, flat.dtype, flat, 0, strides)[...] = values
            QueueMemory(self.on).copy(self.address, flat.ctypes.data, flat.nbytes)


class QueueMemory:
    """`hidet.runtime.memory.Memory` in the order of the device's queue; every copy is waited for."""

    def __init__(self, device: Device) -> None:
        self._queue = device.queue.int_ptr

    def read(self, address: int, dtype: DType, count: int) -> list[int]:
        """Integers or bools that lie next to each other."""
        found = numpy.empty(count, dtype.numpy())
        self.copy(found.ctypes.data, address, found.nbytes)
        return [int(value) for value in found]

    def write(self, address: int, value: int) -> None:
        """Store one i64."""
        word = ctypes.c_int64(value)
        self.copy(address, ctypes.addressof(word), ctypes.sizeof(word))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes, on the device or from and to the host."""
        if nbytes:
            status = function("clEnqueueSVMMemcpy")(self._queue, 1, target, source, nbytes, 0, None, None)
            check(status, f"copying {nbytes} bytes")

    to_host = from_host = copy


class ArrayAdapter:
    """`hidet.runtime.adapter.CheckedAdapter` for arrays of one device."""

    is_host = False
    finished: Callable[[Any], Any] | None = None

    def __init__(self, device: Device) -> None:
        self._device = device

    def pointer(self, tensor: DeviceArray) -> int:
        """Address of element zero."""
        return tensor.address

    def lie_at(self, tensors: Sequence[DeviceArray], places: list[int]) -> bool:
        """One by one."""
        return list(map(self.pointer, tensors)) == places

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[DeviceArray, int]:
        """A new uninitialised array and its address."""
        made = DeviceArray(self._device, 0, shape, strides, dtype_of(dtype), None)
        block = Block(self._device, made.extent * made.dtype.nbytes)
        made.address, made.owner = block.address, block
        return made, block.address

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
        """Copy values."""
        target.write(source.numpy())

    def stream(self) -> int:
        """The queue."""
        return int(self._device.queue.int_ptr)

    def memory_of(self, tensor: DeviceArray) -> object:
        """The owner of the memory."""
        return tensor.owner

    def on(self, device: str) -> ArrayAdapter:
        """Itself: it is made for a device."""
        return self

    def convert(self, value: Any) -> DeviceArray:
        """The value itself. LaunchError for what is on the host."""
        if isinstance(value, DeviceArray):
            return value
        raise LaunchError(
            f"a {type(value).__name__} is in memory of the host, where others are on {self._device.name}",
            hint="pass numpy arrays alone, which the call copies",
        )

    def signature(self, tensor: DeviceArray) -> Hashable:
        """What `describe` looks at."""
        return tensor.dtype, tensor.shape, tensor.strides, tensor.on.number

    def outline(self, tensor: DeviceArray) -> Hashable:
        """What `describe` looks at, of arrays that are contiguous."""
        return self.signature(tensor) if tensor.strides == row_major(tensor.shape) else None

    def guard(self, tensors: Sequence[DeviceArray]) -> Callable[..., bool] | None:
        """None."""
        return None

    def describe(self, tensor: DeviceArray) -> TensorFacts:
        """What a call checks."""
        return TensorFacts(tensor.dtype, tensor.shape, tensor.strides, device=device_name(tensor.on))

    def stream_of(self, tensor: DeviceArray) -> int:
        """The queue of its device."""
        return int(tensor.on.queue.int_ptr)

    def laid_out(self, tensor: DeviceArray, strides: Sequence[int]) -> DeviceArray:
        """A copy with other strides, by way of the host."""
        made, _ = self.empty(tensor.shape, strides, tensor.dtype.name)
        made.write(tensor.numpy())
        return made


def device_name(device: Device) -> str:
    """As users name it: "opencl:0"."""
    return f"opencl:{device.number}"


@dataclass(frozen=True, slots=True)
class SvmMemory:
    """`hidet.target.DeviceMemory` of a device with coarse-grained SVM."""

    device: Device
    can_capture: bool = False

    @property
    def name(self) -> str:
        """As users name the device."""
        return device_name(self.device)

    @property
    def description(self) -> str:
        """The device and its clock, in MHz."""
        return f"{self.device}, at most {self.device.facts['max_clock_frequency']} MHz"

    @property
    def cache_bytes(self) -> int:
        """Bytes of its cache of global memory."""
        return self.device.facts["global_mem_cache_size"]

    def upload(self, array: Any) -> tuple[object, int]:
        """A copy of a numpy array: its owner and its address."""
        block = Block(self.device, array.nbytes)
        QueueMemory(self.device).copy(block.address, array.ctypes.data, array.nbytes)
        return block, block.address

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """By the device, in the order of the queue."""
        if nbytes:
            pattern = ctypes.c_uint8(byte)
            queue, where = self.device.queue.int_ptr, ctypes.addressof(pattern)
            status = function("clEnqueueSVMMemFill")(queue, address, where, 1, nbytes, 0, None, None)
            check(status, f"filling {nbytes} bytes")

    def adapter(self) -> ArrayAdapter:
        """For arrays in memory of its own."""
        return ArrayAdapter(self.device)

    def place(self, array: Any) -> DeviceArray:
        """A copy of a numpy array, strides and all."""
        kind = from_numpy(array.dtype)
        made, _ = self.adapter().empty(array.shape, [stride // array.itemsize for stride in array.strides], kind.name)
        made.write(array)
        return made

    def download(self, array: DeviceArray) -> Any:
        """The elements of an array, flat, as they lie in memory."""
        return array.flat()

    def in_stream(self, stream: int) -> Memory:
        """Numbers read and written in the order of the queue."""
        return QueueMemory(self.device)

    def is_capturing(self, stream: int) -> bool:
        """Nobody records a queue."""
        return False

    def keep_for_graph(self, stream: int, owner: object) -> None:
        """Nothing: there are no graphs."""

    def capture(self, run: Callable[[int], None]) -> Any:
        """LaunchError: queues record nothing."""
        raise LaunchError("work of an OpenCL queue cannot be recorded")

    def time(self, run: Callable[[int], object]) -> float:
        """Seconds by the device's clock, between a marker before what `run` does and one behind it."""
        return self.device.seconds(lambda: run(int(self.device.queue.int_ptr)))

    def finish(self, stream: int) -> None:
        """Wait for the queue."""
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for the queue."""
        check(function("clFinish")(self.device.queue.int_ptr), f"waiting for {self.device.name}")


def asarray(value: Any, machine: str | None = None) -> DeviceArray:
    """A copy of a numpy array in memory of the device that `target="opencl:<machine>"` names, for scripts and graphs.

    LaunchError where the device has no memory of its own: arrays of the host are used as they are.
    """
    device = find_device(machine)
    if device.has_system_svm:
        raise LaunchError(f"kernels on {device_name(device)} read memory of the host", hint="pass the array itself")
    return SvmMemory(device).place(numpy.asarray(value))
