"""Attention of packed sequences against each sequence's attention in f64."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hidet.errors import DTypeError, OptionError, ShapeError
from hidet.testing.packed_attention import attention_of_sequences, positions

torch = pytest.importorskip("torch")


def ends(lengths: Any) -> Any:
    return torch.from_numpy(positions(lengths))


def exact(q: Any, k: Any, v: Any, of_q: Any, of_k: Any, window: Any = (-1, -1), scale: Any = None) -> Any:
    """Results and logarithms of sums in f64, each rounded once."""
    arrays = (t.double().numpy() for t in (q, k, v))
    out, logarithms = map(torch.from_numpy, attention_of_sequences(*arrays, of_q, of_k, window, scale))
    return out.to(q.dtype), logarithms.to(torch.promote_types(q.dtype, torch.float32))


CASES = {
    "one sequence": ([5], [5]),
    "some, one of them empty": ([3, 0, 1, 7], [4, 2, 0, 5]),
    "more rows than keys": ([6, 4], [2, 3]),
}
WINDOWS = ((-1, -1), (-1, 0), (2, 0), (1, 1), (-1, 2), (0, -1))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16", "float64"))
def test_sequences_attend_to_their_own_keys_alone(
    dtype: str, case: str, window: Any, apply: Any, make: Any, assert_matches: Any
) -> None:
    of_q, of_k = CASES[case]
    q, k, v = (
        make((sum(of), heads, d), dtype, seed=n)
        for n, (of, heads, d) in enumerate(((of_q, 4, 6), (of_k, 2, 6), (of_k, 2, 3)))
    )
    ours = apply("varlen_attention", q, k, v, ends(of_q), ends(of_k), max_q=7, max_k=5, window=window)
    assert_matches(ours, exact(q, k, v, of_q, of_k, window)[0], scale=8)


def test_causal_attention_is_a_window_of_no_key_behind(apply: Any, make: Any) -> None:
    q, k = make((5, 1, 4)), make((8, 1, 4))
    attrs = {"max_q": 5, "max_k": 8}
    causal = apply("varlen_attention", q, k, k, ends([5]), ends([8]), is_causal=True, **attrs)
    windowed = apply("varlen_attention", q, k, k, ends([5]), ends([8]), window=(-1, 0), **attrs)
    assert torch.equal(causal, windowed)


def test_logarithms_of_sums_are_by_heads(apply_all: Any, make: Any, assert_matches: Any) -> None:
    of_q, of_k = CASES["some, one of them empty"]
    q, k, v = make((11, 4, 6)), make((11, 4, 6), seed=1), make((11, 4, 6), seed=2)
    given = (q, k, v, ends(of_q), ends(of_k))
    ours = apply_all("varlen_attention_with_logsumexp", *given, max_q=7, max_k=5, scale=0.3)
    for got, want in zip(ours, exact(q, k, v, of_q, of_k, scale=0.3), strict=True):
        assert_matches(got, want, scale=8)


def test_rows_in_no_sequence_are_zero(apply_all: Any, make: Any) -> None:
    """Before the first one, behind the last one, and beyond the longest one that was told."""
    q, k = make((12, 1, 4)), make((12, 1, 4), seed=1)
    where = torch.tensor([2, 4, 9], dtype=torch.int32)
    result, logarithms = apply_all("varlen_attention_with_logsumexp", q, k, k, where, where, max_q=3, max_k=12)
    is_inside = torch.tensor([n in (2, 3, 4, 5, 6) for n in range(12)])
    assert (result[~is_inside] == 0).all() and (result[is_inside] != 0).all()
    assert (logarithms[0, ~is_inside] == -math.inf).all() and logarithms[0, is_inside].isfinite().all()


@pytest.mark.parametrize("given", ([0, 999, 4], [-7, 5, 2**31 - 1], [9, 3, 1], [0, 0, 0]))
def test_positions_outside_are_cut_off(given: list[int], apply: Any, make: Any) -> None:
    q, k = make((8, 1, 4)), make((6, 1, 4), seed=1)
    where = torch.tensor(given, dtype=torch.int32)
    assert apply("varlen_attention", q, k, k, where, where, max_q=8, max_k=8, is_causal=True).isfinite().all()


def test_no_sequence_and_no_key_give_zeros(apply: Any, make: Any) -> None:
    q, none = make((3, 2, 4)), make((0, 2, 4))
    assert (apply("varlen_attention", q, none, none, ends([3]), ends([0]), max_q=3, max_k=0) == 0).all()
    assert (apply("varlen_attention", q, q, q, ends([]), ends([]), max_q=3, max_k=3) == 0).all()


def test_what_does_not_fit_is_refused_by_name(apply: Any, make: Any) -> None:
    q, k = make((5, 4, 4)), make((6, 3, 4))
    attrs = {"max_q": 5, "max_k": 6}

    def attend(*tensors: Any, **more: Any) -> Any:
        return apply("varlen_attention", *tensors, **{**attrs, **more})

    with pytest.raises(ShapeError, match="operator varlen_attention: 4 query heads do not divide among 3 key heads"):
        attend(q, k, k, ends([5]), ends([6]))
    with pytest.raises(ShapeError, match="positions of queries against keys: extents 2 and 3 differ"):
        attend(q, q, q, ends([5]), ends([2, 3]))
    with pytest.raises(ShapeError, match="takes 3 axes for q, got 2"):
        attend(q[0], k, k, ends([5]), ends([6]))
    with pytest.raises(ShapeError, match="cu_seq_q is empty"):
        attend(q, q, q, torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.int32))
    with pytest.raises(DTypeError, match="takes i32 for cu_seq_k, got i64"):
        attend(q, q, q, ends([5]), ends([5]).long())
    with pytest.raises(ShapeError, match="max_q is -1, expected the length of the longest sequence"):
        attend(q, q, q, ends([5]), ends([5]), max_q=-1)
    for window in ((1, 2, 3), (-2, 0), (True, 0), (0, 2**31)):
        with pytest.raises(OptionError, match="expected numbers of keys before and after a row's place"):
            attend(q, q, q, ends([5]), ends([5]), window=window)
