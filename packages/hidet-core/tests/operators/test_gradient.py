"""Gradients against torch's own, in f64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = ("float32", "float16", "bfloat16", "float64")


def gradients(function: Any, *tensors: Any) -> tuple[Any, list[Any]]:
    """The gradient that flows into `function`'s result (seeded, of the tensors' dtype), and torch's for each tensor."""
    wide = [tensor.double().clone().requires_grad_() for tensor in tensors]
    result = function(*wide)
    generator = torch.Generator().manual_seed(3)
    flow = torch.rand(result.shape, generator=generator, dtype=torch.float64).to(tensors[0].dtype)
    found = torch.autograd.grad(result, wide, flow.double())
    return flow, [gradient.to(tensor.dtype) for gradient, tensor in zip(found, tensors, strict=True)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_of_max_pooling_goes_to_the_maxima(
    dtype: str, apply: Any, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    x = make((2, 3, 7, 6), dtype)
    for attrs in ({"stride": 2}, {"stride": 1, "padding": 1}, {"stride": (1, 2), "dilation": 2, "ceil_mode": True}):
        flow, (theirs,) = gradients(lambda t, a=attrs: F.max_pool2d(t, (3, 2), **a), x)
        _, indices = apply_all("max_pool_with_indices", x, kernel=(3, 2), **attrs)
        assert_matches(apply("max_pool_gradient", flow, indices, shape=x.shape, rank=2), theirs, scale=4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "attrs",
    (
        {"stride": 2},
        {"stride": 1, "padding": 1},
        {"stride": (3, 2), "padding": (1, 0), "count_include_pad": False},
        {"stride": 2, "padding": 1, "ceil_mode": True},
        {"stride": 2, "divisor_override": 5},
    ),
)
def test_gradient_of_average_pooling_agrees_with_torch(
    attrs: dict[str, Any], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x = make((2, 3, 8, 7), dtype)
    flow, (theirs,) = gradients(lambda t: F.avg_pool2d(t, (3, 2), **attrs), x)
    assert_matches(apply("avg_pool_gradient", flow, shape=x.shape, kernel=(3, 2), **attrs), theirs, scale=4)


@pytest.mark.parametrize("size", ((1, 1), (3, 2), (4, 7), (11, 5)))
def test_gradient_of_adaptive_pooling_agrees_with_torch(size: Any, apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in FLOATS:
        x = make((2, 3, 9, 7), dtype)
        flow, (theirs,) = gradients(lambda t: F.adaptive_avg_pool2d(t, size), x)
        assert_matches(apply("adaptive_avg_pool_gradient", flow, shape=x.shape, rank=2), theirs, scale=4)


@pytest.mark.parametrize("align_corners", (False, True))
@pytest.mark.parametrize(
    ("mode", "theirs_mode"), (("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic"))
)
def test_gradient_of_interpolation_agrees_with_torch(
    mode: str, theirs_mode: str, align_corners: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    corners = None if mode == "nearest" else align_corners
    for dtype in ("float32", "bfloat16", "float64"):
        x = make((2, 3, 5, 4), dtype)
        for size in ((10, 8), (3, 7)):
            flow, (theirs,) = gradients(
                lambda t, s=size: F.interpolate(t, s, mode=theirs_mode, align_corners=corners), x
            )
            ours = apply("interpolate_gradient", flow, shape=x.shape, mode=mode, align_corners=align_corners)
            assert_matches(ours, theirs, scale=8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("heads", (6, 2))
@pytest.mark.parametrize("masking", ("none", "causal", "bool", "float"))
def test_gradient_of_attention_agrees_with_torch(
    masking: str, heads: int, dtype: str, apply_all: Any, decomposed: Any, make: Any, assert_matches: Any
) -> None:
    q, k, v = make((2, 6, 5, 4), dtype), make((2, heads, 7, 4), dtype, seed=1), make((2, heads, 7, 3), dtype, seed=2)
    mask: Any = None
    if masking == "bool":
        mask = make((5, 7), seed=3) > -1
        mask[2] = False
    elif masking == "float":
        mask = make((2, 1, 5, 7), dtype, seed=3)
    attrs = {"is_causal": masking == "causal", "enable_gqa": heads != 6}
    their_mask = mask.double() if masking == "float" else mask
    flow, theirs = gradients(lambda *t: F.scaled_dot_product_attention(*t, their_mask, **attrs), q, k, v)
    out, logsumexp = apply_all("attention_with_logsumexp", q, k, v, mask, **attrs)
    for mine, other in zip(
        decomposed("attention_gradient", flow, q, k, v, out, logsumexp, mask, **attrs), theirs, strict=True
    ):
        # The result that the gradient is computed from was rounded to the type of q.
        assert_matches(mine, other, scale=16)
