"""What makes tensors: of numbers, of random numbers, of another library's tensors, like others, and symbolic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from hidet import dims
from hidet.api.tensors.tensor import Shape, Tensor, device_memory, device_name, element_type, extents_of, placed
from hidet.errors import DTypeError


def _filled(make: str) -> Callable[..., Tensor]:
    def create(shape: Shape, dtype: Any = "float32", device: str = "cpu") -> Tensor:
        return placed(getattr(numpy, make)(extents_of(shape), element_type(dtype).numpy()), device)

    create.__doc__ = f"As numpy.{make}, on a device."
    create.__name__ = create.__qualname__ = make
    return create


empty, zeros, ones = map(_filled, ("empty", "zeros", "ones"))


def full(shape: Shape, fill_value: float, dtype: Any = "float32", device: str = "cpu") -> Tensor:
    """A tensor whose elements are all `fill_value`."""
    return placed(numpy.full(extents_of(shape), fill_value, element_type(dtype).numpy()), device)


def randn(shape: Shape, dtype: Any = "float32", mean: float = 0.0, stddev: float = 1.0, device: str = "cpu") -> Tensor:
    """Normally distributed elements, from numpy's global generator: numpy.random.seed makes them repeat."""
    drawn = numpy.random.normal(mean, stddev, extents_of(shape))  # the generator that users can seed
    return placed(drawn.astype(element_type(dtype).numpy()), device)


def randint(low: int, high: int | None = None, shape: Shape = (), dtype: Any = "int32", device: str = "cpu") -> Tensor:
    """Integers from `low` to `high` - 1, or from 0 to `low` - 1; see `randn`."""
    bounds = (0, low) if high is None else (low, high)
    drawn = numpy.random.randint(*bounds, size=extents_of(shape))  # the generator that users can seed
    return placed(numpy.asarray(drawn).astype(element_type(dtype).numpy()), device)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None, device: str = "cpu") -> Tensor:
    """As numpy.arange; of whole numbers i64, of others f32 where no type is given."""
    first, last = (0, start) if stop is None else (start, stop)
    made = numpy.arange(first, last, step)
    kind = ("int64" if made.dtype.kind in "iu" else "float32") if dtype is None else dtype
    return placed(made.astype(element_type(kind).numpy()), device)


def linspace(
    start: float, stop: float, num: int, dtype: Any = "float32", device: str = "cpu", endpoint: bool = True
) -> Tensor:
    """As numpy.linspace."""
    return placed(numpy.linspace(start, stop, num, endpoint).astype(element_type(dtype).numpy()), device)


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor of nested lists, numbers, a numpy array, or what shares memory through DLPack.

    Memory of the host is shared where it is contiguous and has the type that is asked for. device: None for where the
    object is. DTypeError for what is no tensor.
    """
    if isinstance(obj, Tensor):
        return obj.to(dtype, device)
    code, index = obj.__dlpack_device__() if hasattr(obj, "__dlpack_device__") else (1, 0)
    if code in _DEVICE_TYPES:
        name = f"{_DEVICE_TYPES[code]}:{index}"
        return Tensor(device_memory(name).adapter().convert(obj), name).to(dtype, device)
    array = numpy.asarray(obj)
    if array.dtype == object:
        raise DTypeError(f"{type(obj).__name__} has elements that are no numbers")
    if isinstance(obj, float | int | list | tuple) and array.dtype == numpy.float64 and dtype is None:
        array = array.astype(numpy.float32)
    return placed(array, "cpu").to(dtype, device)


_DEVICE_TYPES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
"""Types of devices whose memory the host does not read, by DLPack's codes (DLDeviceType in dlpack.h)."""

from_dlpack = asarray


def from_torch(tensor: Any) -> Tensor:
    """A torch tensor, whose memory is shared."""
    return asarray(tensor.detach())


def _like(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def create(data: Tensor, shape: Shape | None = None, dtype: Any = None, device: str | None = None) -> Tensor:
        given = (data.shape if shape is None else shape, data.dtype if dtype is None else dtype)
        return make(*given, device=data.device if device is None else device)

    create.__doc__ = f"`{make.__name__}` with the shape, type and device of another tensor where none is given."
    create.__name__ = create.__qualname__ = f"{make.__name__}_like"
    return create


def symbol(shape: Sequence[Any], dtype: Any = "float32", device: str = "cpu") -> Tensor:
    """A symbolic tensor, an input of a graph. shape: a text is the name of a size that calls may choose."""
    extents = tuple(dims.symbol(extent) if isinstance(extent, str) else extent for extent in shape)
    return Tensor(None, device_name(device), (extents, element_type(dtype)))


empty_like, zeros_like, ones_like, randn_like = map(_like, (empty, zeros, ones, randn))
symbol_like = _like(symbol)


def full_like(data: Tensor, fill_value: float, dtype: Any = None, device: str | None = None) -> Tensor:
    """`full` with the shape, type and device of another tensor where none is given."""
    kind, place = data.dtype if dtype is None else dtype, data.device if device is None else device
    return full(data.shape, fill_value, kind, place)
