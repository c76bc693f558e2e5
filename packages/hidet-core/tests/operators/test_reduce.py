"""Reductions against torch."""

from __future__ import annotations

from typing import Any

import pytest

from hidet.errors import DTypeError, ShapeError

torch = pytest.importorskip("torch")

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int64", "int32", "int8", "uint8", "bool")
REDUCTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...] = (
    ((3, 7), (1,)),
    ((3, 7), (0,)),
    ((2, 3, 5), (0, -1)),
    ((2, 3, 5), None),
    ((1,), (0,)),
    ((0, 4), (1,)),
    ((), None),
)


def prod(x: Any, axes: Any, keepdim: bool) -> Any:
    """torch.prod over several axes."""
    for axis in sorted(range(x.ndim) if axes is None else [a % x.ndim for a in axes], reverse=True):
        x = torch.prod(x, axis, keepdim)
    return x


def over(name: str) -> Any:
    """The torch function `name` with axes None meaning all."""
    function = getattr(torch, name)
    return lambda x, axes, keepdim: function(x, tuple(range(x.ndim)) if axes is None else axes, keepdim)


OF_FLOATS = {name: over(name) for name in ("sum", "mean", "amax", "amin", "any", "all", "logsumexp")} | {"prod": prod}
OF_INTEGERS = ("sum", "amax", "amin", "any", "all")


@pytest.mark.parametrize("keepdim", (False, True))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_reduction_agrees_with_torch_in_f64(
    name: str, dtype: str, keepdim: bool, apply: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axes in REDUCTIONS:
        x = make(shape, dtype)
        theirs = OF_FLOATS[name](x.double(), axes, keepdim)
        theirs = theirs.to(x.dtype) if theirs.is_floating_point() else theirs
        assert_matches(apply(name, x, axes=axes, keepdim=keepdim), theirs, scale=8)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_reduction_of_integers_agrees_with_torch(
    name: str, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axes in REDUCTIONS:
        x = make(shape, dtype, 0, 1 if dtype == "bool" else 120)
        assert_matches(apply(name, x, axes=axes), OF_FLOATS[name](x, axes, False).to(sum_type(name, x)))


def sum_type(name: str, x: Any) -> Any:
    """The result type of torch's reduction `name` of x; torch keeps uint8 in any and all, we return bool."""
    return {"sum": torch.int64, "any": torch.bool, "all": torch.bool}.get(name, x.dtype)


def test_products_and_counts_of_integers_are_64_bit(apply: Any, make: Any, assert_matches: Any) -> None:
    x = make((4, 5), "int32", -4, 5)
    assert_matches(apply("prod", x, axes=(1,)), torch.prod(x, 1))
    assert_matches(apply("count_nonzero", x, axes=(0,)), torch.count_nonzero(x, 0))
    assert_matches(apply("count_nonzero", x), torch.count_nonzero(x))


def test_empty_reductions_agree_with_torch(apply: Any, assert_matches: Any) -> None:
    x = torch.zeros((3, 0))
    for name in ("sum", "mean", "any", "all", "logsumexp"):
        assert_matches(apply(name, x, axes=(1,)), OF_FLOATS[name](x, (1,), False))
    assert_matches(apply("var", x, axes=(1,)), torch.full((3,), float("nan")))


@pytest.mark.parametrize("name", ("amax", "amin", "argmax", "argmin"))
def test_extremes_of_nothing_are_refused(name: str, apply: Any) -> None:
    with pytest.raises(ShapeError, match="has no value for no elements"):
        apply(name, torch.zeros((3, 0)), axes=(1,))


@pytest.mark.parametrize("dtype", (*FLOATS, "int64", "int8", "uint8"))
@pytest.mark.parametrize("name", ("argmax", "argmin"))
def test_arg_reduction_returns_the_first_of_equals(
    name: str, dtype: str, apply: Any, make: Any, assert_matches: Any
) -> None:
    reference = getattr(torch, name)
    x = make((4, 9, 3), dtype, 0, 4).floor() if "float" in dtype else make((4, 9, 3), dtype, 0, 4)
    for axis in (0, 1, -1):
        assert_matches(apply(name, x, axes=(axis,), keepdim=True), first(reference, x, axis))
    assert_matches(apply(name, x), first(reference, x.reshape(-1), 0)[0])


def first(reference: Any, x: Any, axis: int) -> Any:
    """Position of the first extreme, which torch does not promise: found in the mask of extremes."""
    extreme = x.gather(axis, reference(x, axis, True))
    return (x == extreme).to(torch.uint8).argmax(axis, True)


def test_extremes_prefer_nan_and_return_values_with_positions(apply: Any, apply_all: Any, assert_matches: Any) -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0, nan], [2.0, 5.0, 5.0, -1.0]])
    assert_matches(apply("argmax", x, axes=(1,)), torch.tensor([1, 1]))
    assert_matches(apply("amax", x, axes=(1,)), torch.amax(x, 1))
    for name, reference in (("max_with_index", torch.max), ("min_with_index", torch.min)):
        for mine, other in zip(apply_all(name, x, axis=1), reference(x, 1), strict=True):
            assert_matches(mine, other)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("correction", (-1, 0, 3))
