"""Reductions over segments against torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from hidet import dtypes
from hidet.errors import ShapeError, UnsupportedOp

torch = pytest.importorskip("torch")

ENDS = torch.tensor([0, 2, 2, 5, 9])


@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("by", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_segment_reduce_reduces_what_lies_between_two_ends(
    by: str, initial: float | None, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    x = make((9, 3), dtype)
    ours = apply("segment_reduce", x, ENDS[:-1], ENDS[1:], reduce_by=by, initial=initial)
    theirs = torch.segment_reduce(x.double(), by, offsets=ENDS, initial=initial)
    assert_matches(ours, theirs.to(x.dtype), 4)


def test_segment_reduce_has_segments_of_its_own_for_every_row(apply: Any, make: Any, assert_matches: Any) -> None:
    x, ends = make((2, 6, 3)), torch.tensor([[0, 1, 6], [2, 2, 3]])
    ours = apply("segment_reduce", x, ends[:, :-1], ends[:, 1:], reduce_by="sum", axis=1)
    rows = [torch.stack([x[n, a:b].sum(0) for a, b in pairwise(e.tolist())]) for n, e in enumerate(ends)]
    assert_matches(ours, torch.stack(rows), 4)


def test_the_place_of_the_largest_counts_from_the_start_of_the_axis(apply: Any) -> None:
    x = torch.tensor([1.0, 5.0, 5.0, -1.0, float("nan"), 2.0])
    starts, stops = torch.tensor([0, 1, 3, 2]), torch.tensor([3, 4, 6, 2])
    assert apply("segment_reduce", x, starts, stops, reduce_by="argmax").tolist() == [1, 1, 4, 0]


def test_ends_outside_of_the_axis_are_cut_off(apply: Any) -> None:
    x = torch.arange(4.0)
    starts, stops = torch.tensor([-5, 3, 9]), torch.tensor([2, 100, 12])
    assert apply("segment_reduce", x, starts, stops, reduce_by="sum").tolist() == [1, 3, 0]


def test_what_does_not_fit_is_refused(apply: Any) -> None:
    x, ends = torch.zeros(4, 2), torch.tensor([0, 2])
    with pytest.raises(UnsupportedOp, match="no reduction 'median'"):
        apply("segment_reduce", x, ends, ends, reduce_by="median")
    with pytest.raises(ShapeError, match="takes 2 axes for starts"):
        apply("segment_reduce", x, ends, ends, reduce_by="sum", axis=1)
    with pytest.raises(ShapeError, match="differ"):
        apply("segment_reduce", x, ends, ends[:1], reduce_by="sum")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_frexp_splits_numbers_as_torch_does(dtype: str, apply_all: Any, assert_matches: Any) -> None:
    """defects.md, left to torch: frexp."""
    type_ = dtypes.dtype(dtype)
    edges = [0.0, -0.0, 1.0, -0.5, 0.75, 3e4, float("inf"), -float("inf"), float("nan")]
    edges += [type_.smallest_normal, type_.smallest_normal / 4, -type_.smallest_normal * type_.epsilon, type_.max]
    x = torch.tensor(edges, dtype=getattr(torch, dtype))
    mantissa, exponent = apply_all("frexp", x)
    known = torch.frexp(x.double() if type_.bits < 32 else x)
    assert_matches(mantissa, known.mantissa.to(x.dtype))
    assert_matches(exponent, known.exponent)
