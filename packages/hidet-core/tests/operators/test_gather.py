"""Gathers against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import DTypeError, ShapeError

torch = pytest.importorskip("torch")

DTYPES = ("float32", "bfloat16", "int64", "bool")


def positions(shape: tuple[int, ...], extent: int, *, negative: bool = False) -> Any:
    """Seeded positions on an axis of `extent`."""
    generator = torch.Generator().manual_seed(sum(shape) + extent)
    return torch.randint(-extent if negative else 0, extent, shape, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_agrees_with_torch(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 5, 4), dtype, 0, 1 if dtype == "bool" else 9)
    for axis, shape in ((0, (2, 5, 4)), (1, (3, 7, 2)), (-1, (1, 1, 9))):
        index = positions(shape, x.shape[axis])
        assert_matches(apply("gather", x, index, axis=axis), torch.gather(x, axis, index))


def test_gather_counts_negative_positions_from_the_end(apply: Any, make: Any, assert_matches: Any) -> None:
    x, index = make((4, 3)), positions((4, 3), 3, negative=True).int()
    assert_matches(apply("gather", x, index, axis=1), torch.gather(x, 1, index.long() % 3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_select_agrees_with_torch(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 5, 4), dtype, 0, 1 if dtype == "bool" else 9)
    for axis in (0, 1, -1):
        index = positions((6,), x.shape[axis])
        assert_matches(apply("index_select", x, index, axis=axis), torch.index_select(x, axis, index))
    pair = positions((2, 3), 5, negative=True)
    assert_matches(apply("index_select", x, pair, axis=1), x[:, pair])
    assert_matches(apply("index_select", x, pair[0, 0], axis=1), x[:, pair[0, 0]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding_reads_rows(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    weight = make((11, 3), dtype, 0, 1 if dtype == "bool" else 9)
    for shape in ((), (4,), (2, 5), (0, 3)):
        for kind in (torch.int64, torch.int32):
            index = positions(shape, 11).to(kind)
            assert_matches(apply("embedding", weight, index), weight[index.long()])


@pytest.mark.parametrize(
    "shapes",
    (
        ((4,), None, None, None),
        (None, (4,), None, None),
        (None, (2, 1), (3,), None),
        ((4,), None, (4,), None),
        (None, (3,), None, (2, 1)),
        ((2, 2), (1, 2), (2, 1), ()),
        (None, (), None, None),
        ((0,), (0,), None, None),
    ),
)
def test_index_lays_out_its_result_as_torch_does(shapes: Any, apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((3, 5, 4, 2))
    indices = [None if s is None else positions(s, n, negative=True) for s, n in zip(shapes, x.shape, strict=True)]
    theirs = x[tuple(slice(None) if index is None else index for index in indices)]
    assert_matches(apply("index", x, *indices), theirs)


def test_index_may_leave_out_last_axes(apply: Any, make: Any, assert_matches: Any) -> None:
    x, index = make((3, 5)), positions((4,), 3)
    assert_matches(apply("index", x, index), x[index])


def test_gather_nd_reads_slices_at_index_tuples(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((4, 5, 3))
    for index in (torch.tensor([[0, 1], [3, -1]]), torch.tensor([[[2], [0]]]), torch.tensor([1, 2, 0])):
        assert_matches(apply("gather_nd", x, index), x[tuple(index.movedim(-1, 0))])
    index = torch.tensor([[4], [0], [2], [-1]])
    assert_matches(apply("gather_nd", x, index, batch=1), torch.stack([x[i, index[i, 0]] for i in range(4)]))


def test_one_hot_agrees_with_torch(apply: Any, assert_matches: Any) -> None:
    for shape in ((), (5,), (2, 3)):
        index = positions(shape, 7)
        assert_matches(apply("one_hot", index, classes=7), torch.nn.functional.one_hot(index, 7))


def test_gathers_refuse_impossible_inputs_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(DTypeError, match="gather takes an integer type for index, got f32"):
        apply("gather", make((3,)), make((3,)), axis=0)
    with pytest.raises(ShapeError, match="as many axes for index as for x"):
        apply("gather", make((3, 2)), positions((3,), 2), axis=0)
    with pytest.raises(ShapeError, match="index against x: extent 3 of axis 1 is greater than 2"):
        apply("gather", make((3, 2)), positions((5, 3), 2), axis=0)
    with pytest.raises(ShapeError, match="needs an index tensor for at least one axis"):
        apply("index", make((3, 2)), None, None)
    with pytest.raises(ShapeError, match="got 3 indices for shape"):
        apply("index", make((3, 2)), *[positions((1,), 2)] * 3)
