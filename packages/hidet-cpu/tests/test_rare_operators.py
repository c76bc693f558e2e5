"""Operators that no schedule of their own serves: the compiled result is what the definition says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.testing import assert_close, build, context, random_array
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]


BOXES = np.array([[0.0, 0.5, 6.0, 6.0], [-2.0, 3.0, 4.5, 7.25], [3.0, 3.0, 3.0, 3.0]], np.float32)
IMAGES = np.array([1, 0, 1])


def overlapping(count: int) -> tuple[Array, ...]:
    """Boxes, scores, and the three limits."""
    random = np.random.default_rng(count)
    placed = random.random((2, count, 4)).astype(np.float32)
    scores = random.integers(0, 9, (2, 3, count)).astype(np.float32) / 8
    return placed, scores, np.array(6), np.array(0.3, np.float32), np.array(0.2, np.float32)


IMAGE = random_array(2, 4, 8, 7)
CODES = np.arange(-32, 32).reshape(4, 16).astype(dtypes.i4.numpy())
SCALES = np.linspace(0.1, 2, 16, dtype=np.float32)

# operator, arrays, attributes
ENDS = np.array([0, 2, 2, 5, 9])
CASES: dict[str, tuple[str, tuple[Array | None, ...], dict[str, Any]]] = {
    **{
        f"segment_reduce {by} of {dtype}": (
            "segment_reduce",
            (random_array(9, 5, dtype=dtype), ENDS[:-1], ENDS[1:]),
            {"reduce_by": by},
        )
        for by, dtype in (("sum", "float16"), ("mean", "float32"), ("max", "float64"), ("argmax", "float32"))
    },
    **{
        f"{name} of {dtype}": (name, (random_array(4, 9, dtype=dtype),), {})
        for name, dtype in (("bessel_i1", "float32"), ("bessel_k0", "float64"), ("bessel_j1", "float16"))
    },
    **{
        name: (name, (random_array(4, 9), np.arange(-1, 8, dtype=np.float32)), {})
        for name in ("chebyshev_polynomial_u", "hermite_polynomial_he", "zeta")
    },
    "polygamma": ("polygamma", (random_array(4, 9, dtype="float64"),), {"n": 2}),
    "bitcast to bytes": ("bitcast", (random_array(3, 5),), {"dtype": dtypes.u8}),
    "bitcast to words": ("bitcast", (random_array(3, 8, dtype="float16"),), {"dtype": dtypes.i64}),
    "quantize to i4": ("quantize", (random_array(4, 16), SCALES), {"dtype": dtypes.i4}),
    "quantize to f8": ("quantize", (random_array(4, 16), SCALES), {"dtype": dtypes.f8e4m3}),
    "quantize blocks": (
        "quantize",
        (random_array(4, 16), SCALES.reshape(4, 4), np.zeros((4, 4), np.uint8)),
        {"dtype": dtypes.u8, "block_size": 4},
    ),
    "dequantize i4": ("dequantize", (CODES, SCALES.reshape(4, 4)), {"block_size": 4}),
    "unpack i4": ("unpack", (np.arange(256, dtype=np.uint8).reshape(4, 64),), {"dtype": dtypes.i4}),
    "unpack f4": ("unpack", (np.arange(256, dtype=np.uint8).reshape(4, 64),), {"dtype": dtypes.f4e2m1}),
    "resample nearest": ("resample", (IMAGE,), {"axis": 2, "size": 13, "mode": "nearest"}),
    "resample linear": ("resample", (IMAGE,), {"axis": 3, "size": 5}),
    "resample cubic": ("resample", (IMAGE,), {"axis": 2, "size": 13, "mode": "cubic", "exclude_outside": True}),
    "resample smaller": ("resample", (IMAGE,), {"axis": 2, "size": 3, "mode": "cubic", "antialias": True}),
    "resample cropped": (
        "resample",
        (IMAGE,),
        {"axis": 2, "size": 5, "transform": "tf_crop_and_resize", "window": (-0.2, 0.7), "outside": 3.0},
    ),
    "roi_align": ("roi_align", (IMAGE, BOXES, IMAGES), {"size": (2, 3)}),
    "roi_align max": ("roi_align", (IMAGE, BOXES, IMAGES), {"size": (2, 2), "mode": "max"}),
    "roi_pool": ("roi_pool", (IMAGE, BOXES, IMAGES), {"size": (2, 3)}),
    "gcd": ("gcd", (random_array(4, 1, 7, dtype="int32") * 12, random_array(3, 1, dtype="int32") * 30), {}),
    "lcm": ("lcm", (random_array(4, 7, dtype="int64"), random_array(7, dtype="int64", seed=1)), {}),
    "determinant": ("determinant", (random_array(2, 3, 5, 5),), {}),
    "determinant of f16": ("determinant", (random_array(4, 3, 3, dtype="float16"),), {}),
    "suppress_overlaps": ("suppress_overlaps", overlapping(40), {}),
    "suppress_overlaps of centred boxes": ("suppress_overlaps", overlapping(7), {"centred": True}),
    "affine_grid": ("affine_grid", (random_array(2, 2, 3),), {"space": (5, 4)}),
    "deform_columns": (
        "deform_columns",
        (IMAGE, random_array(2, 18, 8, 7), random_array(2, 9, 8, 7)),
        {"kernel": (3, 3), "padding": 1},
    ),
}


@pytest.fixture(scope="module")
def compiled_and_interpreted() -> Callable[..., tuple[Array, Array]]:
    def run(operator: str, arrays: tuple[Array | None, ...], attrs: dict[str, Any]) -> tuple[Array, Array]:
        given = [array for array in arrays if array is not None]
        graph = build(lambda builder, *inputs: builder.emit(operator, *inputs, **attrs), given)
        return compile_graph(graph, context())(*given), interpret(graph, given)[0]

    return run


@pytest.mark.parametrize("case", CASES)
@pytest.mark.thorough(every=3)
def test_the_compiled_operator_means_what_its_definition_says(case: str, compiled_and_interpreted: Any) -> None:
    actual, expected = compiled_and_interpreted(*CASES[case])
    if actual.dtype.itemsize == 1:
        np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))
    else:
        assert_close(actual, expected, 4)
