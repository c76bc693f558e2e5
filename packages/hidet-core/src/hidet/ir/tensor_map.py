"""Tensor maps: what the copy engine of sm_90 is told about a tensor and the boxes that are copied of it.

Host code makes a map where it launches a kernel. The argument of the launch is the call

    tensor_map(pointer, rank, swizzle, *sizes, *strides, *box)

of type ~u64@constant, for a parameter that is an array of `MAP_WORDS` words in constant space. It is no intrinsic of
kernels: the interpreter and the target that compiles host code know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Call, Const, Expr
from hidet.ir.types import BufferType, PointerType

TENSOR_MAP = "tensor_map"
MAP_WORDS = 16


@dataclass(frozen=True, slots=True, eq=False)
class MapRequest:
    """A tensor map to be made.

    pointer: to element 0, at a multiple of 16 bytes; f32 behind a pointer to tf32 is rounded on its way. sizes:
    elements by axis, the fastest first, i64. strides: bytes between neighbours along the axes from the second on, i64,
    multiples of 16. box: elements of a box by axis, at most 256. swizzle: 16 (none), 32, 64 or 128 bytes, at least
    those of a row of the box.
    """

    pointer: Expr
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int

    def call(self) -> Call:
        """The argument of a launch."""
        numbers = (len(self.sizes), self.swizzle)
        arguments = (*map(build.index, numbers), *self.sizes, *self.strides, *map(build.index, self.box))
        return Call(TENSOR_MAP, (self.pointer, *arguments), PointerType(dtypes.u64, "constant"))


def map_request(node: Expr) -> MapRequest | None:
    """What an argument of a launch asks for; None when it is no tensor map."""
    if not isinstance(node, Call) or node.callee != TENSOR_MAP:
        return None
    pointer, rank, swizzle, *numbers = node.arguments
    count = _constant(rank)
    sizes, strides, box = split_map_numbers(numbers, count)
    return MapRequest(pointer, tuple(sizes), tuple(strides), tuple(map(_constant, box)), _constant(swizzle))


def split_map_numbers(numbers: Sequence[Any], rank: int) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Sizes, strides and extents of the box, from the last arguments of the call."""
    return numbers[:rank], numbers[rank : 2 * rank - 1], numbers[2 * rank - 1 :]


def map_type() -> BufferType:
    """The type of a kernel's parameter for a map."""
    return BufferType(dtypes.u64, (build.index(MAP_WORDS),), None, "constant")


def is_map(type_: BufferType) -> bool:
    """Whether parameters of a type are maps."""
    return type_.space == "constant" and type_.dtype == dtypes.u64


def _constant(node: Expr) -> int:
    assert isinstance(node, Const) and isinstance(node.value, int)
    return node.value
