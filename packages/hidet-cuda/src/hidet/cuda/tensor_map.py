"""Tensor maps: what TMA (the tensor memory accelerator of sm_90) has to know about a tensor, and what it copies: boxes,
or columns of pixels.

Host code makes a map where it launches a kernel. The argument of the launch is one of the calls

    cuda.tensor_map(pointer, rank, swizzle, *sizes, *strides, *box)
    cuda.tensor_map_im2col(pointer, rank, swizzle, *sizes, *strides, channels, pixels, *lower, *upper, *steps)

of type ~u64@constant, for a parameter that is an array of `MAP_WORDS` words in constant space. They are intrinsics of
host code, which the target takes out of it where it makes the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.intrinsic_families import TENSOR_MAPS
from hidet.ir import build
from hidet.ir.expr import Call, Const, Expr
from hidet.ir.intrinsic import Intrinsic, Memory, Rest, table
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.types import BufferType, PointerType

MAP_WORDS = 16


def _row(name: str, doc: str) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=TENSOR_MAPS,
        group="tensor map",
        doc=doc,
        ptx="tensormap",
        parameters=(Memory("pointer", ("global",)), Rest("numbers", (dtypes.i64,))),
        result=PointerType(dtypes.u64, "constant"),
        arch=90,
    )


TENSOR_MAP = _row("cuda.tensor_map", "a map of boxes of a tensor")
COLUMNS_MAP = _row("cuda.tensor_map_im2col", "a map of columns of pixels")
ROWS = table(TENSOR_MAP, COLUMNS_MAP)


@dataclass(frozen=True, slots=True)
class PixelColumns:
    """Columns of pixels of images [batch, *space, channels], one below the other, that one copy brings.

    pixels: at most 1024. lower, upper: where the first pixel of each row of pixels lies, and from the image's end the
    last one, before the offsets of a copy are added. steps: pixels from one to the next. All by spatial axis, the
    fastest first, numbers or i64 values (PTX ISA, "Im2col mode").
    """

    pixels: int
    lower: tuple[Expr | int, ...]
    upper: tuple[Expr | int, ...]
    steps: tuple[Expr | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MapRequest:
    """A tensor map to be made.

    pointer: to element 0, at a multiple of 16 bytes; f32 behind a pointer to tf32 is rounded on its way. sizes:
    elements by axis, the fastest first, i64. strides: bytes between neighbours along the axes from the second on, i64,
    multiples of 16. box: elements of a box by axis, at most 256, or for `columns` the channels of a pixel; numbers or
    i64 values. swizzle: 16 (none), 32, 64 or 128 bytes, at least those of a row of the box. columns: None for boxes.
    """

    pointer: Expr
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[Expr | int, ...]
    swizzle: int
    columns: PixelColumns | None = None

    def call(self) -> Call:
        """The argument of a launch."""
        columns, numbers = self.columns, list[Expr | int](self.box)
        if columns is not None:
            numbers += [columns.pixels, *columns.lower, *columns.upper, *columns.steps]
        first = map(build.index, (len(self.sizes), self.swizzle))
        arguments = (self.pointer, *first, *self.sizes, *self.strides, *map(build.index, numbers))
        return call_intrinsic(TENSOR_MAP if columns is None else COLUMNS_MAP, *arguments)


def map_request(node: Expr) -> MapRequest | None:
    """What an argument of a launch asks for; None when it is no tensor map."""
    if not isinstance(node, Call) or node.callee not in ROWS:
        return None
    pointer, *leading = node.arguments[:3]
    rank, swizzle = map(_constant, leading)
    first, second = 3 + rank, 2 + 2 * rank
    sizes, strides = node.arguments[3:first], node.arguments[first:second]
    known = [n.value if isinstance(n, Const) and isinstance(n.value, int) else n for n in node.arguments[second:]]
    box, columns = split_map_numbers(node.callee, rank, known)
    return MapRequest(pointer, tuple(sizes), tuple(strides), box, swizzle, columns)


def split_map_numbers(
    callee: str, rank: int, numbers: Sequence[Expr | int]
) -> tuple[tuple[Expr | int, ...], PixelColumns | None]:
    """The box and the columns that the numbers after the strides are, in a call of `callee`."""
    if callee == TENSOR_MAP.name:
        return tuple(numbers), None
    # How many channels and pixels there are is known, where lines begin and end may not be.
    channels, pixels = (n for n in numbers[:2] if isinstance(n, int))
    space = rank - 2
    lower, upper, steps = (tuple(numbers[2 + n * space : 2 + (n + 1) * space]) for n in range(3))
    return (channels,), PixelColumns(pixels, lower, upper, steps)


def map_type() -> BufferType:
    """The type of a kernel's parameter for a map."""
    return BufferType(dtypes.u64, (build.index(MAP_WORDS),), None, "constant")


def is_map(type_: BufferType) -> bool:
    """Whether parameters of a type are maps."""
    return type_.space == "constant" and type_.dtype == dtypes.u64


def _constant(node: Expr) -> int:
    assert isinstance(node, Const) and isinstance(node.value, int)
    return node.value
