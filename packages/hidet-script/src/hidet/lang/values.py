"""What names in a script can stand for, besides numbers, expressions of the thread IR and other Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hidet.dtypes import DType
from hidet.errors import ScriptError, ShapeError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import AddressOf, Bitcast, Const, Expr, Load, Var
from hidet.ir.types import BufferType, PointerType, with_lanes
from hidet.lang import operators
from hidet.lang.facts import IndexFacts
from hidet.lang.layout import Layout
from hidet.lang.operand import Operand, unwrapped, wrapped
from hidet.lang.types import POINTER_WORD, Extent, shown_extent
from hidet.loc import Loc


@dataclass(frozen=True, slots=True)
class Window:
    """One axis of the memory of a tensor: where the tensor starts on it; None as extent for an axis it has fixed."""

    start: Expr
    extent: Extent | None


@dataclass(frozen=True, slots=True, eq=False)
class TensorValue:
    """A tensor in a script: memory, and where its elements lie in it.

    base: a buffer variable, or a pointer to the first element. layout: offsets of elements from `base`; None when
    `base` is a buffer that takes one index an axis. axes: one a dim of the memory; slices narrow or fix them.
    facts: what the script knows about indices. pointee: elements are pointers of this type, and words in memory.
    """

    base: Expr
    axes: tuple[Window, ...]
    layout: Layout | None = None
    facts: IndexFacts = field(default_factory=IndexFacts)
    pointee: PointerType | None = None

    def __str__(self) -> str:
        return f"a tensor {self.pointee or self.element}[{', '.join(map(shown_extent, self.shape))}]"

    @property
    def dtype(self) -> DType:
        """Type of the numbers."""
        return self.base.dtype

    @property
    def element(self) -> Any:
        """Type of an element: a scalar or vector type."""
        type_ = self.base.type
        return with_lanes(type_.dtype, type_.lanes) if isinstance(type_, BufferType) else self.dtype

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Extents: numbers, or expressions for those known at run time only."""
        return tuple(axis.extent for axis in self.axes if axis.extent is not None)

    def place(self, indices: Sequence[object], is_guarded: bool = False) -> tuple[Expr, ...]:
        """Indices into `base` of an element. is_guarded: places outside are never reached.

        ShapeError for another number of indices than dims, and for constants outside unless guarded.
        """
        if len(indices) != len(self.shape):
            raise ShapeError(f"a tensor of {len(self.shape)} dims takes as many indices, got {len(indices)}")
        rest = enumerate(indices)
        places = []
        for axis in self.axes:
            if axis.extent is None:
                places.append(axis.start)
                continue
            number, given = next(rest)
            index = operators.index(given)
            if not is_guarded:
                _check_index(index, axis.extent, number)
            places.append(index + axis.start)
        if self.layout is None:
            return tuple(places)
        return (build.index(self.layout.offset(places, self.facts)),)

    def read(self, indices: Sequence[object], is_guarded: bool = False) -> Expr:
        """The element at `indices`; see `place`."""
        element = Load(self.base, self.place(indices, is_guarded), self.element)
        return element if self.pointee is None else Bitcast(element, self.pointee)

    def write(self, indices: Sequence[object], value: object, is_guarded: bool = False) -> s.Store:
        """The statement that writes the element at `indices`; the value is converted."""
        place = self.place(indices, is_guarded)
        if self.pointee is None:
            return s.Store(self.base, place, operators.convert(value, self.element, "the value stored"))
        pointer = operators.convert(operators.decayed(value), self.pointee, "the pointer stored")
        return s.Store(self.base, place, Bitcast(pointer, POINTER_WORD))

    def __getitem__(self, key: Any) -> Any:
        """For functions of users that a script calls: an element, or a part."""
        keys = unwrapped(key if isinstance(key, tuple) else (key,))
        if len(keys) < len(self.shape) or any(isinstance(one, slice) for one in keys):
            return self.part(keys)
        return Operand(self.read(keys))

    # Python would take what has indices for a sequence, whose end a tensor does not know.
    __iter__ = None

    def address(self, indices: Sequence[object]) -> Expr:
        """The pointer to the element at `indices`."""
        return build.address(self.base, *self.place(indices))

    def start(self) -> Expr:
        """The pointer to the first element; a buffer or pointer that starts there stands for itself."""
        if isinstance(self.base.type, PointerType) and self.layout is not None and not self.is_window:
            return self.base
        return self.address([0] * len(self.shape)) if self.is_window or self.layout is None else self.base

    @property
    def is_window(self) -> bool:
        """Whether it shows a part of its memory only."""
        return any(axis.extent is None or not _is_zero(axis.start) for axis in self.axes)

    @property
    def is_dense(self) -> bool:
        """Whether elements lie next to each other in row-major order; the layout, if there is one, is row-major."""
        whole = self.base.type.shape if self.layout is None and isinstance(self.base.type, BufferType) else None
        extents = self.layout.shape if self.layout is not None else whole or ()
        is_inside = False
        for axis, extent in zip(self.axes, extents, strict=False):
            if is_inside and not (_is_zero(axis.start) and _is_same(axis.extent, extent)):
                return False
            is_inside = is_inside or axis.extent is not None
        return True

    def part(self, keys: Sequence[object]) -> TensorValue:
        """The tensor at some indices: slices narrow a dim, integers fix it, dims without key stay whole.

        ShapeError for more keys than dims, for slices with a step, and for constants outside.
        """
        if len(keys) > len(self.shape):
            raise ShapeError(f"a tensor of {len(self.shape)} dims takes at most as many indices, got {len(keys)}")
        # The address of an element may be that of the end.
        is_element = len(keys) == len(self.shape) and not any(isinstance(key, slice) for key in keys)
        rest = enumerate(keys)
        axes = []
        for axis in self.axes:
            if axis.extent is None:
                axes.append(axis)
                continue
            number, key = next(rest, (0, slice(None)))
            if not isinstance(key, slice):
                index = operators.index(key)
                if not is_element:
                    _check_index(index, axis.extent, number)
                axes.append(Window(axis.start + index, None))
                continue
            if key.step is not None:
                raise ShapeError("a slice of a tensor has no step: stride the indices instead")
            axes.append(_narrowed(axis, key, number))
        return replace(self, axes=tuple(axes))


