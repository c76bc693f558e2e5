"""Types of the thread IR: scalars, SIMD vectors, pointers and buffers.

A scalar type is a plain `DType`. Shapes live on buffers only; an expression has a scalar, vector or pointer type.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hidet.dtypes import DType

if TYPE_CHECKING:
    from hidet.ir.expr import Expr

MemorySpace = Literal["global", "shared", "register", "local", "constant", "generic"]
"""Where memory is. "generic" is an address of which only the running program knows it."""


@dataclass(frozen=True, slots=True)
class VectorType:
    """A SIMD vector of `lanes` elements of `dtype`, held in registers."""

    dtype: DType
    lanes: int

    def __str__(self) -> str:
        return f"{self.dtype.short}x{self.lanes}"


@dataclass(frozen=True, slots=True)
class PointerType:
    """Address of elements of `dtype` in memory space `space`."""

    dtype: DType
    space: MemorySpace = "global"

    def __str__(self) -> str:
        return f"~{self.dtype.short}" if self.space == "global" else f"~{self.dtype.short}@{self.space}"


@dataclass(frozen=True, slots=True, eq=False)
class BufferType:
    """An array of `dtype` with `shape` (extents as index expressions) in memory space `space`.

    `strides` are in elements; None means row-major contiguous. `lanes` > 1 makes each element a SIMD vector,
    which is how register tiles are written.
    """

    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    space: MemorySpace = "global"
    lanes: int = 1

    def __str__(self) -> str:
        element = self.dtype.short if self.lanes == 1 else f"{self.dtype.short}x{self.lanes}"
        return f"{element}[{', '.join(map(str, self.shape))}]"


ValueType = DType | VectorType | PointerType
Type = DType | VectorType | PointerType | BufferType


_ONE_LANE = (DType, PointerType)


def element_dtype(type_: Type) -> DType:
    """The element type of a scalar, vector, pointer or buffer type."""
    return type_ if isinstance(type_, DType) else type_.dtype


def lanes_of(type_: Type) -> int:
    """Number of SIMD lanes: 1 for scalars, pointers and scalar buffers."""
    return 1 if isinstance(type_, _ONE_LANE) else type_.lanes


def with_lanes(dtype: DType, lanes: int) -> DType | VectorType:
    """`dtype` itself for one lane, else the vector type."""
    return dtype if lanes == 1 else _vector_type(dtype, lanes)


@functools.lru_cache(maxsize=256)
def _vector_type(dtype: DType, lanes: int) -> VectorType:
    """One object a type: what is compared and described by identity is found again sooner."""
    return VectorType(dtype, lanes)
