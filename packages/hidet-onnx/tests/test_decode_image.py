"""Encoded images."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from hidet.errors import LaunchError, UnsupportedOp

Make = Callable[..., onnx.ModelProto]
Run = Callable[..., Any]
PIL = pytest.importorskip("PIL.Image")


def decoder(make_model: Make, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("ImageDecoder", ["x"], ["y"], **attributes)
    return make_model([node], {"x": (np.uint8, ["n"])}, ["y"])


def encoded(pixels: Any, kind: str = "PNG") -> Any:
    stream = io.BytesIO()
    PIL.fromarray(pixels).save(stream, kind)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_hook_hidet_operators_one_import_decodes_images_of_any_size(make_model: Make, run: Run) -> None:
    model = decoder(make_model)
    for shape in ((3, 5, 3), (8, 2, 3)):
        pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        np.testing.assert_array_equal(run(model, x=encoded(pixels)), pixels)


def test_channels_come_in_the_order_asked_for(make_model: Make, run: Run) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    got = run(decoder(make_model, pixel_format="BGR"), x=encoded(pixels))
    np.testing.assert_array_equal(got, pixels[:, :, ::-1])
    assert run(decoder(make_model, pixel_format="Grayscale"), x=encoded(pixels)).shape == (4, 4, 1)


def test_bytes_that_are_no_image_are_an_error(make_model: Make, run: Run) -> None:
    with pytest.raises(LaunchError, match="no image"):
        run(decoder(make_model), x=np.arange(20, dtype=np.uint8))
    with pytest.raises(UnsupportedOp, match="pixel format"):
        run(decoder(make_model, pixel_format="CMYK"), x=np.arange(20, dtype=np.uint8))
