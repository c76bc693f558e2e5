"""Convolutions against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import ShapeError
from hidet.graph import GraphBuilder, TensorType
from hidet.operators.conv import decompose_conv_transpose
from hidet.testing.interpret import interpret

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = ("float32", "float16", "bfloat16", "float64")
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# input, weight, attributes
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9), (4, 3, 3), {}),
    ((1, 4, 7), (6, 2, 3), {"groups": 2, "padding": 1}),
    ((2, 3, 7, 9), (5, 3, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 3, 11, 8), (2, 3, 5, 2), {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 3)}),
    ((2, 6, 5, 5), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    ((2, 4, 5, 5), (8, 4, 1, 1), {}),
    ((0, 3, 5, 5), (4, 3, 3, 3), {}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), {"stride": (1, 2, 2), "padding": (1, 1, 0)}),
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "kernel", "attrs"), CASES)
def test_conv_agrees_with_torch(
    shape: Any, kernel: Any, attrs: dict[str, Any], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x, weight, bias = make(shape, dtype), make(kernel, dtype, seed=1), make(kernel[:1], dtype, seed=2)
    reference = CONV[len(shape) - 2]
    for b in (None, bias):
        wide = [None if t is None else t.double() for t in (x, weight, b)]
        assert_matches(apply("conv", x, weight, b, **attrs), reference(*wide, **attrs).to(x.dtype), scale=8)


def test_conv_pads_each_side_on_its_own(apply: Any, make: Any, assert_matches: Any) -> None:
    x, weight = make((1, 2, 5, 6)), make((3, 2, 3, 3), seed=1)
    theirs = F.conv2d(F.pad(x, (2, 0, 0, 1)), weight)
    assert_matches(apply("conv", x, weight, padding=((0, 1), (2, 0))), theirs, scale=8)


PADDED: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 9), (4, 5, 3), {"padding": 1}),
    ((2, 3, 7, 9), (5, 8, 3, 3), {"stride": 2, "padding": ((1, 0), (2, 1))}),
    ((1, 4, 6, 5), (2, 4, 2, 1), {"dilation": (2, 1)}),
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "kernel", "attrs"), PADDED)
def test_conv_padded_channels_is_a_convolution_of_an_image_with_zeros_behind_its_channels(
    shape: Any, kernel: Any, attrs: dict[str, Any], dtype: str, apply: Any, make: Any, operators: Any
) -> None:
    x, weight, bias = make(shape, dtype), make(kernel, dtype, seed=1), make(kernel[:1], dtype, seed=2)
    padded = F.pad(x, (0, 0) * (len(shape) - 2) + (0, kernel[1] - shape[1]))
    for b in (None, bias):
        assert torch.equal(
            apply("conv_padded_channels", x, weight, b, **attrs), apply("conv", padded, weight, b, **attrs)
        )
    builder = GraphBuilder(operators)
    given = [builder.input(TensorType(dtypes.f32, size)) for size in (shape, kernel)]
    spec = operators["conv_padded_channels"]
    parts = builder.build(spec.decompose(builder, given, spec.attrs(attrs)))
    assert [node.op.name for node in parts.nodes] == ["pad", "conv"]


def test_more_channels_than_those_of_the_filters_are_refused(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="conv_padded_channels: x has 3 channels, more than weight"):
        apply("conv_padded_channels", make((1, 3, 5, 5)), make((4, 2, 3, 3)))


TRANSPOSED: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    ((2, 3, 5), (3, 4, 3), {}),
    ((2, 4, 5, 6), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}),
    ((1, 4, 3, 4), (4, 2, 3, 3), {"groups": 2, "dilation": 2, "stride": 2}),
    ((1, 2, 2, 3, 4), (2, 3, 2, 2, 3), {"stride": 2, "padding": 1}),
)


@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
@pytest.mark.parametrize(("shape", "kernel", "attrs"), TRANSPOSED)
def test_conv_transpose_agrees_with_torch(
    shape: Any, kernel: Any, attrs: dict[str, Any], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x, weight = make(shape, dtype), make(kernel, dtype, seed=1)
    bias = make((kernel[1] * attrs.get("groups", 1),), dtype, seed=2)
    reference = CONV_TRANSPOSE[len(shape) - 2]
    for b in (None, bias):
        wide = [None if t is None else t.double() for t in (x, weight, b)]
        assert_matches(apply("conv_transpose", x, weight, b, **attrs), reference(*wide, **attrs).to(x.dtype), scale=8)


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    (
        *TRANSPOSED,
        ((1, 3, 4, 5), (3, 2, 4, 4), {"stride": 2, "padding": 1}),
        ((1, 3, 4), (3, 2, 1), {"stride": 3, "output_padding": 2}),
        ((1, 3, 4), (3, 2, 2), {"stride": 2, "padding": ((0, 3),), "dilation": 3}),
    ),
)
def test_conv_transpose_is_a_convolution(operators: Any, shape: Any, kernel: Any, attrs: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    sizes = (shape, kernel, (kernel[1] * attrs.get("groups", 1),))
    arrays = [random.standard_normal(size) for size in sizes]
    whole, apart = GraphBuilder(operators), GraphBuilder(operators)
    given = [[b.input(TensorType(dtypes.f64, size)) for size in sizes] for b in (whole, apart)]
    graph = whole.build([whole.emit("conv_transpose", *given[0], **attrs)])
    spec = operators["conv_transpose"]
    parts = apart.build(decompose_conv_transpose(apart, given[1], spec.attrs(attrs)))
    assert "conv_transpose" not in {node.op.name for node in parts.nodes}
    (expected,), (found,) = interpret(graph, arrays), interpret(parts, arrays)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_conv_of_a_symbolic_image_has_symbolic_extents(operators: Any) -> None:
    s = symbol("s0", lower=3)
    builder = GraphBuilder(operators)
    x = builder.input(TensorType(dtypes.f32, (1, 3, 2 * s, s)))
    weight = builder.input(TensorType(dtypes.f32, (8, 3, 3, 3)))
    assert builder.emit("conv", x, weight, padding=1).tensor.shape == (1, 8, 2 * s, s)
    assert builder.emit("conv", x, weight, padding=1, stride=(2, 1)).tensor.shape == (1, 8, s, s)


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs", "message"),
    (
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "against channels of x: extents 2 and 3 differ"),
        ((1, 3, 5, 5), (4, 3, 6, 3), {}, "windows of 6 do not fit an axis of extent 5"),
        ((1, 3, 5, 5), (4, 1, 3, 3), {"groups": 2}, "3 input channels do not divide into 2 groups"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}, "stride is 0: expected 2 numbers of at least 1"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": (1, 1, 1)}, "expected 2 pairs"),
        ((3, 5), (4, 3), {}, "takes at least 3 axes for x, got 2"),
    ),
)
def test_impossible_conv_is_refused_by_name(
    shape: Any, kernel: Any, attrs: dict[str, Any], message: str, apply: Any, make: Any
) -> None:
    with pytest.raises(ShapeError, match=message):
        apply("conv", make(shape), make(kernel), **attrs)
