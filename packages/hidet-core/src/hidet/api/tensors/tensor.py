"""`hidet.Tensor`: memory of the host or of a device that scripts and compiled modules are called with.

It lies in a numpy array, or in an array of the device's target, and shares both with other libraries. A symbolic tensor
has no memory: it remembers how it is computed. Arithmetic is that of `hidet.ops`, which compiles every operator.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import LaunchError, ShapeError
from hidet.notebook import Shown
from hidet.plugins.attributes import member
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.target import DeviceMemory

Shape = int | Sequence[int]
"""Extents, or the one of a tensor with a single axis."""
Outline = tuple[tuple[Any, ...], DType]
"""Shape and element type of a tensor without elements."""


class Device(str):
    """Where memory is, a text: "cpu", "cuda:0"."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The type of devices: "cuda"."""
        return self.partition(":")[0]

    @property
    def id(self) -> int | None:
        """Its number among those of its type; None for the host."""
        number = self.partition(":")[2]
        return int(number) if number else None

    def is_cpu(self) -> bool:
        """Whether it is the host."""
        return self.kind == "cpu"

    def is_cuda(self) -> bool:
        """Whether it is an NVIDIA GPU."""
        return self.kind == "cuda"


class Tensor(Shown):
    """Contiguous elements of one type, or a symbolic tensor, which has none.

    storage: a numpy array on the host, else an array of the device's target; None for a symbolic tensor. trace: the
    operation that gives a symbolic tensor and the number of the result; None for an input.
    """

    __hash__ = object.__hash__

    def __init__(self, storage: Any, device: str, outline: Outline | None = None, trace: Any = None) -> None:
        """outline: of a symbolic tensor."""
        self.storage = storage
        self.trace = trace
        self._device = device
        self._outline = outline

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # What plug-ins add.
            return member(self, "hidet.Tensor", name)

    def is_symbolic(self) -> bool:
        """Whether it has no elements, but may be computed from others that will have."""
        return self._outline is not None

    @property
    def op(self) -> Any:
        """The operation that gives a symbolic tensor, None for others."""
        return None if self.trace is None else self.trace[0]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents; those of a symbolic tensor may be symbols."""
        return tuple(self.storage.shape) if self._outline is None else self._outline[0]

    @property
    def dtype(self) -> DType:
        """Element type."""
        if self._outline is not None:
            return self._outline[1]
        return dtypes.from_numpy(self.storage.dtype) if self._is_on_host else self.storage.dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return Device(self._device)

    @property
    def size(self) -> int:
        """How many elements there are."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.size * self.dtype.nbytes

    @property
    def _is_on_host(self) -> bool:
        return self._device == "cpu"

    def to(self, dtype: Any = None, device: str | None = None) -> Tensor:
        """This tensor with another type or on another device; itself where it has both already."""
        target = self._device if device is None else device_name(device)
        kind = self.dtype if dtype is None else element_type(dtype)
        if self.is_symbolic() and target == self._device:
            return self if kind is self.dtype else _operator("cast")(self, kind)
        if target == self._device and kind is self.dtype:
            return self
        return placed(self.numpy().astype(kind.numpy()), target)

    def cpu(self) -> Tensor:
        """The tensor on the host."""
        return self.to(device="cpu")

    def cuda(self, device: int | str | None = None) -> Tensor:
        """The tensor on a GPU; None for the first."""
        return self.to(device=device if isinstance(device, str) else f"cuda:{device or 0}")

    def astype(self, dtype: Any) -> Tensor:
        """The tensor with elements of another type."""
        return self.to(dtype)

    def copy(self) -> Tensor:
        """A tensor with memory of its own."""
        return placed(self.numpy().copy(), self._device)

    def reshape(self, shape: Shape) -> Tensor:
        """A copy with other extents; one of them may be -1."""
        if self.is_symbolic():
            return _operator("reshape")(self, extents_of(shape))
        return placed(self.numpy().reshape(extents_of(shape)).copy(), self._device)

    def numpy(self) -> Any:
        """The elements as a numpy array: the memory itself on the host, else a copy. LaunchError for a symbolic one."""
        if self.storage is None:
            raise LaunchError(
                "a symbolic tensor has no elements", hint="hidet.trace_from makes a graph that gives them"
            )
        return self.storage if self._is_on_host else self.storage.numpy()

    def torch(self) -> Any:
        """A torch tensor over the same memory. LaunchError without torch."""
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise LaunchError("Tensor.torch needs torch, which is not installed") from error
        kind = self.dtype
        if self._is_on_host and kind.numpy().isbuiltin != 1:
            # DLPack of numpy knows its own types only.
            return torch.from_dlpack(self.storage.view(f"i{kind.nbytes}")).view(getattr(torch, kind.name))
        return torch.from_dlpack(self.storage)

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """The only element as a Python number. ShapeError when there are several."""
        if self.size != 1:
            raise ShapeError(f"item() is of tensors with one element, this one has {self.size}")
        return self.numpy().reshape(-1)[0].item()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dims has no length")
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For numpy: the memory of the host, or a copy of the device's."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """For functions of torch, which get tensors of torch over the same memory. Python's operators are hidet's."""
        is_method = "Tensor" in getattr(function, "__qualname__", "")
        if is_method and function.__name__.strip("_") in _OPERATORS_OF_TORCH:
            return NotImplemented
        return function(*map(_of_torch, given), **{name: _of_torch(value) for name, value in (named or {}).items()})

    def __dlpack__(self, **options: Any) -> Any:
        """For libraries that share memory."""
        return self.storage.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the device."""
        device: tuple[int, int] = self.storage.__dlpack_device__()
        return device

    def __repr__(self) -> str:
        listed = ", ".join(map(str, self.shape))
        shape = f"({listed},)" if len(self.shape) == 1 else f"({listed})"
        head = f"Tensor(shape={shape}, dtype='{self.dtype.name}', device='{self._device}')"
        if self.storage is None:
            return head if self.trace is None else f"{head}\nfrom {self.trace}"
        return f"{head}\n{numpy.array2string(self.numpy(), precision=2, suppress_small=True)}"

    def __getitem__(self, index: Any) -> Tensor:
        """A part, for integers, slices, None and ...; rows for a tensor of integers."""
        taken: Tensor = importlib.import_module("hidet.api.flow.movement").getitem(self, index)
        return taken

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __neg__(self) -> Tensor:
        return _operator("neg")(self)

    def __invert__(self) -> Tensor:
        return _operator("bitwise_not")(self)

    def sum(self, dims: Shape | None = None, keep_dim: bool = False) -> Tensor:
        """The sum along dims, None for all."""
        return _operator("sum")(self, dims, keep_dim)

    def mean(self, dims: Shape | None = None, keep_dim: bool = False) -> Tensor:
        """The average along dims, None for all."""
        return _operator("mean")(self, dims, keep_dim)

    def squeeze(self, dims: Shape) -> Tensor:
        """Without dims of extent 1."""
        return _operator("squeeze")(self, dims)

    def unsqueeze(self, dims: Shape) -> Tensor:
        """With new dims of extent 1."""
        return _operator("unsqueeze")(self, dims)

    def view(self, dtype: Any = None, shape: Shape | None = None) -> Tensor:
        """The bytes as another type, or with other extents."""
        return _operator("view")(self, dtype, None if shape is None else extents_of(shape))

    def expand(self, *sizes: int) -> Tensor:
        """With dims of extent 1 repeated; -1 leaves one as it is."""
        fixed = len(sizes) - len(self.shape)
        extents = [self.shape[dim - fixed] if size == -1 else size for dim, size in enumerate(sizes)]
        return _operator("broadcast")(self, extents)

    def float(self) -> Tensor:
        """With elements of type float32."""
        return self.to("float32")

    def detach(self) -> Tensor:
        """The tensor itself: hidet computes no gradients."""
        return self

    def contiguous(self) -> Tensor:
        """The tensor itself: its elements always lie in row-major order."""
        return self

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """With two dims exchanged."""
        order = list(range(len(self.shape)))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return _operator("transpose")(self, order)


def _operator(name: str) -> Callable[..., Tensor]:
    """A function of `hidet.ops`, which compiles and so lies above this."""
    found: Callable[..., Tensor] = importlib.import_module("hidet.api.flow.functions").function(name)
    return found


def _of_torch(given: Any) -> Any:
    """An argument with tensors of torch in the place of hidet's."""
    if isinstance(given, list | tuple):
        return type(given)(map(_of_torch, given))
    return given.torch() if isinstance(given, Tensor) else given


