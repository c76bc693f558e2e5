"""Tensor maps in scripts: what `tensor_load` and its like are told about a tensor, made where a kernel is launched.

@hidet.script
def first_tile(source: TensorMap, out: f32[8, 32]):
    ...
    tensor_load(~tile[0, 0], source, ~barrier[0], 0, 0)

@hidet.script
def launch(x: f32[m, n], out: f32[8, 32]):
    first_tile(tensor_map(x, box=[8, 32]), out)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hidet import dtypes
from hidet.cuda.tensor_map import MAP_WORDS, MapRequest, PixelColumns
from hidet.dtypes import DType
from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir.expr import Call, Expr
from hidet.lang import operators
from hidet.lang.layout import is_row_major
from hidet.lang.operand import unwrapped
from hidet.lang.types import Extent, TensorKind
from hidet.lang.values import TensorValue

TensorMap = TensorKind(dtypes.u64, (MAP_WORDS,), space="constant")
"""The type of a kernel's parameter that is a tensor map."""

# CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
_MOST_DIMS, _MOST_BOX, _UNIT = 5, 256, 16
_MOST_PIXELS, _MOST_STEP = 1024, 8
_SWIZZLES = (16, 32, 64, 128)
# Corners of columns fit into so many bits an axis, by the number of spatial axes.
_CORNER_BITS = {1: 16, 2: 8, 3: 5}


def tensor_map(tensor: Any, box: Sequence[int], swizzle: int = 16) -> Call:
    """In a function of the host, an argument for a parameter of type `TensorMap`: how boxes of a tensor are copied.

    tensor: row-major; its memory begins, and its rows lie, at multiples of 16 bytes. box: elements that one copy
    brings, by dim of the tensor, at most 256 each. swizzle: pieces of 16 bytes of the box change places in shared
    memory within 32, 64 or 128 bytes, which no row may exceed; 16 is as they come. Coordinates of a copy are those of
    the last dim first.

    ScriptError for what TMA cannot do.
    """
    value = _row_major("tensor_map", "box=[8, 32]", tensor)
    extents: tuple[Any, ...] = tuple(box)
    if not 1 <= len(value.shape) <= _MOST_DIMS or len(extents) != len(value.shape):
        raise ScriptError(
            f"tensor_map got a tensor of {len(value.shape)} dims and a box of {len(extents)}, expected 1 to "
            f"{_MOST_DIMS} of both"
        )
    for extent in extents:
        _check_number("extents of a box", extent, 1, _MOST_BOX)
    return _request(value, extents[::-1], swizzle, "the box", None)


def tensor_map_im2col(
    tensor: Any,
    channels: int,
    pixels: int,
    lower: Sequence[int],
    upper: Sequence[int],
    steps: Sequence[int] | None = None,
    swizzle: int = 16,
) -> Call:
    """In a function of the host, an argument for a parameter of type `TensorMap` of `tensor_load_im2col`: how columns
    of pixels of images are copied, as rows [pixel, channel].

    tensor: images [batch, *space, channels] of one to three spatial dims, row-major; memory begins, and pixels lie, at
    multiples of 16 bytes. channels: of each pixel, at most 256. pixels: of one copy, at most 1024; after the last of a
    line comes the first of the next one, and of the next image. steps: pixels from one to the next by spatial dim, at
    most 8; None is 1 everywhere. swizzle: as of `tensor_map`.
    lower, upper: by spatial dim, where lines begin, and where they end beyond the image's end. A convolution with a
    padding of p and a filter of k pixels d apart has lower = -p and upper = p - d * (k - 1), and copies with offsets 0,
    d, ... d * (k - 1). Coordinates of a copy, and its offsets, are those of the last dim first: channel, pixel, image.

    ScriptError for what TMA cannot do (PTX ISA, "Im2col mode").
    """
    value = _row_major("tensor_map_im2col", "channels=64, pixels=128, lower=[-1, -1], upper=[-1, -1]", tensor)
    space = len(value.shape) - 2
    if space not in _CORNER_BITS:
        raise ScriptError(
            f"tensor_map_im2col got a tensor of {len(value.shape)} dims, expected images [batch, *space, channels] of "
            "one to three spatial dims"
        )
    _check_number("channels of a pixel", channels, 1, _MOST_BOX)
    _check_number("pixels of a copy", pixels, 1, _MOST_PIXELS)
    apart = [1] * space if steps is None else list(steps)
    limit = 1 << _CORNER_BITS[space] - 1
    rows = (("lower", lower, -limit, limit - 1), ("upper", upper, -limit, limit - 1), ("steps", apart, 1, _MOST_STEP))
    for name, numbers, least, most in rows:
        if len(numbers) != space:
            raise ScriptError(f"{name} has {len(numbers)} numbers, expected one for each of {space} spatial dims")
        for number in numbers:
            _check_number(f"{name} of {space} spatial dims", number, least, most)
    columns = PixelColumns(pixels, *(tuple(reversed(numbers)) for numbers in (lower, upper, apart)))
    return _request(value, (channels,), swizzle, "the pixels", columns)


def _row_major(name: str, example: str, tensor: Any) -> TensorValue:
    value = unwrapped(tensor)
    if not isinstance(value, TensorValue) or not isinstance(value.element, DType):
        raise ScriptError(f"{name} takes a tensor of numbers", hint=f"{name}(x, {example}) of x: f32[m, n]")
    if not value.is_dense or (value.layout is not None and not is_row_major(value.layout)):
        raise ScriptError(f"{name} takes a row-major tensor", hint="pass the whole tensor; copies have coordinates")
    return value


def _check_number(what: str, number: object, least: int, most: int) -> None:
    if not isinstance(number, int) or not least <= number <= most:
        raise ScriptError(f"{what} are numbers from {least} to {most}, got {number!r}")


def _request(value: TensorValue, box: tuple[int, ...], swizzle: int, rows: str, columns: PixelColumns | None) -> Call:
    """box: the fastest axis first. rows: what is copied, in messages."""
    assert isinstance(value.element, DType)
    if swizzle not in _SWIZZLES:
        raise ScriptError(f"swizzle is {swizzle!r}, expected one of {', '.join(map(str, _SWIZZLES))} bytes")
    shape, nbytes = value.shape, value.element.nbytes
    row = box[0] * nbytes
    if row % _UNIT or (swizzle > _UNIT and row > swizzle):
        limit = f" and at most {swizzle}, the swizzle" if swizzle > _UNIT else ""
        raise ScriptError(f"a row of {rows} has {row} bytes, expected a multiple of {_UNIT}{limit}")
    strides = [_bytes(shape[axis:], nbytes) for axis in range(len(shape) - 1, 0, -1)]
    pointer = operators.decayed(value.start())
    assert isinstance(pointer, Expr)
    sizes = tuple(operators.index(extent) for extent in reversed(shape))
    return MapRequest(pointer, sizes, tuple(strides), box, swizzle, columns).call()


def _bytes(extents: Sequence[Extent], nbytes: int) -> Expr:
    """Bytes between neighbours along the dim before `extents`."""
    known = nbytes * prod(extent for extent in extents if isinstance(extent, int))
    unknown = [extent for extent in extents if isinstance(extent, Expr)]
    if not unknown and known % _UNIT:
        raise ScriptError(f"neighbours along a dim lie {known} bytes apart, expected a multiple of {_UNIT}")
    return prod(unknown, start=build.index(known))
