"""The types that scripts name: `f32`, `f32x4`, `f32[m, n]`, `~f32`, `~~f32`, `void`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import DTypeError, suggestion
from hidet.ir import build
from hidet.ir.expr import Const, Expr
from hidet.ir.expr_text import print_expr
from hidet.ir.types import MemorySpace, PointerType, ValueType, VectorType
from hidet.lang.source import place_of

Extent = int | DimExpr | Expr

POINTER_WORD = dtypes.i64
"""How a pointer lies in memory."""
UNBOUNDED = 1 << 62
"""The extent of memory behind a pointer, which nobody knows."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueKind:
    """A scalar, vector or pointer type. `f32[4, n]` makes a tensor type of it, `~f32` a pointer type, and in a script
    `f32(x)` converts. It equals the type it stands for, so that `tensor.dtype == f32` holds."""

    type: ValueType

    def __eq__(self, other: object) -> bool:
        return self.type == (other.type if isinstance(other, ValueKind) else other)

    def __hash__(self) -> int:
        return hash(self.type)

    @property
    def name(self) -> str:
        """As numpy and torch call it: "float32"."""
        return self._scalar().name if isinstance(self.type, DType) else str(self.type)

    @property
    def nbytes(self) -> int:
        """Bytes of a value."""
        if isinstance(self.type, PointerType):
            return POINTER_WORD.nbytes
        return self.type.nbytes if isinstance(self.type, DType) else self.type.dtype.nbytes * self.type.lanes

    @property
    def zero(self) -> Const:
        """Zero of this type."""
        return self._constant(0)

    @property
    def one(self) -> Const:
        """One of this type."""
        return self._constant(1)

    @property
    def min_value(self) -> Const:
        """The lowest finite value of this type."""
        return self._constant(self._scalar().min)

    @property
    def max_value(self) -> Const:
        """The largest finite value of this type."""
        return self._constant(self._scalar().max)

    def _scalar(self) -> DType:
        if not isinstance(self.type, DType):
            raise DTypeError(f"{self} is no scalar type")
        return self.type

    def _constant(self, value: float) -> Const:
        return build.const(value, self._scalar())

    def __getitem__(self, shape: Any) -> TensorKind:
        extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        for extent in extents:
            is_integer = isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0
            if not (is_integer or isinstance(extent, DimExpr | Expr)):
                # Python evaluates most annotations before a script is read, so that nothing else tells the place.
                raise DTypeError(
                    f"{self}[...] takes extents, got {extent!r}",
                    loc=place_of(sys._getframe(1)),
                    hint="an integer from 0 on, or a symbol: hidet.symbol_var('n')",
                )
        return tensor_type(self, extents)

    def __invert__(self) -> ValueKind | TensorKind:
        if isinstance(self.type, VectorType):
            raise DTypeError(
                f"pointers point to scalars: write ~{self.type.dtype.short} instead of ~{self}",
                hint=f"load(p, i, {self}) reads several elements at once, store(p, i, value) writes them",
            )
        return ValueKind(PointerType(self.type)) if isinstance(self.type, DType) else self[UNBOUNDED]

    def __call__(self, value: Any) -> Any:
        """In a script: `value` converted to this type."""
        raise DTypeError(f"{self}(...) converts values inside of scripts only")

    def __str__(self) -> str:
        return str(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class TensorKind:
    """The type of a tensor parameter. An extent may be a symbol, found from arguments.

    layout: None for row-major. pointee: elements are pointers of this type, which lie in memory as `element`.
    """

    element: DType | VectorType
    shape: tuple[Extent, ...]
    space: MemorySpace = "global"
    layout: Any = None
    pointee: PointerType | None = None

    @property
    def is_pointer(self) -> bool:
        """Whether it is `~~f32`: a pointer to pointers, of which there are as many as the caller has."""
        return self.shape == (UNBOUNDED,)

    @property
    def dtype(self) -> DType:
        """Type of the numbers."""
        return self.element if isinstance(self.element, DType) else self.element.dtype

    def __invert__(self) -> ValueKind:
        if self.pointee is not None:
            raise DTypeError(f"~{self} does not exist: pointers point to scalars or to pointers to scalars")
        return ValueKind(PointerType(self.dtype, self.space))

    def __str__(self) -> str:
        if self.is_pointer:
            return f"~{self.pointee}"
        return f"{self.pointee or self.element}[{', '.join(map(shown_extent, self.shape))}]"


def shown_extent(extent: Extent) -> str:
    """An extent as messages show it."""
    return print_expr(extent) if isinstance(extent, Expr) else str(extent)


@dataclass(frozen=True, slots=True)
class TypeList:
    """The types of several parameters under one name; see `hidet.lang.meta.types`."""

    types: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class VoidKind:
    """The result of a function that returns nothing; `~void` is a pointer to bytes."""

    def __invert__(self) -> ValueKind:
        return ValueKind(PointerType(dtypes.u8))

    def __str__(self) -> str:
        return "void"


void = VoidKind()
void_p = byte_p = ValueKind(PointerType(dtypes.u8))
_NAMED: dict[str, ValueKind | VoidKind] = {
    "void": void,
    **dict.fromkeys(("void_p", "void_pointer", "byte_p"), void_p),
}

DECLARATIONS = ("tensor", "register_tensor", "shared_tensor", "tensor_pointer", "as_tensor_pointer")
"""Functions of `hidet.lang` that scripts import from here too."""

_PYTHON_TYPES: dict[object, DType] = {int: dtypes.i64, float: dtypes.f32, bool: dtypes.boolean}


class DeclareScope(StrEnum):
    """Where `tensor` declares memory; the text alone, "shared", says the same."""

    Default = "default"
    Global = "global"
    Shared = "shared"
    Register = "register"


def tensor_type(dtype: object, shape: Sequence[Extent] | None = None, layout: Any = None) -> TensorKind:
    """The type of a tensor, as `f32[4, n]`, with a layout of `hidet.lang.layout`.

    shape: None for that of the layout. layout: None for row-major. DTypeError without both.
    """
    if shape is None and layout is None:
        raise DTypeError("a tensor type needs a shape or a layout")
    extents = tuple(layout.shape if shape is None else shape)
    element = value_type(dtype)
    if isinstance(element, PointerType):
        return TensorKind(POINTER_WORD, extents, layout=layout, pointee=element)
    return TensorKind(element, extents, layout=layout)


def vectorize(dtype: object, lanes: object) -> ValueKind:
    """The vector type of `lanes` elements. DTypeError unless `dtype` is a scalar type and lanes is positive."""
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise DTypeError(f"a vector has a positive number of lanes, got {lanes!r}")
    scalar = dtype_of(dtype)
    return ValueKind(scalar if lanes == 1 else VectorType(scalar, lanes))


def kind_named(name: str) -> ValueKind | VoidKind | None:
    """What scripts import as `name`: `f32`, `float32`, `f32x4`, `void`; None for other names."""
    if name in _NAMED:
        return _NAMED[name]
    scalar, lanes = _SCALARS.get(name), ""
    if scalar is None:
        base, _, lanes = name.rpartition("x")
        scalar = _SCALARS.get(base)
        if scalar is None or not lanes.isdigit() or lanes.startswith("0"):
            return None
    return vectorize(scalar, int(lanes or 1))


def value_type(given: object) -> ValueType:
    """The scalar, vector or pointer type that `given` stands for: a type of this file, a `DType`, its name, or Python's
    int, float or bool. DTypeError for everything else."""
    if isinstance(given, ValueKind):
        return given.type
    if isinstance(given, DType | VectorType | PointerType):
        return given
    if isinstance(given, str):
        return dtypes.dtype(given)
    try:
        return _PYTHON_TYPES[given]
    except (KeyError, TypeError):
        raise DTypeError(f"{given!r} is no type", hint=suggestion(str(given), _SCALARS)) from None


def dtype_of(given: object) -> DType:
    """As `value_type`, for scalars only."""
    found = value_type(given)
    if not isinstance(found, DType):
        raise DTypeError(f"expected a scalar type, got {found}")
    return found


def __getattr__(name: str) -> Any:
    if name in DECLARATIONS:
        from hidet.lang.values import Primitive

        return Primitive(name)
    kind = kind_named(name)
    if kind is None:
        raise AttributeError(f"module 'hidet.lang.types' has no attribute {name!r}")
    return kind


_SCALARS = {name: entry for entry in dtypes.ALL_DTYPES for name in (entry.name, entry.short)}
_SCALARS |= {"boolean": dtypes.boolean, "float8_e4m3": dtypes.f8e4m3, "tfloat32": dtypes.tf32}
SCALAR_NAMES = tuple(_SCALARS)
