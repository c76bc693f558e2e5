"""torch tensors for the runtime: element types, addresses, allocation, views."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import torch
from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, LaunchError
from hidet.plugins.host import load_registry
from hidet.runtime.adapter import TensorFacts
from hidet.torch import compat


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
    """A tensor as a numpy array, over the same memory if it is on the CPU; narrow floats get the types of ml_dtypes."""
    source = tensor.detach().resolve_conj().resolve_neg().cpu()
    kind = dtype_of(source.dtype).numpy()
    # 1 marks numpy's own types; those of ml_dtypes are registered with 2.
    if kind.isbuiltin == 1:
        return source.numpy()
    carrier = {1: torch.uint8, 2: torch.int16}[source.element_size()]
    return source.view(carrier).numpy().view(kind)


def device_for(name: str) -> torch.device:
    """Where torch has the tensors that a target's code on device `name` works on: there, where a target is for tensors
    of such devices, else on the CPU."""
    is_served = name.partition(":")[0] in load_registry().device_types
    return torch.device(name if is_served else "cpu")


class TorchAdapter:
    """torch's side of `hidet.runtime.adapter.CheckedAdapter`, for CPU tensors. Strides are in elements."""

    is_host = True
    finished: Callable[[Any], Any] | None = None

    # The unbound method itself: a call of it is cheaper than one through a Python function.
    pointer = staticmethod(torch.Tensor.data_ptr)

    @staticmethod
    def lie_at(tensors: Sequence[torch.Tensor], places: list[int]) -> bool:
        """One by one, or by one function of torch's where it has that."""
        return compat.lie_at(tensors, places)

    @staticmethod
    def empty(shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[torch.Tensor, int]:
        """A new uninitialised tensor and its address; torch aligns CPU memory to 64 bytes."""
        # Named, because the user may have set another default.
        tensor = torch.empty_strided(shape, strides, dtype=torch_dtype(dtype), device="cpu")
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
            return torch.empty(tuple(shape), dtype=kind, device="cpu")
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        memory = (ctypes.c_char * ((last + 1) * kind.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=kind).as_strided(tuple(shape), tuple(strides))

    @staticmethod
    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy values."""
        target.copy_(source)

    @staticmethod
    def stream() -> int:
        """CPU tensors have no stream."""
        return 0

    @staticmethod
    def memory_of(tensor: torch.Tensor) -> object:
        """The tensor's storage, which may outlive it."""
        return tensor.untyped_storage()

    @staticmethod
    def on(device: str) -> TorchAdapter:
        """The adapter for tensors on a device; that of the CPU where torch has none there."""
        place = device_for(device)
        return TorchAdapter() if place.type == "cpu" else DeviceAdapter(place)

    @staticmethod
    def convert(value: Any) -> torch.Tensor:
        """The value as a tensor; other libraries' arrays share their memory."""
        if isinstance(value, torch.Tensor):
            return value
        return torch.as_tensor(value, device=None if hasattr(value, "__cuda_array_interface__") else "cpu")

    @staticmethod
    def signature(tensor: torch.Tensor) -> Hashable:
        """What `describe` looks at."""
        layout = tensor.stride() if tensor.layout is torch.strided else None
        return (
            tensor.dtype,
            tensor.shape,
            layout,
            tensor.device,
            tensor.is_neg(),
            tensor.is_conj(),
            tensor.requires_grad and torch.is_grad_enabled(),
        )

    @staticmethod
    def outline(tensor: torch.Tensor) -> Hashable:
        """What `describe` looks at, of dense contiguous tensors without gradients, negations and conjugations pending.

        get_device says -1 for the CPU and for devices that `describe` refuses.
        """
        try:
            is_plain = tensor.is_contiguous() and not tensor.requires_grad and not tensor.is_neg()
        except RuntimeError:
            return None  # a sparse tensor does not say
        device = tensor.get_device()
        if not is_plain or tensor.is_conj() or (device < 0 and not tensor.is_cpu):
            return None
        return tensor.dtype, tensor.shape, device

    @staticmethod
    def guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
        """torch's own test of several tensors at once."""
        return compat.tensor_guard(tensors)

    @staticmethod
    def describe(tensor: torch.Tensor) -> TensorFacts:
        """LaunchError for sparse tensors and devices other than CPU and GPU, and where a gradient would be lost."""
        layout, device = tensor.layout, tensor.device
        if layout is not torch.strided:
            raise LaunchError(f"a tensor has layout {layout}, expected a dense one", hint="pass .to_dense() of it")
        if device.type not in load_registry().device_types:
            served = ", ".join(load_registry().device_types)
            raise LaunchError(
                f"a tensor is on {device}, for which no target is installed: expected {served}",
                hint="move it there first",
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise LaunchError(
                "a tensor requires a gradient, which a compiled graph does not compute",
                hint="call it under torch.no_grad(), or use torch.compile(model, backend='hidet')",
            )
        obstacle = None
        if tensor.is_neg():
            obstacle = "has its negative bit set: its memory holds the negated numbers"
        elif tensor.is_conj():
            obstacle = "has its conjugate bit set: its memory holds the conjugated numbers"
        return TensorFacts(
            dtype_of(tensor.dtype),
            tuple(tensor.shape),
            tensor.stride(),
            obstacle=obstacle,
            is_writable=obstacle is None,
            device=str(device),
        )

    @staticmethod
    def stream_of(tensor: torch.Tensor) -> int:
        """torch's current stream of the tensor's device."""
        index = tensor.get_device()
        return 0 if index < 0 else compat.current_stream(index)

    @staticmethod
    def laid_out(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
        """A copy."""
        made = torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype, device=tensor.device)
        return made.copy_(tensor)


class DeviceAdapter(TorchAdapter):
    """torch's side for the tensors of one CUDA device: memory of torch's allocator, work in torch's current stream."""

    is_host = False

    def __init__(self, device: torch.device) -> None:
        index: int | None = device.index
        self.device = torch.device(
            device.type, torch.get_device_module(device.type).current_device() if index is None else index
        )
        # Asked in every call of a kernel, so nothing of ours stands before torch's function.
        self.stream = compat.stream_reader(self.device.index)  # type: ignore[method-assign]

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> tuple[torch.Tensor, int]:  # type: ignore[override]
        """A new uninitialised tensor and its address; torch aligns memory of a device to 512 bytes."""
        tensor = torch.empty_strided(shape, strides, dtype=torch_dtype(dtype), device=self.device)
        return tensor, tensor.data_ptr()

    def wrap(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> torch.Tensor:  # type: ignore[override]
        """A tensor over memory of the device that someone else keeps alive while it is used."""
        kind = torch_dtype(dtype)
        if 0 in shape:
            return torch.empty(tuple(shape), dtype=kind, device=self.device)
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        flat = torch.as_tensor(_Bytes(address, (last + 1) * kind.itemsize), device=self.device).view(kind)
        return flat.as_strided(tuple(shape), tuple(strides))


class _Bytes:
    """Memory of a device as the CUDA array interface, version 3, describes it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "strides": None,
            "version": 3,
        }
