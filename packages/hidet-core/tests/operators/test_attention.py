"""Attention against torch in f64."""

from __future__ import annotations

from typing import Any

import pytest

from hidet import dtypes
from hidet.errors import DTypeError, ShapeError

torch = pytest.importorskip("torch")
attend = torch.nn.functional.scaled_dot_product_attention

FLOATS = ("float32", "float16", "bfloat16", "float64")


def exact(q: Any, k: Any, v: Any, mask: Any = None, **attrs: Any) -> Any:
    """torch's attention in f64, rounded once."""
    wide = mask.double() if mask is not None and mask.is_floating_point() else mask
    return attend(q.double(), k.double(), v.double(), wide, **attrs).to(q.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows, keys, width, values", ((5, 5, 4, 4), (1, 9, 8, 8), (7, 3, 5, 2), (1, 1, 1, 1)))
def test_attention_agrees_with_torch(
    rows: int, keys: int, width: int, values: int, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    q, k, v = (
        make((2, 3, n, d), dtype, seed=i) for i, (n, d) in enumerate(((rows, width), (keys, width), (keys, values)))
    )
    assert_matches(apply("attention", q, k, v), exact(q, k, v), scale=8)
    assert_matches(apply("attention", q, k, v, is_causal=True), exact(q, k, v, is_causal=True), scale=8)
    assert_matches(apply("attention", q, k, v, scale=0.3), exact(q, k, v, scale=0.3), scale=8)


def test_attention_takes_bool_and_float_masks_that_broadcast(apply: Any, make: Any, assert_matches: Any) -> None:
    q, k, v = (make((2, 3, n, 4), seed=n) for n in (5, 7, 7))
    for shape in ((5, 7), (2, 1, 5, 7), (2, 3, 5, 7), (2, 1, 1, 7), (1, 1, 5, 1)):
        bias = make(shape)
        assert_matches(apply("attention", q, k, v, bias), exact(q, k, v, bias), scale=8)
        mask = bias > -1
        assert_matches(apply("attention", q, k, v, mask), exact(q, k, v, mask), scale=8)


def test_attention_rows_without_keys_are_zero(apply: Any, make: Any, assert_matches: Any) -> None:
    q, k, v = (make((1, 2, n, 4), seed=n) for n in (3, 5, 5))
    mask = torch.ones((3, 5), dtype=torch.bool)
    mask[1] = False
    ours = apply("attention", q, k, v, mask)
    assert (ours[:, :, 1] == 0).all()
    assert_matches(ours, exact(q, k, v, mask), scale=8)
    bias = torch.where(mask, 0.0, float("-inf"))
    assert_matches(apply("attention", q, k, v, bias), exact(q, k, v, bias), scale=8)


@pytest.mark.parametrize("heads", (1, 2, 6))
def test_grouped_queries_share_key_heads_as_in_torch(heads: int, apply: Any, make: Any, assert_matches: Any) -> None:
    q = make((2, 6, 5, 4))
    k, v = make((2, heads, 7, 4), seed=1), make((2, heads, 7, 4), seed=2)
    assert_matches(apply("attention", q, k, v, enable_gqa=True), exact(q, k, v, enable_gqa=True), scale=8)


def test_grouped_queries_of_one_batch_meet_keys_of_several(apply: Any, make: Any, assert_matches: Any) -> None:
    q = make((1, 6, 5, 4))
    k, v = make((3, 2, 7, 4), seed=1), make((3, 2, 7, 4), seed=2)
    ours = apply("attention", q, k, v, enable_gqa=True)
    assert_matches(ours, exact(q.expand(3, 6, 5, 4), k, v, enable_gqa=True), scale=8)


def test_attention_needs_no_batch_axes(apply: Any, make: Any, assert_matches: Any) -> None:
    q, k, v = make((5, 4), seed=1), make((7, 4), seed=2), make((7, 3), seed=3)
    assert_matches(apply("attention", q, k, v), exact(q, k, v), scale=8)


def test_attention_returns_the_logsumexp_of_its_scores(apply_all: Any, make: Any, assert_matches: Any) -> None:
    q, k, v = (make((2, 3, n, 4), seed=n) for n in (5, 7, 7))
    ours = apply_all("attention_with_logsumexp", q, k, v)
    assert_matches(ours[0], exact(q, k, v), scale=8)
    assert_matches(ours[1], torch.logsumexp(q.double() @ k.double().mT / 2, -1).float(), scale=4)


def test_attention_may_return_what_it_computes_with(apply_all: Any, make: Any, assert_matches: Any) -> None:
    q, k, v = (make((2, 3, n, 4), seed=n).half() for n in (5, 7, 7))
    wide, _ = apply_all("attention_with_logsumexp", q, k, v, dtype=dtypes.f32)
    narrow, _ = apply_all("attention_with_logsumexp", q, k, v)
    assert (wide.dtype, narrow.dtype) == (torch.float32, torch.float16)
    assert torch.equal(wide.half(), narrow)
    with pytest.raises(DTypeError, match="results of f64 for queries of f16, expected f16 or f32"):
        apply_all("attention_with_logsumexp", q, k, v, dtype=dtypes.f64)


def test_attention_refuses_shapes_that_do_not_fit_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="last axis of q against k: extents 4 and 5 differ"):
        apply("attention", make((1, 3, 4)), make((1, 3, 5)), make((1, 3, 5)))
    with pytest.raises(ShapeError, match="6 query heads do not divide among 4 key heads"):
        apply("attention", make((6, 3, 4)), make((4, 3, 4)), make((4, 3, 4)), enable_gqa=True)
    with pytest.raises(ShapeError, match=r"mask of shape \[2, 3, 3\] does not broadcast to \[1, 3, 3\]"):
        apply("attention", make((1, 3, 4)), make((1, 3, 4)), make((1, 3, 4)), make((2, 3, 3)))
