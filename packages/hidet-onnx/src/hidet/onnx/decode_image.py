"""Operator `onnx.decode_image`: encoded images as arrays, on the host, by Pillow (`pip install hidet-onnx[images]`)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from hidet import dtypes
from hidet.errors import DTypeError, LaunchError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType, ValueType

# Pixel format of ONNX -> mode of Pillow, number of channels.
_FORMATS = {"RGB": ("RGB", 3), "BGR": ("RGB", 3), "Grayscale": ("L", 1)}


def require_pillow() -> None:
    """UnsupportedOp with what to install where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UnsupportedOp(
            "ImageDecoder needs Pillow, which is not installed", hint="pip install hidet-onnx[images]"
        ) from error


def _decode(encoded: Any, *, attrs: Attrs) -> Any:
    import numpy
    import PIL.Image

    mode, _ = _FORMATS[attrs["pixel_format"]]
    try:
        with PIL.Image.open(io.BytesIO(encoded.tobytes())) as image:
            pixels = numpy.array(image.convert(mode))
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise LaunchError(f"operator onnx.decode_image: {encoded.size} bytes are no image: {error}") from error
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return numpy.ascontiguousarray(pixels[:, :, ::-1] if attrs["pixel_format"] == "BGR" else pixels)


def _infer(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    (encoded,) = types
    if not isinstance(encoded, TensorType) or encoded.dtype != dtypes.u8 or encoded.rank != 1:
        raise DTypeError(f"operator onnx.decode_image takes bytes u8[n], got {encoded}")
    found = _FORMATS.get(attrs["pixel_format"])
    if found is None:
        raise UnsupportedOp(
            f"operator onnx.decode_image has no pixel format {attrs['pixel_format']!r}; it has: {', '.join(_FORMATS)}"
        )
    return (TensorType(dtypes.u8, (*attrs["defines"], found[1])),)


SPEC = OperatorSpec(
    name="onnx.decode_image",
    inputs=("encoded",),
    attributes=(
        Attribute("pixel_format", "RGB", "RGB, BGR or Grayscale"),
        Attribute("defines", doc="symbols of the height and the width"),
    ),
    kind="host",
    call=_decode,
    infer=_infer,
    doc="The pixels u8[height, width, channels] of an encoded image u8[n], in any format that Pillow reads; ONNX "
    "ImageDecoder.",
)
"""The operator."""
