"""How the runtime talks to a tensor library: addresses, allocation, views. numpy's adapter is here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy

from hidet.dtypes import DType, from_numpy
from hidet.dtypes import dtype as dtype_of
from hidet.errors import DTypeError, HidetError
from hidet.plugins.host import load_registry
from hidet.runtime.memory import out_of_memory, require_memory
from hidet.runtime.plan import ALIGNMENT

if TYPE_CHECKING:
    from hidet.target import DeviceMemory


class TensorAdapter(Protocol):
    """The few operations the runtime needs from a tensor library. Strides are in elements.

    is_host: whether its tensors lie in the host's memory.
    """

    is_host: bool

    def pointer(self, tensor: Any) -> int:
        """Address of element zero."""

    def lie_at(self, tensors: Sequence[Any], places: list[int]) -> bool:
        """Whether each tensor's element zero is at the address that `places` has for it."""

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[Any, int]:
        """A new uninitialised tensor and its address: a multiple of 16 bytes, of 64 where the library allows it.

        A MemoryError, or the library's own error, where there is no memory for it.
        """

    def view(self, owner: Any, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str) -> Any:
        """A tensor in the storage of `owner`, `offset` elements after its start."""

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Any:
        """A tensor over memory that someone else owns and keeps alive during the call."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy values."""

    def stream(self) -> int:
        """Handle of the stream that work on a device is put into; 0 on the host."""

    def memory_of(self, tensor: Any) -> object:
        """What keeps the memory from being freed even if the tensor takes other memory; never the tensor itself.

        None where a tensor has the same memory all its life.
        """


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a call checks of an argument. Strides are in elements.

    obstacle: why compiled code cannot read the memory as it is, said of the tensor, which calls for a copy; None where
    it can. is_writable: it may be overwritten.
    device: where its memory is, "cpu" or for example "cuda:0".
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    obstacle: str | None = None
    is_writable: bool = True
    device: str = "cpu"


class CheckedAdapter(TensorAdapter, Protocol):
    """What calls with checks need besides.

    finished: what the caller gets for a result, which the call has written: for libraries whose tensors are immutable,
        one of theirs in that memory, where nothing is written any more. None where callers get results themselves.
    """

    finished: Callable[[Any], Any] | None

    def on(self, device: str) -> CheckedAdapter:
        """The adapter for this library's tensors on a device, "cuda:0"; itself where the library has none there."""

    def convert(self, value: Any) -> Any:
        """`value` as a tensor of this library. DTypeError for what it cannot be."""

    def signature(self, tensor: Any) -> Hashable:
        """Equal for two tensors only if `describe` is: made to be quick."""

    def outline(self, tensor: Any) -> Hashable:
        """Equal for two plain contiguous tensors only if `describe` is; None for all others, which are described at
        each call. Quicker than `signature`."""

    def guard(self, tensors: Sequence[Any]) -> Callable[..., bool] | None:
        """A test whether other tensors, passed one by one, have outlines equal to those of these, which are not None.

        It may say no where they are. None where the library has nothing quicker than outlines.
        """

    def describe(self, tensor: Any) -> TensorFacts:
        """What a call checks. LaunchError for a tensor that must not be passed to compiled code."""

    def stream_of(self, tensor: Any) -> int:
        """Handle of the stream in which the tensor's library works on its device now; 0 on the host."""

    def laid_out(self, tensor: Any, strides: Sequence[int]) -> Any:
        """A copy of the tensor with these strides."""


