"""Arrays in memory of a CUDA device without a framework: what compiled code takes and returns where torch is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from hidet.cuda.devices import Device
from hidet.cuda.dlpack import CUDA, make_capsule
from hidet.cuda.pool import Block
from hidet.cuda.streams import LEGACY_STREAM, ExternalStream, Stream, current_stream, order_streams
from hidet.dtypes import DType
from hidet.runtime.frame import row_major

_NO_ORDER = -1
"""Stream of a consumer of DLPack that takes care of the order itself."""


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
        flat = download_array(self)
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
        """A capsule for another library.

        stream: of the consumer, as DLPack counts them; None is the default stream, and -1 lets nothing wait.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"an array on {self.device} is shared, not copied or moved")
        if stream != _NO_ORDER:
            handle = 0 if stream in (None, LEGACY_STREAM) else stream
            consumer = ExternalStream(handle or 0, self.on)
            order_streams(consumer, current_stream(self.on))
            note_use(self, consumer)
        return make_capsule(self, self.address, self.__dlpack_device__(), self.shape, self.strides, self.dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's code of CUDA memory, and the number of the device."""
        return CUDA, self.on.index

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
            "stream": handle or LEGACY_STREAM,
        }

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype='{self.dtype.name}', device='{self.device}')"


def note_use(array: DeviceArray, stream: Stream) -> None:
    """Keep an array's memory, when hidet frees it, from work that was put into `stream` before."""
    if isinstance(array.owner, Block):
        array.owner.used_in(stream)


def download_array(array: DeviceArray) -> Any:
    """The elements of an array as a flat numpy array, in the order in which they lie in memory."""
    found = numpy.empty(array.extent, array.dtype.numpy())
    if found.nbytes:
        stream = current_stream(array.on).handle
        with array.on.current():
            driver = array.on.driver
            driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, array.address, found.nbytes, stream, what="a copy")
            driver.call("cuStreamSynchronize", stream, what="copying an array to the host")
    return found
