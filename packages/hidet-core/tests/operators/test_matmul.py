"""Matrix products against torch, in f64 where torch rounds differently."""

from __future__ import annotations

from typing import Any

import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import DTypeError, ShapeError
from hidet.graph import GraphBuilder, TensorType

torch = pytest.importorskip("torch")

FLOATS = ("float32", "float16", "bfloat16", "float64")
SHAPES = (
    ((3, 5), (5, 7)),
    ((1, 1), (1, 1)),
    ((2, 3, 5), (2, 5, 7)),
    ((2, 1, 3, 5), (4, 5, 2)),
    ((3, 5), (2, 5, 1)),
    ((0, 5), (5, 3)),
    ((3, 0), (0, 4)),
    ((17, 65), (65, 33)),
)


def exact(function: Any, *tensors: Any) -> Any:
    """`function` in f64, rounded once to the dtype of the first tensor."""
    return function(*[t.double() for t in tensors]).to(tensors[0].dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_broadcasts_leading_axes(
    left: tuple[int, ...], right: tuple[int, ...], dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    a, b = make(left, dtype, seed=1), make(right, dtype, seed=2)
    assert_matches(apply("matmul", a, b), exact(torch.matmul, a, b), scale=8)


@pytest.mark.parametrize("trans_a", (False, True))
@pytest.mark.parametrize("trans_b", (False, True))
def test_matmul_reads_transposed_operands(
    trans_a: bool, trans_b: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    a = make((2, 5, 3) if trans_a else (2, 3, 5), seed=1)
    b = make((7, 5) if trans_b else (5, 7), seed=2)
    theirs = torch.matmul(a.mT if trans_a else a, b.mT if trans_b else b)
    assert_matches(apply("matmul", a, b, trans_a=trans_a, trans_b=trans_b), theirs, scale=8)


def test_matmul_of_integers_wraps_around_in_its_type(apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in ("int64", "int32", "int8", "uint8"):
        a, b = make((3, 9), dtype, 0, 120, seed=1), make((9, 4), dtype, 0, 120, seed=2)
        assert_matches(apply("matmul", a, b), torch.matmul(a, b))


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_adds_the_bias_before_rounding(dtype: str, apply: Any, make: Any, assert_matches: Any) -> None:
    weight, bias = make((7, 5), dtype, seed=1), make((7,), dtype, seed=2)
    for shape in ((5,), (3, 5), (2, 3, 5), (0, 5)):
        x = make(shape, dtype)
        assert_matches(apply("linear", x, weight), exact(torch.nn.functional.linear, x, weight), scale=8)
        theirs = exact(torch.nn.functional.linear, x, weight, bias)
        assert_matches(apply("linear", x, weight, bias), theirs, scale=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_stacked_linear_is_that_of_the_weights_below_each_other(
    dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    weights, bias = [make((rows, 5), dtype, seed=rows) for rows in (7, 1, 4)], make((12,), dtype, seed=2)
    first, *others = weights
    for shape in ((5,), (2, 3, 5)):
        x = make(shape, dtype)
        for given in (None, bias):
            theirs = exact(torch.nn.functional.linear, x, torch.cat(weights), *(() if given is None else (given,)))
            assert_matches(apply("stacked_linear", x, first, given, *others), theirs, scale=8)
    assert_matches(apply("stacked_linear", x, first), exact(torch.nn.functional.linear, x, first), scale=8)


def test_a_stacked_linear_names_the_weight_that_does_not_fit(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match=r"stacked_linear: last axis of x against columns of weight 1: .* 5 and 4"):
        apply("stacked_linear", make((3, 5)), make((7, 5)), None, make((7, 4)))
    with pytest.raises(ShapeError, match=r"stacked_linear: bias against rows of all weights: .* 7 and 9"):
        apply("stacked_linear", make((3, 5)), make((7, 5)), make((7,)), make((2, 5)))


def test_dot_mv_and_addmm_agree_with_torch(apply: Any, make: Any, assert_matches: Any) -> None:
    a, b, c = make((3, 5), seed=1), make((5, 7), seed=2), make((7,), seed=3)
    assert_matches(apply("dot", a[0], b[:, 0]), torch.dot(a[0], b[:, 0]), scale=8)
    assert_matches(apply("mv", a, b[:, 0]), torch.mv(a, b[:, 0]), scale=8)
    for alpha, beta in ((1, 1), (0.5, 2.0), (2.0, 0)):
        theirs = torch.addmm(c, a, b, alpha=alpha, beta=beta)
        assert_matches(apply("addmm", c, a, b, alpha=alpha, beta=beta), theirs, scale=8)


def test_addmm_with_beta_zero_ignores_nan(apply: Any, make: Any) -> None:
    a, b = make((2, 3)), make((3, 2))
    c = torch.full((2, 2), float("nan"))
    assert torch.isfinite(apply("addmm", c, a, b, beta=0)).all()


def test_matmul_names_the_extents_that_do_not_fit(apply: Any, make: Any) -> None:
    with pytest.raises(ShapeError, match=r"columns of a against rows of b: extents 5 and 4 differ"):
        apply("matmul", make((3, 5)), make((4, 7)))
    with pytest.raises(ShapeError, match=r"takes at least 2 axes for a, got 1"):
        apply("matmul", make((5,)), make((5, 7)))
    with pytest.raises(DTypeError, match=r"one element type, got f32 for a and f16 for b"):
        apply("matmul", make((3, 5)), make((5, 7), "float16"))
    with pytest.raises(ShapeError, match=r"operator linear: fp32_precision is 'tf16': expected 'ieee' or 'tf32'"):
        apply("linear", make((3, 5)), make((7, 5)), fp32_precision="tf16")


def test_matmul_keeps_symbolic_extents(operators: Any) -> None:
    s = symbol("s0", lower=1)
    builder = GraphBuilder(operators)
    a = builder.input(TensorType(dtypes.f32, (s, 4, 2 * s)))
    b = builder.input(TensorType(dtypes.f32, (s, 2 * s, 5)))
    assert builder.emit("matmul", a, b).tensor.shape == (s, 4, 5)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    (
        ("dot", ((5,), (5,)), {}),
        ("mv", ((3, 5), (5,)), {}),
        ("addmm", ((7,), (3, 5), (5, 7)), {"alpha": 0.5, "beta": 2.0}),
        ("addmm", ((7,), (3, 5), (5, 7)), {"beta": 0}),
    ),
)
def test_decomposition_means_the_same(
    name: str, shapes: Any, attrs: dict[str, Any], apply: Any, decomposed: Any, make: Any, assert_matches: Any
) -> None:
    tensors = [make(shape, seed=number) for number, shape in enumerate(shapes)]
    (ours,) = decomposed(name, *tensors, **attrs)
    assert_matches(ours, apply(name, *tensors, **attrs), scale=4)