def _check_index(index: Expr, extent: Extent, number: int) -> None:
    """ShapeError for a constant outside of a constant extent, that of dim `number`."""
    value = _constant(index)
    if isinstance(extent, int) and value is not None and not 0 <= value < extent:
        raise ShapeError(f"index {value} of dim {number} is outside of its {extent} elements")


def _constant(value: Extent) -> int | None:
    """The number that an extent or index is; None where it is known at run time only."""
    found = value.value if isinstance(value, Const) else value
    return found if isinstance(found, int) else None


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _is_same(a: Extent | None, b: Extent) -> bool:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return a is b
    plain = [x.value if isinstance(x, Const) else x for x in (a, b)]
    return isinstance(plain[0], int) and plain[0] == plain[1]


def _narrowed(axis: Window, key: slice, number: int) -> Window:
    """A slice of the axis that is dim `number`. ShapeError where constant bounds are outside of it, or reversed."""
    if key.start is None and key.stop is None:
        return axis
    assert axis.extent is not None
    start = operators.index(0 if key.start is None else key.start)
    stop = operators.index(axis.extent if key.stop is None else key.stop)
    whole = _constant(axis.extent)
    bounds = [bound for bound in map(_constant, (start, stop)) if bound is not None]
    shown = f"slice {shown_extent(start)}:{shown_extent(stop)} of dim {number}"
    if any(bound < 0 or (whole is not None and bound > whole) for bound in bounds):
        hint = "count from the start: a script has no negative indices" if min(bounds) < 0 else None
        raise ShapeError(f"{shown} is outside of its {shown_extent(axis.extent)} elements", hint=hint)
    extent = stop - start
    length = _constant(extent)
    if length is not None and length < 0:
        raise ShapeError(f"{shown} ends before it begins")
    return Window(axis.start + start, extent if length is None else length)


def tensor_of(
    base: Expr,
    shape: Sequence[Extent],
    layout: Layout | None = None,
    facts: IndexFacts | None = None,
    pointee: PointerType | None = None,
) -> TensorValue:
    """A whole tensor over a buffer or pointer."""
    axes = tuple(Window(build.index(0), extent) for extent in shape)
    return TensorValue(base, axes, layout, IndexFacts() if facts is None else facts, pointee)


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A variable whose address is taken: an array of one element. In expressions it stands for its value."""

    memory: Var

    def read(self) -> Expr:
        """The value now."""
        return build.load(self.memory, 0)

    def write(self, value: object, loc: Loc | None) -> s.Store:
        """The statement that gives it a value, converted to its type."""
        converted = operators.convert(value, build.load(self.memory, 0).type, f"the value of {self.memory.name}")  # type: ignore[arg-type]  # a value type
        return s.Store(self.memory, (build.index(0),), converted, None, loc)

    def address(self) -> Expr:
        """The pointer to it."""
        return build.address(self.memory, 0)


@dataclass(frozen=True, slots=True, eq=False)
class LatePointer:
    """A tensor behind a pointer that the script gives a value later: `tensor_pointer` without init."""

    tensor: TensorValue

    def point_to(self, value: object, loc: Loc | None) -> s.Assign:
        """The statement that lets it point elsewhere. DTypeError for what is no pointer to such elements."""
        variable = self.tensor.base
        assert isinstance(variable, Var) and isinstance(variable.type, PointerType)
        pointer = operators.decayed(value)
        type_ = pointer.type if isinstance(pointer, Expr) else None
        if isinstance(pointer, Expr) and isinstance(type_, PointerType) and type_.dtype == variable.dtype:
            pointer = AddressOf(pointer, (build.index(0),), variable.type)
        return s.Assign(variable, operators.convert(pointer, variable.type, f"the value of {variable.name}"), loc)


@dataclass(frozen=True, slots=True, eq=False)
class ThreadRange:
    """Some neighbouring threads of a block: whether a thread is one of them, and which, as an i32 from 0."""

    condition: Expr
    number: Expr


@dataclass(frozen=True, slots=True)
class Primitive:
    """A function that scripts call and Python does not: `cast`, `printf`, `register_tensor`, …

    meaning: a function of the translator and the arguments; None for the one in `hidet.lang.primitives`.
    """

    name: str
    meaning: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Raises ScriptError: only scripts call it, and they are not executed."""
        raise ScriptError(f"{self.name} is for scripts: functions under @hidet.script", hint="nothing executes it")


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A method of a tensor in a script, as `a.read`."""

    name: str
    owner: TensorValue


@dataclass(frozen=True, slots=True, eq=False)
class Inlined:
    """A lambda or function of a script: its body is translated anew wherever it is called."""

    apply: Callable[[Sequence[object]], object]

    def __call__(self, *arguments: Any) -> Any:
        """For Python functions that get it as an argument, such as `map`."""
        return wrapped(self.apply(unwrapped(arguments)))


def is_runtime(value: object) -> bool:
    """Whether a value is, or holds, something known at run time only."""
    if isinstance(value, tuple | list):
        return any(map(is_runtime, value))
    if isinstance(value, slice):
        return is_runtime((value.start, value.stop))
    return isinstance(value, Expr | TensorValue)
