"""The types that scripts name: `f32`, `f32x4`, `f32[m, n]`, `~f32`, `void`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import DTypeError, suggestion
from hidet.ir.expr import Expr
from hidet.ir.types import MemorySpace, PointerType, ValueType, VectorType

Extent = int | DimExpr | Expr


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A scalar, vector or pointer type. `f32[4, n]` makes a tensor type of it, `~f32` a pointer type, and in a script
    `f32(x)` converts."""

    type: ValueType

    def __getitem__(self, shape: Any) -> TensorKind:
        extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        if not isinstance(self.type, DType | VectorType):
            raise DTypeError(f"there are no tensors of pointers: {self}[{shape}]")
        for extent in extents:
            is_integer = isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0
            if not (is_integer or isinstance(extent, DimExpr | Expr)):
                raise DTypeError(
                    f"{self}[...] takes extents, got {extent!r}",
                    hint="an integer, or a symbol made by hidet.symbol_var",
                )
        return TensorKind(self.type, extents)

    def __invert__(self) -> ValueKind:
        if not isinstance(self.type, DType):
            raise DTypeError(f"pointers point to scalars: ~{self} does not exist")
        return ValueKind(PointerType(self.type))

    def __call__(self, value: Any) -> Any:
        """In a script: `value` converted to this type."""
        raise DTypeError(f"{self}(...) converts values inside of scripts only")

    def __str__(self) -> str:
        return str(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class TensorKind:
    """The type of a tensor parameter: row-major, in global memory. An extent may be a symbol, found from arguments."""

    element: DType | VectorType
    shape: tuple[Extent, ...]
    space: MemorySpace = "global"

    @property
    def dtype(self) -> DType:
        """Type of the numbers."""
        return self.element if isinstance(self.element, DType) else self.element.dtype

    def __invert__(self) -> ValueKind:
        return ValueKind(PointerType(self.dtype, self.space))

    def __str__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class VoidKind:
    """The result of a function that returns nothing; `~void` is a pointer to bytes."""

    def __invert__(self) -> ValueKind:
        return ValueKind(PointerType(dtypes.u8))

    def __str__(self) -> str:
        return "void"


void = VoidKind()
void_p = byte_p = ValueKind(PointerType(dtypes.u8))

_PYTHON_TYPES: dict[object, DType] = {int: dtypes.i64, float: dtypes.f32, bool: dtypes.boolean}


def vectorize(dtype: object, lanes: object) -> ValueKind:
    """The vector type of `lanes` elements. DTypeError unless `dtype` is a scalar type and lanes is positive."""
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise DTypeError(f"a vector has a positive number of lanes, got {lanes!r}")
    scalar = dtype_of(dtype)
    return ValueKind(scalar if lanes == 1 else VectorType(scalar, lanes))


def kind_named(name: str) -> ValueKind | VoidKind | None:
    """What scripts import as `name`: `f32`, `float32`, `f32x4`, `void`; None for other names."""
    if name in ("void", "void_p", "byte_p"):
        return void if name == "void" else void_p
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
    kind = kind_named(name)
    if kind is None:
        raise AttributeError(f"module 'hidet.lang.types' has no attribute {name!r}")
    return kind


_SCALARS = {name: entry for entry in dtypes.ALL_DTYPES for name in (entry.name, entry.short)}
_SCALARS |= {"boolean": dtypes.boolean, "float8_e4m3": dtypes.f8e4m3, "tfloat32": dtypes.tf32}
SCALAR_NAMES = tuple(_SCALARS)