@pytest.mark.parametrize("name", ("var", "std", "var_mean"))
def test_no_elements_have_no_variance(
    name: str, correction: int, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape in ((0, 3), (2, 3)):
        x = make(shape, "float32")
        theirs = getattr(torch, name)(x, 0, correction=correction)
        for ours, expected in zip(
            apply_all(name, x, axes=(0,), correction=correction),
            theirs if isinstance(theirs, tuple) else (theirs,),
            strict=True,
        ):
            assert_matches(ours, expected, scale=8)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("correction", (0, 1, 2))
@pytest.mark.parametrize("dtype", FLOATS)
def test_variance_agrees_with_torch_in_f64(
    correction: int, dtype: str, apply: Any, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axes in (((3, 7), (1,)), ((2, 3, 5), (0, 2)), ((4, 1), (1,)), ((6,), None)):
        x = make(shape, dtype)
        for name in ("var", "std"):
            theirs = getattr(torch, name)(x.double(), axes, correction=correction).to(x.dtype)
            assert_matches(apply(name, x, axes=axes, correction=correction), theirs, scale=8)
        for name in ("var_mean", "std_mean"):
            both = getattr(torch, name)(x.double(), axes, correction=correction, keepdim=True)
            ours = apply_all(name, x, axes=axes, correction=correction, keepdim=True)
            for mine, other in zip(ours, both, strict=True):
                assert_matches(mine, other.to(x.dtype), scale=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_are_a_mean_what_it_lacks_and_both_variances(
    dtype: str, apply_all: Any, make: Any, assert_matches: Any
) -> None:
    for shape, axes in (((3, 7), (1,)), ((2, 3, 5), (0, 2)), ((6,), None)):
        x = make(shape, dtype)
        mean, rest, variance, unbiased = apply_all("moments", x, axes=axes)
        exact = x.double()
        assert mean.dtype == (torch.float64 if dtype == "float64" else torch.float32)
        assert_matches(mean + rest, torch.mean(exact, axes).to(mean.dtype), scale=8)
        assert_matches(variance, torch.var(exact, axes, correction=0).to(mean.dtype), scale=8)
        assert_matches(unbiased, torch.var(exact, axes).to(mean.dtype), scale=8)


def test_what_a_mean_lacks_is_smaller_than_its_last_digit(apply_all: Any) -> None:
    """red-team.md goal 5."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) + 1e6
    mean, rest, variance, _ = apply_all("moments", x)
    assert abs(mean.double() + rest.double() - x.double().mean()) <= 1e-7
    assert abs(variance.double() / x.double().var(correction=0) - 1) <= 1e-6


@pytest.mark.parametrize("p", (0, 1, 2, 3.5, float("inf"), float("-inf"), -1))
def test_norm_agrees_with_torch(p: float, apply: Any, make: Any, assert_matches: Any) -> None:
    for dtype in FLOATS:
        x = make((3, 4, 5), dtype)
        for axes in ((1,), (0, 2), None):
            theirs = torch.linalg.vector_norm(x.double(), p, axes).to(x.dtype)
            assert_matches(apply("norm", x, p=p, axes=axes), theirs, scale=8)


def test_logsumexp_of_infinities_agrees_with_torch(apply: Any, assert_matches: Any) -> None:
    low, high = float("-inf"), float("inf")
    x = torch.tensor([[low, low], [high, 1.0], [low, 2.0], [high, low], [float("nan"), 1.0], [900.0, 900.0]])
    assert_matches(apply("logsumexp", x, axes=(1,)), torch.logsumexp(x, 1))


def test_reductions_refuse_impossible_inputs_by_name(apply: Any, make: Any) -> None:
    with pytest.raises(DTypeError, match="mean takes a floating-point type for x, got i64"):
        apply("mean", make((3,), "int64"))
    with pytest.raises(ShapeError, match="axis 2 does not exist"):
        apply("sum", make((3, 4)), axes=(2,))
    with pytest.raises(ShapeError, match="axis 1 is given twice"):
        apply("sum", make((3, 4)), axes=(1, -1))
