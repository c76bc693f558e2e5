"""Ordering operators against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.compute.evaluate import evaluate
from hidet.dims import symbol
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import define_node
from hidet.graph.types import TensorType

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int8", "uint8")
SHAPES = (((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((0, 3), 1), ((), 0))


def repeating(shape: tuple[int, ...], dtype: str, make: Any) -> Any:
    """Values among which many are equal."""
    x = make(shape, dtype, 0, 5)
    return x.floor() if x.is_floating_point() else x


@pytest.mark.parametrize("descending", (False, True))
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_is_stable_as_in_torch(
    descending: bool, dtype: str, apply: Any, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axis in SHAPES:
        x = repeating(shape, dtype, make)
        theirs = torch.sort(x, dim=axis, stable=True, descending=descending)
        for mine, other in zip(apply_all("sort", x, axis=axis, descending=descending), theirs, strict=True):
            assert_matches(mine, other)
        assert_matches(apply("argsort", x, axis=axis, descending=descending), theirs[1])


@pytest.mark.parametrize("largest", (False, True))
@pytest.mark.parametrize("dtype", DTYPES)
def test_topk_agrees_with_torch_on_values_and_picks_the_earlier_of_equals(
    largest: bool, dtype: str, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axis, k in (((3, 9), 1, 4), ((9, 3), 0, 1), ((5,), -1, 5), ((5,), 0, 0), ((), 0, 1)):
        x = repeating(shape, dtype, make)
        values, indices = apply_all("topk", x, k=k, axis=axis, largest=largest)
        assert_matches(values, torch.topk(x, k, axis, largest).values)
        stable = torch.sort(x, dim=axis, stable=True, descending=largest).indices
        assert_matches(indices, stable if x.ndim == 0 else stable.narrow(axis, 0, k))


def test_sort_puts_nan_last_and_first_when_descending(apply_all: Any, assert_matches: Any) -> None:
    x = torch.tensor([2.0, float("nan"), -1.0, float("inf"), float("nan"), -float("inf")])
    for descending in (False, True):
        theirs = torch.sort(x, stable=True, descending=descending)
        for mine, other in zip(apply_all("sort", x, descending=descending), theirs, strict=True):
            assert_matches(mine, other)


@pytest.mark.parametrize("keepdim", (False, True))
def test_order_statistics_agree_with_torch(keepdim: bool, apply_all: Any, make: Any, assert_matches: Any) -> None:
    for dtype in ("float32", "int64"):
        for shape, axis in (((7,), 0), ((3, 6), 1), ((5, 3), 0), ((), 0)):
            x = make(shape, dtype, -99, 99)
            for k in (1, 3 if x.ndim else 1):
                theirs = torch.kthvalue(x, k, axis, keepdim)
                assert_matches(apply_all("kthvalue", x, k=k, axis=axis, keepdim=keepdim)[0], theirs.values)
            values, indices = apply_all("median", x, axis=axis, keepdim=keepdim)
            assert_matches(values, torch.median(x, axis, keepdim).values)
            if x.ndim:
                where = indices if keepdim else indices.unsqueeze(axis)
                found = x.gather(axis, where)
                assert_matches(found if keepdim else found.squeeze(axis), values)


def test_median_with_nan_is_the_first_nan(apply_all: Any) -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0, nan], [4.0, 2.0, 1.0, 3.0]])
    values, indices = apply_all("median", x, axis=1)
    assert torch.isnan(values[0]) and values[1] == 2.0
    assert indices.tolist() == [1, 1]


@pytest.mark.parametrize("right", (False, True))
def test_searchsorted_agrees_with_torch(right: bool, apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in ("float32", "int64"):
        boundaries = repeating((9,), dtype, make).sort().values
        values = make((4, 5), dtype, -1, 7, seed=1)
        values = values.floor() if values.is_floating_point() else values
        assert_matches(
            apply("searchsorted", boundaries, values, right=right), torch.bucketize(values, boundaries, right=right)
        )
        rows = repeating((4, 9), dtype, make).sort().values
        theirs = torch.searchsorted(rows, values, right=right)
        assert_matches(apply("searchsorted", rows, values, right=right), theirs)
    nan = torch.tensor([float("nan")])
    assert apply("searchsorted", torch.tensor([1.0, 2.0]), nan, right=right).tolist() == [2]


def results(operators: Any, name: str, *arrays: Any, **attrs: Any) -> list[Any]:
    """Outputs of an operator with a data-dependent number of results, called `u0`."""
    spec = operators[name]
    types = [TensorType(dtypes.from_numpy(array.dtype), array.shape) for array in arrays]
    definition = define_node(spec, types, spec.attrs({"count": symbol("u0"), **attrs}))
    assert definition is not None
    return evaluate(definition, arrays)


def test_data_dependent_operators_find_as_many_results_as_there_are(operators: Any) -> None:
    x = np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 3.0]], np.float32)
    (places,) = results(operators, "nonzero", x)
    assert places.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2]]
    (chosen,) = results(operators, "masked_select", x, x > 1)
    assert chosen.tolist() == [3.0, 3.0, 3.0]
    values, inverse, counts = results(operators, "unique", x)
    assert values.tolist() == [0.0, 1.0, 3.0] and counts.tolist() == [2, 1, 3]
    assert inverse.tolist() == [[0, 2, 1], [2, 0, 2]]
    rows = np.array([[1, 2], [0, 5], [1, 2]])
    values, inverse, counts = results(operators, "unique", rows, axis=0)
    assert values.tolist() == [[0, 5], [1, 2]] and inverse.tolist() == [1, 0, 1] and counts.tolist() == [1, 2]


def test_ordering_refuses_impossible_inputs_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match="topk: 6 elements of an axis of extent 5"):
        apply("topk", make((5,)), k=6)
    with pytest.raises(ShapeError, match="kthvalue: no element number 0"):
        apply("kthvalue", make((5,)), k=0)
    with pytest.raises(DTypeError, match="masked_select takes a bool mask, got f32"):
        apply("masked_select", make((5,)), make((5,)), count=3)