def is_array(other: Any) -> bool:
    """Whether an object is an array of another library that may stand for a tensor. Numpy's are not: their arithmetic
    takes tensors on the right, and gives numpy arrays."""
    return not isinstance(other, Tensor) and hasattr(other, "__dlpack__") and not hasattr(other, "__array_ufunc__")


def _arithmetic(operator: str, is_reflected: bool) -> Callable[[Tensor, Any], Any]:
    def compute(self: Tensor, other: Any) -> Any:
        if isinstance(other, numpy.ndarray) and not is_reflected:
            other = placed(other, self._device)
        if not isinstance(other, Tensor | bool | int | float) and not is_array(other):
            return NotImplemented
        pair = (other, self) if is_reflected else (self, other)
        # It compiles, and so lies above this.
        return importlib.import_module("hidet.api.flow.arithmetic").compute(operator, *pair)

    return compute


# `==` stays whether two names mean one tensor: tensors are keys of tables.
_ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "shift_left",
    "rshift": "shift_right",
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
for _name, _function in {**_ARITHMETIC, **_COMPARISONS}.items():
    setattr(Tensor, f"__{_name}__", _arithmetic(_function, is_reflected=False))
for _name, _function in _ARITHMETIC.items():
    setattr(Tensor, f"__r{_name}__", _arithmetic(_function, is_reflected=True))


_OPERATORS_OF_TORCH = frozenset(
    [*_ARITHMETIC, *_ARITHMETIC.values(), *(f"r{name}" for name in _ARITHMETIC), *_COMPARISONS, "true_divide"]
)
"""What torch calls Python's operators."""


def element_type(given: Any) -> DType:
    """A DType, its name, or the type of the same name that scripts use."""
    return dtypes.dtype(getattr(given, "type", given))


def extents_of(shape: Shape) -> tuple[int, ...]:
    """Extents, of which a single one may stand for itself."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def device_name(device: str) -> str:
    """The device in full: a type of devices alone ("cuda") is the first of them, but for the host, which is one."""
    return device if device == "cpu" or ":" in device else f"{device}:0"


def device_memory(device: str) -> DeviceMemory:
    """How memory of a device is made. LaunchError where its target has none."""
    registry = load_registry()
    name, _, index = registry.target_of_device(device).partition(":")
    make_target: Any = registry.target(name).resolve()
    memory: DeviceMemory | None = make_target(index).memory
    if memory is None:
        raise LaunchError(f"target {name} has no memory of its own", hint="device='cpu' is the host")
    return memory


def placed(array: Any, device: str) -> Tensor:
    """A tensor with the elements of a numpy array: over its memory on the host."""
    name = device_name(device)
    dense = numpy.ascontiguousarray(array).reshape(array.shape)
    return Tensor(dense, name) if name == "cpu" else Tensor(device_memory(name).place(dense), name)
