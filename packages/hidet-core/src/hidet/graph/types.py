"""Types of graph values. Strides are in elements; None means row-major contiguous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hidet.dims import Dim, DimExpr, prove_equal, prove_le
from hidet.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor.

    shape: extents, outermost first; any may be symbolic.
    strides: distance in elements between neighbours along each axis; 0 repeats an element; None is row-major.
    device: "cpu", "cuda:0", …
    alignment: bytes the address of element zero is known to be a multiple of.
    """

    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None = None
    device: str = "cpu"
    alignment: int = 1
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    _dense: tuple[Dim, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        if self._hash is None:
            # Types are part of what nodes and tasks are recognised by, so the answer is kept.
            known = hash((self.dtype, self.shape, self.strides, self.device, self.alignment))
            object.__setattr__(self, "_hash", known)
            return known
        return self._hash

    def __str__(self) -> str:
        text = f"{self.dtype.short}[{', '.join(map(str, self.shape))}]"
        if self.strides is not None:
            text += f"{{{', '.join(map(str, self.strides))}}}"
        return text if self.device == "cpu" else f"{text}@{self.device}"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_symbolic(self) -> bool:
        """Whether an extent or a stride is known at run time alone."""
        return DimExpr in map(type, self.shape) or (self.strides is not None and DimExpr in map(type, self.strides))

    @property
    def element_strides(self) -> tuple[Dim, ...]:
        """The strides, row-major ones made explicit."""
        if self.strides is not None:
            return self.strides
        if self._dense is None:
            object.__setattr__(self, "_dense", contiguous_strides(self.shape))
        assert self._dense is not None
        return self._dense

    @property
    def is_contiguous(self) -> bool:
        """Whether the strides are provably row-major; axes of extent one do not count."""
        if self.strides is None:
            return True
        expected = contiguous_strides(self.shape)
        return all(n == 1 or prove_equal(s, e) for n, s, e in zip(self.shape, self.strides, expected, strict=True))

    @property
    def is_dense(self) -> bool:
        """Whether its elements, in some order of the axes, lie next to each other."""
        if self.is_contiguous:
            return True
        pairs = [pair for pair in zip(self.shape, self.element_strides, strict=True) if pair[0] != 1]
        shape, strides = [extent for extent, _ in pairs], tuple([stride for _, stride in pairs])
        order = order_of_strides(strides)
        return order is not None and strides_of_order(shape, order) == strides

    def with_strides(self, strides: Sequence[Dim] | None) -> TensorType:
        """The same tensor laid out differently."""
        given = None if strides is None else tuple(strides)
        return TensorType(self.dtype, self.shape, given, self.device, self.alignment)


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"sequence<{self.element}>"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: ValueType

    def __str__(self) -> str:
        return f"optional<{self.element}>"


@dataclass(frozen=True, slots=True)
class DimType:
    """An integer known by its symbolic value: a SymInt of torch, a size computed from a shape."""

    dim: Dim

    def __str__(self) -> str:
        return f"dim({self.dim})"


ValueType = TensorType | SequenceType | OptionalType | DimType


def is_host_value(type_: ValueType) -> bool:
    """Whether values of a type are Python objects on the host: sequences, optional values and tensors of strings."""
    return type_.dtype.is_host_only if isinstance(type_, TensorType) else not isinstance(type_, DimType)


def dims_of(type_: ValueType) -> Iterator[Dim]:
    """The sizes in a type: extents and explicit strides."""
    if isinstance(type_, TensorType):
        yield from type_.shape
        yield from type_.strides or ()
    elif isinstance(type_, SequenceType | OptionalType):
        yield from dims_of(type_.element)
    else:
        yield type_.dim


def fits(type_: ValueType, expected: ValueType) -> bool:
    """Whether two types can describe one value; layouts and devices may differ, sizes if they may be equal."""
    if isinstance(type_, TensorType) and isinstance(expected, TensorType):
        return type_.dtype == expected.dtype and may_be_same_shape(type_.shape, expected.shape)
    if isinstance(type_, DimType) and isinstance(expected, DimType):
        return prove_equal(type_.dim, expected.dim) is not False
    if isinstance(type_, SequenceType) and isinstance(expected, SequenceType):
        return fits(type_.element, expected.element)
    if isinstance(type_, OptionalType) and isinstance(expected, OptionalType):
        return fits(type_.element, expected.element)
    return False


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are provably equal."""
    a, b = tuple(a), tuple(b)
    if a == b or len(a) != len(b):
        return a == b
    is_symbolic = DimExpr in map(type, a) or DimExpr in map(type, b)
    return is_symbolic and all(prove_equal(m, n) is True for m, n in zip(a, b, strict=True))


def may_be_same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are not provably different."""
    a, b = tuple(a), tuple(b)
    if a == b or len(a) != len(b):
        return a == b
    is_symbolic = DimExpr in map(type, a) or DimExpr in map(type, b)
    return is_symbolic and all(prove_equal(m, n) is not False for m, n in zip(a, b, strict=True))


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides of `shape`; an axis of extent zero counts as one."""
    strides: list[Dim] = []
    running: Dim = 1
    for extent in reversed(shape):
        strides.append(running)
        running = running * (extent if extent != 0 else 1)
    return tuple(reversed(strides))


def strides_of_order(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    """Dense strides whose axes lie in memory in `order`, outermost first; order (0, 2, 3, 1) is channels-last."""
    permuted = contiguous_strides([shape[axis] for axis in order])
    strides: list[Dim] = [0] * len(shape)
    for axis, stride in zip(order, permuted, strict=True):
        strides[axis] = stride
    return tuple(strides)


def order_of_strides(strides: Sequence[Dim]) -> tuple[int, ...] | None:
    """Axes by falling stride, as `strides_of_order` takes them; None where it is not known which of two is larger."""
    order: list[int] = []
    for axis, stride in enumerate(strides):
        place = len(order)
        while place and prove_le(stride, strides[order[place - 1]]) is not True:
            if prove_le(strides[order[place - 1]], stride) is not True:
                return None
            place -= 1
        order.insert(place, axis)
    return tuple(order)