class NumpyAdapter:
    """numpy arrays, and what shares its memory with one through DLPack."""

    is_host = True
    finished: Callable[[Any], Any] | None = None

    def pointer(self, tensor: Any) -> int:
        """Address of element zero."""
        address: int = tensor.__array_interface__["data"][0]
        return address

    def lie_at(self, tensors: Sequence[Any], places: list[int]) -> bool:
        """One by one."""
        return list(map(self.pointer, tensors)) == places

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[Any, int]:
        """A new uninitialised array. numpy aligns to 16 bytes, and vectors that cross cache lines cost a tenth."""
        kind = dtype_of(dtype).numpy()
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        count = 0 if 0 in shape else last + 1
        if kind.hasobject:
            # Elements are references, which have to be valid before they are overwritten.
            places = [stride * kind.itemsize for stride in strides]
            made = numpy.lib.stride_tricks.as_strided(numpy.empty(count, kind), shape, places)
            return made, self.pointer(made)
        nbytes = count * kind.itemsize
        require_memory(nbytes)
        try:
            memory = numpy.empty(ALIGNMENT + nbytes, numpy.uint8)
        except (MemoryError, ValueError) as error:  # ValueError: more than an address can say
            raise out_of_memory(nbytes) from error
        address = self.pointer(memory)
        start = -address % ALIGNMENT
        return _array(memory, shape, strides, start, kind), address + start

    def view(self, owner: Any, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: str) -> Any:
        """An array in the memory of `owner`, which `empty` has made."""
        kind = dtype_of(dtype).numpy()
        start = self.pointer(owner) - self.pointer(owner.base)
        return _array(owner.base, shape, strides, start + offset * kind.itemsize, kind)

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Any:
        """An array over foreign memory."""
        kind = dtype_of(dtype).numpy()
        count = 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        memory = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
        return _array(numpy.ctypeslib.as_array(memory), shape, strides, 0, kind)

    def copy(self, target: Any, source: Any) -> None:
        """Copy values."""
        target[...] = source

    def stream(self) -> int:
        """None: arrays lie on the host."""
        return 0

    def memory_of(self, tensor: Any) -> object:
        """None: an array has its memory for life."""
        return None

    def on(self, device: str) -> NumpyAdapter:
        """Itself: arrays lie on the host."""
        return self

    def convert(self, value: Any) -> Any:
        """The value as an array, without a copy where it has memory of its own on the CPU."""
        if isinstance(value, numpy.ndarray):
            return value
        is_shared = not hasattr(value, "__array__") and hasattr(value, "__dlpack__")
        try:
            array = numpy.from_dlpack(value) if is_shared else numpy.asarray(value)
        except HidetError:
            raise
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DTypeError(f"{type(value).__name__} cannot be read as an array: {error}") from error
        if array.ndim == 0 and array.dtype == object and array.item() is value:
            # What numpy knows nothing of becomes an array of that one object.
            is_on_device = hasattr(value, "__cuda_array_interface__")
            place = "lies on a GPU" if is_on_device else "has neither __dlpack__ nor __array__"
            raise DTypeError(f"{type(value).__name__} cannot be read as an array of the host: it {place}")
        return array

    def signature(self, tensor: Any) -> Hashable:
        """What `describe` looks at."""
        flags = tensor.flags
        return tensor.dtype, tensor.shape, tensor.strides, flags.aligned, flags.writeable

    def outline(self, tensor: Any) -> Hashable:
        """What `describe` looks at, of arrays that are contiguous."""
        flags = tensor.flags
        return (tensor.dtype, tensor.shape, flags.writeable) if flags.c_contiguous and flags.aligned else None

    def guard(self, tensors: Sequence[Any]) -> Callable[..., bool] | None:
        """None."""
        return None

    def describe(self, tensor: Any) -> TensorFacts:
        """Elements that do not lie at multiples of their size, such as fields of records, are an obstacle."""
        size = tensor.itemsize
        unequal = [abs(stride) for stride in tensor.strides if stride % size]
        obstacle = None
        if unequal:
            obstacle = f"has elements {unequal[0]} bytes apart, which is no multiple of {size} bytes, their size"
        elif not tensor.flags.aligned:
            obstacle = f"begins at an address that is no multiple of {size} bytes, the size of its elements"
        return TensorFacts(
            from_numpy(tensor.dtype),
            tensor.shape,
            tuple(stride // size for stride in tensor.strides),
            obstacle=obstacle,
            is_writable=tensor.flags.writeable,
        )

    def stream_of(self, tensor: Any) -> int:
        """None: arrays lie on the host."""
        return 0

    def laid_out(self, tensor: Any, strides: Sequence[int]) -> Any:
        """A copy."""
        made, _ = self.empty(tensor.shape, strides, from_numpy(tensor.dtype).name)
        made[...] = tensor
        return made


def _array(memory: Any, shape: Sequence[int], strides: Sequence[int], start: int, kind: Any) -> Any:
    """An array of dtype `kind` from byte `start` of an array of bytes, which is its base; strides in elements."""
    if 0 in shape:
        return numpy.ndarray(shape, kind, memory, start)
    return numpy.ndarray(shape, kind, memory, start, [stride * kind.itemsize for stride in strides])


def adapter_for(kind: type, memory: DeviceMemory | None = None) -> CheckedAdapter:
    """The adapter for tensors of a class: that of the front-end which knows the class or one it derives from.

    memory: of the device that the tensors should be on; None for the host. There, arrays of all other libraries that
    share device memory go through the device's own adapter. Everything else goes through numpy, which takes lists,
    numbers and what DLPack can share.
    """
    names = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
    adapter = adapter_named(names, memory)
    if adapter is not None:
        return adapter
    if memory is not None and "numpy.ndarray" not in names and any(hasattr(kind, name) for name in _SHARED):
        shared: CheckedAdapter = memory.adapter()
        return shared
    return NumpyAdapter()


def adapter_named(names: Set[str], memory: DeviceMemory | None = None) -> CheckedAdapter | None:
    """That of the front-end which knows a class by one of its full names; None where no installed one does."""
    for spec in load_registry().frontends.values():
        if spec.adapter is not None and not names.isdisjoint(spec.tensor_types):
            adapter: CheckedAdapter = spec.resolve_adapter()
            return adapter if memory is None else adapter.on(memory.name)
    return None


_SHARED = ("__dlpack__", "__cuda_array_interface__")
"""What classes of arrays have whose memory other libraries may use."""
