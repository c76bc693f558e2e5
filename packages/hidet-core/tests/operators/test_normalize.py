"""Softmax and normalisations against torch in f64, rounded once."""

from __future__ import annotations

from typing import Any

import pytest

from hidet import dtypes
from hidet.errors import ShapeError

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = ("float32", "float16", "bfloat16", "float64")


def exact(function: Any, *tensors: Any) -> Any:
    """`function` in f64, rounded once to the dtype of the first tensor."""
    return function(*[None if t is None else t.double() for t in tensors]).to(tensors[0].dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ("softmax", "log_softmax"))
def test_softmax_agrees_with_torch_along_any_axis(
    name: str, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axis in (((3, 7), -1), ((3, 7), 0), ((2, 5, 3), 1), ((1, 1), 1), ((0, 4), 1), ((4, 0), 1), ((), 0)):
        x = make(shape, dtype, -9, 9)
        assert_matches(apply(name, x, axis=axis), exact(lambda t, a=axis: getattr(torch, name)(t, a), x), scale=4)


def test_softmax_of_masked_rows_agrees_with_torch(apply: Any, assert_matches: Any) -> None:
    low, high = float("-inf"), float("inf")
    x = torch.tensor([[1.0, low, 2.0], [low, low, low], [high, 1.0, 2.0], [float("nan"), 0.0, 0.0]])
    assert_matches(apply("softmax", x), torch.softmax(x, -1))
    assert_matches(apply("log_softmax", x), torch.log_softmax(x, -1))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "rank"), (((4, 9), 1), ((2, 3, 5), 2), ((2, 3, 5), 1), ((1, 1), 1), ((0, 5), 1)))
def test_layer_norm_and_rms_norm_agree_with_torch(
    shape: tuple[int, ...], rank: int, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x, inner = make(shape, dtype), shape[len(shape) - rank :]
    weight, bias = make(inner, dtype, seed=1), make(inner, dtype, seed=2)
    for w, b in ((None, None), (weight, None), (weight, bias)):
        theirs = exact(lambda *t: F.layer_norm(t[0], inner, *t[1:], eps=1e-5), x, w, b)
        assert_matches(apply("layer_norm", x, w, b, rank=rank), theirs, scale=8)
    for w in (None, weight):
        theirs = exact(lambda *t: F.rms_norm(t[0], inner, *t[1:], eps=1e-6), x, w)
        assert_matches(apply("rms_norm", x, w, rank=rank, eps=1e-6), theirs, scale=8)


def test_layer_norm_keeps_digits_far_from_zero(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 64)) + 10000.0
    assert_matches(apply("layer_norm", x), exact(lambda t: F.layer_norm(t, (64,)), x), scale=200)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_layer_norm_with_statistics_returns_them_as_torch_does(
    dtype: str, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    x = make((3, 4, 5), dtype)
    ours = apply_all("layer_norm_with_statistics", x, None, None, rank=2)
    theirs = torch.ops.aten.native_layer_norm(x.float(), (4, 5), None, None, 1e-5)
    assert_matches(ours[0], theirs[0].to(x.dtype), scale=8)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert_matches(mine, other.reshape(3), scale=8)


def test_group_norm_with_statistics_returns_them_as_torch_does(apply_all: Any, make: Any, assert_matches: Any) -> None:
    x, weight, bias = make((2, 6, 5)), make((6,), seed=1), make((6,), seed=2)
    theirs = torch.ops.aten.native_group_norm(x, weight, bias, 2, 6, 5, 3, 1e-5)
    for mine, other in zip(apply_all("group_norm_with_statistics", x, weight, bias, groups=3), theirs, strict=True):
        assert_matches(mine, other, scale=8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", ((2, 6), (2, 6, 5), (1, 6, 3, 5), (3, 6, 2, 1, 4)))
def test_channel_normalisations_agree_with_torch(
    shape: tuple[int, ...], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x, weight, bias = make(shape, dtype), make((6,), dtype, seed=1), make((6,), dtype, seed=2)
    for groups in (1, 2, 6):
        if len(shape) == 2 and groups == 6:
            continue
        for w, b in ((None, None), (weight, bias)):
            theirs = exact(lambda *t, g=groups: F.group_norm(t[0], g, *t[1:]), x, w, b)
            assert_matches(apply("group_norm", x, w, b, groups=groups), theirs, scale=16)
    mean, variance = make((6,), "float32", seed=3), make((6,), "float32", 0.1, 2, seed=4)
    theirs = exact(lambda *t: F.batch_norm(t[0], *t[1:], eps=1e-3), x, mean, variance, weight, bias)
    assert_matches(apply("batch_norm", x, mean, variance, weight, bias, eps=1e-3), theirs, scale=8)
    if len(shape) > 2:
        theirs = exact(lambda *t: F.instance_norm(t[0], None, None, *t[1:]), x, weight, bias)
        assert_matches(apply("instance_norm", x, weight, bias), theirs, scale=16)


@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
def test_a_batch_norm_is_applied_by_vectors_that_are_computed_before(
    dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x = make((2, 3, 4, 5), dtype)
    scale, shift, mean = (make((3,), "float32", seed=n) for n in range(3))
    wide = [v.double()[:, None, None] for v in (scale, shift, mean)]
    assert_matches(apply("apply_batch_norm", x, scale, shift), (x.double() * wide[0] + wide[1]).to(x.dtype), scale=8)
    theirs = ((x.double() - wide[2]) * wide[0] + wide[1]).to(x.dtype)
    assert_matches(apply("apply_batch_norm", x, scale, shift, mean), theirs, scale=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_batch_norm_is_a_scale_and_a_shift(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    """The parts in the order in which torch's batch norm of ones, per channel, can be taken apart."""
    filters, ones = make((5, 2, 3), dtype), torch.ones(1, 5)
    mean, weight, bias, start = (make((5,), "float32", seed=n) for n in range(4))
    variance = make((5,), "float32", 0.1, 2, seed=4)
    scale = exact(lambda s, w: F.batch_norm(ones.double(), 0 * s, s, w, eps=1e-3)[0], variance, weight)
    shift = exact(
        lambda m, s, w, b, c: F.batch_norm(c[None], m, s, w, b, eps=1e-3)[0], mean, variance, weight, bias, start
    )
    assert_matches(apply("batch_norm_scale", variance, weight, eps=1e-3), scale, scale=4)
    found = apply("batch_norm_shift", mean, scale, start, bias, dtype=dtypes.f32)
    assert_matches(found, shift, scale=16)
    zeros = torch.zeros(1, 5)
    offset = exact(
        lambda m, s, w, b: F.batch_norm(zeros.double(), m, s, w, b, eps=1e-3)[0], mean, variance, weight, bias
    )
    assert_matches(apply("batch_norm_offset", mean, variance, weight, bias, eps=1e-3), offset, scale=16)
    scaled = exact(lambda f, s: f * s[:, None, None], filters, scale)
    assert_matches(apply("scale_filters", filters, scale), scaled, scale=1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_l2_normalize_agrees_with_torch(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 5, 4), dtype)
    x[0] = 0
    for axis in (0, 1, -1):
        assert_matches(apply("l2_normalize", x, axis=axis), exact(lambda t, a=axis: F.normalize(t, dim=a), x), scale=4)


def test_normalisation_refuses_parameters_of_another_shape(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="weight against the last axes of x: extents 4 and 5 differ"):
        apply("layer_norm", make((3, 5)), make((4,)))
    with pytest.raises(ShapeError, match="6 channels do not divide into 4 groups"):
        apply("group_norm", make((1, 6, 2)), groups=4)
