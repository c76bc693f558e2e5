"""Data movement against torch, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph import GraphBuilder, TensorType
from hidet.testing.interpret import interpret

torch = pytest.importorskip("torch")
F = torch.nn.functional

DTYPES = ("float32", "bfloat16", "int64", "uint8", "bool")

CASES: tuple[tuple[str, tuple[int, ...], dict[str, Any], Any], ...] = (
    ("flip", (3, 4, 5), {"axes": (0, -1)}, lambda x: x.flip(0, -1)),
    ("flip", (3,), {"axes": ()}, lambda x: x),
    ("roll", (3, 5), {"shifts": (2, -1), "axes": (1, 0)}, lambda x: x.roll((2, -1), (1, 0))),
    ("roll", (7,), {"shifts": (17,), "axes": (0,)}, lambda x: x.roll(17, 0)),
    ("roll", (7,), {"shifts": (2, 3), "axes": (0, 0)}, lambda x: x.roll(5, 0)),
    ("tile", (3, 2), {"repeats": (2, 3)}, lambda x: x.tile(2, 3)),
    ("tile", (3, 1), {"repeats": (2, 1, 4)}, lambda x: x.tile(2, 1, 4)),
    ("tile", (2, 3), {"repeats": (2,)}, lambda x: x.tile(2)),
    ("tile", (2, 3), {"repeats": (0, 1)}, lambda x: x.tile(0, 1)),
    ("repeat_interleave", (3, 4), {"repeats": 3, "axis": 1}, lambda x: x.repeat_interleave(3, 1)),
    ("tril", (2, 4, 5), {"offset": 1}, lambda x: x.tril(1)),
    ("tril", (4, 3), {}, lambda x: x.tril()),
    ("triu", (2, 4, 5), {"offset": -1}, lambda x: x.triu(-1)),
    ("diag_embed", (2, 3), {}, lambda x: x.diag_embed()),
    ("diag_embed", (2, 3), {"offset": 2, "axis1": 0, "axis2": -1}, lambda x: x.diag_embed(2, 0, -1)),
    ("diag_embed", (3,), {"offset": -1}, lambda x: x.diag_embed(-1)),
    ("copy", (2, 3), {}, lambda x: x.clone()),
    ("pixel_shuffle", (2, 12, 3, 4), {"factor": 2}, lambda x: F.pixel_shuffle(x, 2)),
    ("pixel_unshuffle", (2, 3, 6, 9), {"factor": 3}, lambda x: F.pixel_unshuffle(x, 3)),
    ("channel_shuffle", (2, 6, 3, 2), {"groups": 3}, lambda x: x.reshape(2, 3, 2, 3, 2).transpose(1, 2).flatten(1, 2)),
)


def values(shape: tuple[int, ...], dtype: str, make: Any) -> Any:
    """Seeded values that every dtype has."""
    return make(shape, dtype, 0, 1 if dtype == "bool" else 99)


@pytest.mark.parametrize(("name", "shape", "attrs", "reference"), CASES)
def test_movement_agrees_with_torch(
    name: str, shape: tuple[int, ...], attrs: dict[str, Any], reference: Any, apply: Any, make: Any, assert_matches: Any
) -> None:
    for dtype in DTYPES:
        x = values(shape, dtype, make)
        assert_matches(apply(name, x, **attrs), reference(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_concat_and_stack_join_any_number_of_tensors(
    dtype: str, apply: Any, decomposed: Any, make: Any, assert_matches: Any
) -> None:
    for axis, shapes in ((0, ((2, 3), (1, 3), (0, 3), (4, 3))), (-1, ((2, 3), (2, 1))), (1, ((2, 3),))):
        tensors = [values(shape, dtype, make) for shape in shapes]
        assert_matches(apply("concat", *tensors, axis=axis), torch.cat(tensors, axis))
    tensors = [make((2, 3), dtype, 0, 1 if dtype == "bool" else 99, seed=n) for n in range(4)]
    for axis in (0, 1, -1):
        assert_matches(apply("stack", *tensors, axis=axis), torch.stack(tensors, axis))
        assert_matches(decomposed("stack", *tensors, axis=axis)[0], torch.stack(tensors, axis))


@pytest.mark.parametrize("mode", ("constant", "reflect", "replicate", "circular"))
def test_pad_agrees_with_torch(mode: str, apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in ("float32", "bfloat16", "float64"):
        x = make((2, 3, 5, 6), dtype)
        for (top, bottom), (left, right) in (((1, 2), (3, 0)), ((0, 0), (2, 2)), ((4, 0), (0, 5))):
            theirs = F.pad(x, (left, right, top, bottom), mode)
            pads = ((0, 0), (0, 0), (top, bottom), (left, right))
            assert_matches(apply("pad", x, pads=pads, mode=mode), theirs)


def test_constant_pad_fills_with_its_value_and_crops(apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in ("float32", "int32", "bool"):
        x = values((4, 5), dtype, make)
        theirs = F.pad(x, (-1, 2, 1, -2), value=1)
        assert_matches(apply("pad", x, pads=((1, -2), (-1, 2)), value=1), theirs)
    assert_matches(apply("pad", make(()), pads=()), make(()))


def test_image_patches_become_columns_and_back(apply: Any, make: Any, assert_matches: Any) -> None:
    attrs: tuple[dict[str, Any], ...] = ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (2, 1)})
    for dtype in ("float32", "float16"):
        x = make((2, 3, 7, 8), dtype)
        for more in attrs:
            columns = F.unfold(x, (3, 2), **more)
            assert_matches(apply("im2col", x, kernel=(3, 2), **more), columns)
            theirs = F.fold(columns.double(), (7, 8), (3, 2), **more).to(x.dtype)
            assert_matches(apply("col2im", columns, size=(7, 8), kernel=(3, 2), **more), theirs, scale=4)


def test_joining_symbolic_extents_adds_them(operators: Any) -> None:
    s, t = symbol("s0"), symbol("s1")
    builder = GraphBuilder(operators)
    a, b = (builder.input(TensorType(dtypes.f32, (n, 4))) for n in (s, t))
    assert builder.emit("concat", a, b, a).tensor.shape == (2 * s + t, 4)
    assert builder.emit("pad", a, pads=((1, t), (0, 0))).tensor.shape == (s + t + 1, 4)


def test_impossible_movement_is_refused_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="concat, axis 1: extents 3 and 4 differ"):
        apply("concat", make((2, 3)), make((2, 4)), axis=0)
    with pytest.raises(DTypeError, match="concat takes inputs of one element type"):
        apply("concat", make((2, 3)), make((2, 3), "float16"), axis=0)
    with pytest.raises(ShapeError, match="cannot reflect 3 and 0 elements of an axis of extent 3"):
        apply("pad", make((3,)), pads=((3, 0),), mode="reflect")
    with pytest.raises(UnsupportedOp, match="pad has no mode 'mirror'; it has: constant, reflect"):
        apply("pad", make((3,)), pads=((1, 0),), mode="mirror")
    with pytest.raises(ShapeError, match="channels 6 is no multiple of 4"):
        apply("pixel_shuffle", make((6, 2, 2)), factor=2)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_many_tensors_are_joined(name: str, operators: Any) -> None:
    arrays = [np.full((n % 3 + 1 if name == "concat" else 2,), n, np.int32) for n in range(1500)]
    builder = GraphBuilder(operators)
    inputs = [builder.input(TensorType(dtypes.i32, array.shape)) for array in arrays]
    graph = builder.build([builder.emit(name, *inputs, axis=0)])
    joined = getattr(np, "concatenate" if name == "concat" else "stack")(arrays)
    assert np.array_equal(interpret(graph, arrays)[0], joined)
