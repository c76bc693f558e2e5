"""Tensor maps as the simulator reads them: what the driver's encoders take, in 128 bytes of a layout of our own."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from hidet import dtypes
from hidet.cuda.tensor_map import COLUMNS_MAP, TENSOR_MAP, split_map_numbers
from hidet.dtypes import DType
from hidet.errors import LaunchError
from hidet.ir.memory import Pointer, block_of

Array = np.ndarray[Any, Any]

_FORMAT = struct.Struct("<4sQ8sBB5I4Q5H5B3h3hHH")
_MAGIC = b"HTM1"
_WORDS = 16
_AXES = 5
_MOST_BOX = 256


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor in global memory and the boxes of it that one instruction copies.

    address: of element 0. sizes, box, element_strides: by axis, the fastest first. strides: bytes between neighbours
    along the axes from the second on. swizzle: 16 (none), 32, 64 or 128 bytes. With `pixels` > 0 the map is for columns
    of pixels: `lower` and `upper` are the corners of the box of pixels by spatial axis, fastest first, and box[0]
    counts channels (CUDA driver API: cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col).
    """

    address: int
    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 16
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    pixels: int = 0

    def __post_init__(self) -> None:
        inner = self.box[0] * self.dtype.nbytes
        problems = (
            (self.address % 16 != 0, f"address {self.address:#x} is no multiple of 16"),
            (not 1 <= len(self.sizes) <= _AXES, f"{len(self.sizes)} axes, expected 1 to 5"),
            (len(self.strides) != len(self.sizes) - 1, f"{len(self.strides)} strides for {len(self.sizes)} axes"),
            (any(stride % 16 for stride in self.strides), f"strides {self.strides} are no multiples of 16 bytes"),
            (not self.pixels and len(self.box) != len(self.sizes), f"box {self.box} of {len(self.sizes)} axes"),
            (any(not 1 <= extent <= _MOST_BOX for extent in self.box), f"box {self.box}, expected 1 to 256 an axis"),
            (inner % 16 != 0, f"{inner} bytes along the fastest axis of the box, expected a multiple of 16"),
            (self.swizzle not in (16, 32, 64, 128), f"swizzle {self.swizzle}, expected 16, 32, 64 or 128"),
            (self.swizzle > 16 and inner > self.swizzle, f"{inner} bytes along the box's rows exceed the swizzle"),
        )
        for wrong, what in problems:
            if wrong:
                raise LaunchError(f"a tensor map has {what}")

    def words(self) -> np.ndarray[Any, Any]:
        """The map as a kernel's parameter: 16 words of u64."""
        data = _FORMAT.pack(
            _MAGIC,
            self.address,
            self.dtype.short.encode(),
            len(self.sizes),
            self.swizzle,
            *_padded(self.sizes, _AXES, 1),
            *_padded(self.strides, _AXES - 1, 0),
            *_padded(self.box, _AXES, 0),
            *_padded(self.element_strides, _AXES, 1),
            *_padded(self.lower, 3, 0),
            *_padded(self.upper, 3, 0),
            self.pixels,
            len(self.box),
        )
        return np.frombuffer(data.ljust(8 * _WORDS, b"\0"), np.uint64).copy()


def tensor_map(data: bytes) -> TensorMap:
    """The map that 128 bytes are. LaunchError for other bytes."""
    magic, address, name, rank, swizzle, *rest = _FORMAT.unpack_from(data)
    if magic != _MAGIC:
        raise LaunchError(
            "a kernel uses a tensor map that is none",
            hint="pass the words of hidet.cuda.simulator.tensor_map.TensorMap",
        )
    sizes, strides, box, steps, lower, upper = (
        tuple(rest[start:end]) for start, end in ((0, 5), (5, 9), (9, 14), (14, 19), (19, 22), (22, 25))
    )
    pixels, axes = rest[25:]
    return TensorMap(
        address=address,
        dtype=next(dtype for dtype in dtypes.ALL_DTYPES if dtype.short == name.rstrip(b"\0").decode()),
        sizes=sizes[:rank],
        strides=strides[: rank - 1],
        box=box[:axes],
        element_strides=steps[:rank],
        swizzle=swizzle,
        lower=lower[: max(rank - 2, 0)],
        upper=upper[: max(rank - 2, 0)],
        pixels=pixels,
    )


def _padded(values: tuple[int, ...], count: int, fill: int) -> tuple[int, ...]:
    return (*values, *[fill] * (count - len(values)))


def _tensor_map(callee: str, pointer: Pointer, *numbers: Array) -> Pointer:
    """A map as the simulator reads it (`hidet.cuda.tensor_map`)."""
    rank, swizzle, *others = (int(number) for number in numbers)
    sizes, strides = tuple(others[:rank]), tuple(others[rank : 2 * rank - 1])
    box, columns = split_map_numbers(callee, rank, others[2 * rank - 1 :])
    tensor = pointer.address, pointer.dtype, sizes, strides, cast("tuple[int, ...]", box)
    if columns is None:
        described = TensorMap(*tensor, swizzle=swizzle)
    else:
        lower, upper, steps = (cast("tuple[int, ...]", part) for part in (columns.lower, columns.upper, columns.steps))
        described = TensorMap(*tensor, (1, *steps, 1), swizzle, lower, upper, columns.pixels)
    return Pointer(block_of("tensor map", described.words()), 0, dtypes.u64)


MEANINGS: Mapping[str, Callable[..., Any]] = {
    row.name: partial(_tensor_map, row.name) for row in (TENSOR_MAP, COLUMNS_MAP)
}
"""Meanings of the intrinsics of `hidet.cuda.tensor_map`."""
