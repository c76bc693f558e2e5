"""Scatters against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import DTypeError, ShapeError, UnsupportedOp

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int8")


def positions(shape: tuple[int, ...], extent: int, *, negative: bool = False) -> Any:
    """Seeded positions on an axis of `extent`."""
    generator = torch.Generator().manual_seed(sum(shape) + extent)
    return torch.randint(-extent if negative else 0, extent, shape, generator=generator)


def permuted(shape: tuple[int, ...], extent: int) -> Any:
    """Positions that do not repeat along the first axis."""
    order = torch.argsort(torch.rand((extent, *shape[1:]), generator=torch.Generator().manual_seed(extent)), 0)
    return order[: shape[0]]


@pytest.mark.parametrize("dtype", (*DTYPES, "bool"))
def test_scatter_replaces_as_torch_does(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    high = 1 if dtype == "bool" else 9
    x, src = make((6, 4), dtype, 0, high), make((5, 4), dtype, 0, high, seed=1)
    index = permuted((4, 3), 6)
    assert_matches(apply("scatter", x, index, src, axis=0), x.scatter(0, index, src))
    assert_matches(apply("scatter", x, index - 6, src, axis=-2), x.scatter(0, index, src))
    point = torch.tensor(0)
    assert_matches(apply("scatter", x[0, 0], point, src[1, 1], axis=0), x[0, 0].scatter(0, point, src[1, 1]))


def test_last_of_repeated_updates_wins(apply: Any) -> None:
    x, index, src = torch.zeros(3), torch.tensor([1, 1, 2, 1]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert apply("scatter", x, index, src, axis=0).tolist() == [0.0, 4.0, 3.0]


@pytest.mark.parametrize("include_self", (True, False))
@pytest.mark.parametrize("reduce", ("sum", "prod", "amax", "amin", "mean"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_reduces_as_torch_does(
    reduce: str, include_self: bool, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    low = 0 if reduce == "mean" else -3
    x, src = make((5, 4), dtype, low, 3), make((9, 4), dtype, low, 3, seed=1)
    index = positions((9, 3), 5)
    wide = [t.double() if t.is_floating_point() else t for t in (x, src)]
    theirs = wide[0].scatter_reduce(0, index, wide[1], reduce, include_self=include_self).to(x.dtype)
    ours = apply("scatter", x, index, src, axis=0, reduce=reduce, include_self=include_self)
    assert_matches(ours, theirs, scale=8)


@pytest.mark.parametrize("accumulate", (False, True))
@pytest.mark.parametrize("dtype", (*DTYPES, "bool"))
def test_index_put_agrees_with_torch(accumulate: bool, dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    high = 1 if dtype == "bool" else 9
    x = make((5, 4, 3), dtype, 0, high)
    rows, planes = torch.tensor([3, -5, 1]), torch.tensor([[2], [0]])
    cases = (
        ((rows,), (3, 4, 3)),
        ((rows,), ()),
        ((None, torch.tensor([1, 3])), (5, 2, 1)),
        ((None, None, torch.tensor([0, 2])), (2,)),
        ((rows, None, planes), (2, 3, 4)),
        ((rows, torch.tensor([0, 1, 2])), (3, 3)),
    )
    for indices, shape in cases:
        values = make(shape, dtype, 0, high, seed=1)
        places = tuple(slice(None) if index is None else index for index in indices)
        wide = x.double() if x.is_floating_point() else x.clone()
        if accumulate:
            wide = torch.ops.aten.index_put(wide, list(indices), values.to(wide.dtype), True)
        else:
            wide[places] = values.to(wide.dtype)
        assert_matches(apply("index_put", x, values, *indices, accumulate=accumulate), wide.to(x.dtype), scale=4)


def test_index_put_adds_up_repeated_places(apply: Any, make: Any, assert_matches: Any) -> None:
    x, values, index = make((4, 3)), make((7, 3), seed=1), positions((7,), 4)
    theirs = x.double().index_put((index,), values.double(), accumulate=True).float()
    assert_matches(apply("index_put", x, values, index, accumulate=True), theirs, scale=4)


def test_scatter_nd_writes_slices_at_index_tuples(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((4, 5, 3))
    for index in (torch.tensor([[0, 1], [3, -1]]), torch.tensor([[2], [0], [1]]), torch.tensor([[1, 2, 0]])):
        depth = index.shape[1]
        src = make((len(index), *x.shape[depth:]), seed=1)
        theirs = x.clone()
        theirs[tuple(index.T)] = src
        assert_matches(apply("scatter_nd", x, index, src), theirs)
        theirs = x.clone()
        theirs[tuple(index.T)] += src
        assert_matches(apply("scatter_nd", x, index, src, reduce="sum"), theirs)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "int32", "bool"))
def test_inverses_of_views_agree_with_torch(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    high = 1 if dtype == "bool" else 9

    def pair(shape: tuple[int, ...], inner: tuple[int, ...]) -> tuple[Any, Any]:
        return make(shape, dtype, 0, high), make(inner, dtype, 0, high, seed=1)

    x, src = pair((6, 5), (2, 5))
    ours = apply("slice_scatter", x, src, starts=(1, 0), stops=(5, None), steps=(2, 1))
    assert_matches(ours, x.slice_scatter(src, 0, 1, 5, 2))
    x, src = pair((6, 5), (6,))
    assert_matches(apply("select_scatter", x, src, axis=1, index=-2), x.select_scatter(src, 1, -2))
    x, src = pair((6, 5, 3), (3, 4))
    ours = apply("diagonal_scatter", x, src, offset=1, axis1=0, axis2=1)
    assert_matches(ours, x.diagonal_scatter(src, 1, 0, 1))
    x, src = pair((4, 5), (2, 3))
    ours = apply("as_strided_scatter", x, src, shape=(2, 3), strides=(7, 2), offset=3)
    assert_matches(ours, torch.as_strided_scatter(x, src, (2, 3), (7, 2), 3))


def test_masked_scatter_takes_elements_in_order(apply: Any, make: Any, assert_matches: Any) -> None:
    x, src = make((4, 5)), make((7, 3), seed=1)
    for mask in (make((4, 5), "bool"), make((5,), "bool"), torch.zeros((4, 1), dtype=torch.bool)):
        assert_matches(apply("masked_scatter", x, mask, src), x.masked_scatter(mask, src))


def test_scatters_may_overwrite_their_first_input(operators: Any) -> None:
    names = ("scatter", "index_put", "scatter_nd", "slice_scatter", "select_scatter", "diagonal_scatter")
    assert all(operators[name].reuses == ((0, 0),) for name in names)


def test_scatters_refuse_impossible_inputs_by_name(apply: Any, make: Any) -> None:
    index = torch.tensor([0])
    with pytest.raises(DTypeError, match="scatter takes inputs of one element type, got f32 for x and f16 for src"):
        apply("scatter", make((3,)), index, make((1,), "float16"), axis=0)
    with pytest.raises(UnsupportedOp, match="scatter of f32 has no reduction 'max'; it has: sum, prod"):
        apply("scatter", make((3,)), index, make((1,)), axis=0, reduce="max")
    with pytest.raises(ShapeError, match="index against src: extent 1 of axis 0 is greater than 0"):
        apply("scatter", make((3,)), index, make((0,)), axis=0)
    with pytest.raises(ShapeError, match=r"values of shape \[2\] does not broadcast to \[1\]"):
        apply("index_put", make((3,)), make((2,)), index)
    with pytest.raises(ShapeError, match=r"src of shape \[3, 5\] for \[2, 5\]: extents 3 and 2 differ"):
        apply("slice_scatter", make((6, 5)), make((3, 5)), starts=(0, 0), stops=(2, 5))
    with pytest.raises(ShapeError, match="as_strided_scatter takes elements -3 to -2 of a tensor that has 9"):
        apply("as_strided_scatter", make((9,)), make((2,)), shape=(2,), strides=(1,), offset=-3)
