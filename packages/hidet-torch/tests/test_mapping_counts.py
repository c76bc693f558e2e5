"""Bags of embeddings, segments, histograms, views as other types and rarer operators, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hidet.torch import collect_reports

Check = Callable[..., Any]

WEIGHT = torch.sin(torch.arange(30.0)).reshape(10, 3)
INDICES = torch.tensor([1, 4, 9, 1, 0, 3, 4])
OFFSETS = torch.tensor([0, 2, 2, 5])
SHARES = torch.linspace(-1, 2, 7)
X = torch.cos(torch.arange(24.0) * 1.7).reshape(4, 6)
LENGTHS = torch.tensor([2, 0, 1, 1])
MASK = X > 0

CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    **{
        f"{mode} of bags": (
            lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode, padding_idx=4),
            (WEIGHT, INDICES, OFFSETS),
        )
        for mode in ("sum", "mean", "max")
    },
    "bags of weighted rows": (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        (WEIGHT, INDICES, OFFSETS, SHARES),
    ),
    "bags whose ends are all given": (
        lambda w, i, o: F.embedding_bag(i, w, o, include_last_offset=True),
        (WEIGHT, INDICES, torch.tensor([0, 2, 2, 7])),
    ),
    "bags in rows": (lambda w, i: F.embedding_bag(i.reshape(1, 7), w), (WEIGHT, INDICES)),
    "bags of rows made shorter": (lambda w, i, o: F.embedding_bag(i, w, o, max_norm=1.0), (WEIGHT, INDICES, OFFSETS)),
    **{
        f"{by} of segments": (lambda x, n, by=by: torch.segment_reduce(x, by, lengths=n, initial=0.5), (X, LENGTHS))
        for by in ("sum", "mean", "max", "min", "prod")
    },
    "segments by their ends": (lambda x: torch.segment_reduce(x, "mean", offsets=torch.tensor([0, 1, 4])), (X,)),
    "histc of a range": (lambda x: torch.histc(x, 7, -0.5, 0.75), (X,)),
    "histc of all": (lambda x: torch.histc(x, 5), (X,)),
    "histc of one value": (lambda x: torch.histc(x * 0, 5), (X,)),
    "histogram": (lambda x: torch.histogram(x, 6, range=(-1.0, 1.0)), (X,)),
    "histogram of nothing": (lambda x: torch.histogram(x[:0], 3), (X,)),
    "histogram of a range of one point": (lambda x: torch.histogram(x, 2, range=(0.25, 0.25)), (X,)),
    "weighted histogram": (lambda x, w: torch.histogram(x, 6, weight=w, density=True), (X, X.abs())),
    "histogram by edges": (lambda x: torch.histogram(x, torch.tensor([-1.0, -0.25, 0.0, 0.9])), (X,)),
    "bytes of floats": (lambda x: x.view(torch.uint8), (X,)),
    "doubles of floats": (lambda x: x.view(torch.float64), (X,)),
    "sorter": (
        lambda x, v: torch.searchsorted(x, v, sorter=x.argsort(-1)),
        (X, X.flip(1)[:, :4].contiguous()),
    ),
    "frexp": (torch.frexp, (X * 1e3,)),
    "ldexp": (torch.ldexp, (X, torch.arange(6, dtype=torch.int32))),
    "angle": (torch.angle, (X,)),
    "angle of integers": (torch.angle, (torch.arange(-3, 3),)),
    "median of all": (torch.median, (X,)),
    "nanmedian": (lambda x: torch.nanmedian(torch.where(x > 0.5, torch.nan, x), 1), (X,)),
    "nanmedian of all": (lambda x: torch.nanmedian(torch.where(x > 0.5, torch.nan, x)), (X,)),
    "sum of products": (torch.addbmm, (X, torch.ones(2, 4, 3), torch.ones(2, 3, 6))),
    "bilinear": (F.bilinear, (X, X[:, :2].contiguous(), torch.ones(3, 6, 2), torch.ones(3))),
    "distances": (lambda x: torch.pdist(x, 1.5), (X,)),
    "distance": (lambda x: torch.dist(x, x.flip(0), 3), (X,)),
    "put": (lambda x: torch.put(x, torch.tensor([1, -1, 9]), torch.tensor([7.0, 8.0, 9.0])), (X,)),
    "places that are not zero": (lambda m: torch.nonzero_static(m, size=30, fill_value=-7), (MASK,)),
    "some places that are not zero": (lambda m: torch.nonzero_static(m, size=4), (MASK,)),
    "triangles": (lambda x: (torch.tril_indices(4, 3, 1), torch.triu_indices(4, 5, -1)), (X,)),
    **{
        f"index_reduce {by}": (
            lambda x, s, by=by: torch.index_reduce(x, 0, torch.tensor([1, 1, 3]), s, by, include_self=False),
            (X, X[:3] + 1),
        )
        for by in ("mean", "prod", "amax", "amin")
    },
    "fractional windows": (
        lambda x: F.fractional_max_pool2d(
            x.reshape(1, 2, 3, 4), 2, (2, 3), return_indices=True, _random_samples=torch.full((1, 2, 2), 0.4)
        ),
        (X,),
    ),
    "fractional windows of volumes": (
        lambda x: F.fractional_max_pool3d(
            torch.cat([x, x]).reshape(1, 1, 3, 4, 4), (1, 2, 2), (2, 2, 2), _random_samples=torch.full((1, 1, 3), 0.7)
        ),
        (X,),
    ),
}


SPECIAL = (
    *("i0", "i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0"),
    *("modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0"),
    *("scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai", "erfcx", "ndtri", "ndtr", "log_ndtr", "entr"),
)
OF_DEGREES = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_special_functions_that_were_left_to_torch(check_import: Check, dtype: torch.dtype) -> None:
    """defects.md, left to torch: i0, i1e, bessel_y0, bessel_y1, modified_bessel_k0, chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_t."""
    x = (torch.linspace(-3, 9, 19) if dtype.is_floating_point else torch.arange(-3, 9)).to(dtype)
    check_import(lambda x: tuple(getattr(torch.special, name)(x) for name in SPECIAL), x)
    degrees = torch.arange(-1, 9)[:, None]
    check_import(lambda x, n: tuple(getattr(torch.special, name)(x, n) for name in OF_DEGREES), x.clamp(-2, 2), degrees)
    check_import(lambda x: tuple(getattr(torch.special, name)(x, 3) for name in OF_DEGREES), x)
    check_import(lambda x: (torch.special.zeta(x, 2.5), torch.special.zeta(3, x), torch.special.zeta(x + 4, x)), x)
    check_import(lambda x: tuple(torch.polygamma(n, x + 0.25) for n in range(4)), x)


def test_gradients_of_special_functions_are_those_of_eager_mode() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        bessel = torch.special.i0(x) + torch.special.i1e(x) * torch.special.i0e(x) + torch.special.i1(x)
        return bessel + torch.special.log_ndtr(x) + torch.special.erfcx(x) + torch.polygamma(1, x + 5)

    found = []
    for each in (function, torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True})):
        x = torch.linspace(-3, 3, 11).requires_grad_()
        each(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize(("function", "inputs"), CASES.values(), ids=CASES)
def test_an_operator_that_was_left_to_torch(
    check_import: Check, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    """defects.md, left to torch: frexp, ldexp, angle, embedding_bag, segment_reduce, histc, view.dtype,
    searchsorted, fractional_max_pool2d."""
    check_import(function, *inputs)


TRACED_IN_PARTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "cov": (torch.cov, (X,)),
    "corrcoef": (torch.corrcoef, (X,)),
    "combinations": (torch.combinations, (X[0],)),
    "resize_as_": (lambda x: (x + 1).resize_as_(x[:2]) * 2, (X,)),
}


@pytest.mark.parametrize(("function", "inputs"), TRACED_IN_PARTS.values(), ids=TRACED_IN_PARTS)
def test_what_torch_traces_in_parts_leaves_no_node_of_them_to_torch(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    """defects.md, left to torch: cov, corrcoef, combinations, resize_as_."""
    compiled = torch.compile(function, backend="hidet", options={"strict": True})
    torch.testing.assert_close(compiled(*inputs), function(*inputs))


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
def test_rows_that_are_sent_to_experts_leave_their_products_alone_to_torch() -> None:
    """defects.md, left to torch: grouped_mm."""
    weights = torch.sin(torch.arange(2 * 16 * 8.0)).reshape(2, 16, 8).bfloat16()
    x = torch.cos(torch.arange(8 * 16.0)).reshape(8, 16).bfloat16()

    def experts(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        ends = torch.histc(chosen.float(), 2, 0, 1).cumsum(0).int()
        mixed: torch.Tensor = F.grouped_mm(x[chosen.argsort(stable=True)], weights, offs=ends)
        return mixed.relu() + 1

    with collect_reports() as reports:
        got = torch.compile(experts, backend="hidet", fullgraph=True)(x, torch.tensor([1, 0, 1, 1, 0, 0, 1, 1]))
    torch.testing.assert_close(got, experts(x, torch.tensor([1, 0, 1, 1, 0, 0, 1, 1])))
    in_torch = [name for report in reports for kind, name in report.nodes.names if kind == "eager"]
    assert in_torch == ["torch:aten._grouped_mm.default"]


def test_counts_of_numbers_define_their_own_size(check_compiled: Check) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        numbers, weights = torch.tensor([1, 5, 5, 0]), torch.tensor([0.5, 1.0, 2.0, 4.0])
        check_compiled(lambda n: torch.bincount(n), numbers, more=[[torch.tensor([9, 0, 1, 1])]], strict=True)
        check_compiled(lambda n, w: torch.bincount(n, w, minlength=7), numbers, weights, strict=True)


@pytest.mark.parametrize("training", [False, True])
def test_slopes_are_drawn_in_training_alone(training: bool) -> None:
    x = torch.linspace(-2, 2, 401)
    ours = torch.compile(lambda x: F.rrelu(x, 0.25, 0.5, training), backend="hidet", options={"strict": True})(x)
    slopes = ours[:200] / x[:200]
    assert torch.equal(ours[200:], x[200:])
    assert float(slopes.min()) >= 0.25 - 1e-6 and float(slopes.max()) <= 0.5 + 1e-6
    assert (float(slopes.std()) > 0.05) is training


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradients_of_bags_are_those_of_eager_mode(mode: str) -> None:
    shares = SHARES.clone() if mode == "sum" else None

    def bags(weight: torch.Tensor, shares: torch.Tensor | None) -> torch.Tensor:
        return F.embedding_bag(INDICES, weight, OFFSETS, mode=mode, padding_idx=4, per_sample_weights=shares)

    found = []
    for function in (bags, torch.compile(bags, backend="hidet", fullgraph=True, options={"strict": True})):
        leaves = [x.clone().requires_grad_() for x in (WEIGHT, shares) if x is not None]
        (function(*leaves, *[None] * (2 - len(leaves))) * torch.arange(12.0).reshape(4, 3)).sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("by", ["sum", "mean", "max", "min"])
def test_gradients_of_segments_are_those_of_eager_mode(by: str) -> None:
    def folded(x: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, by, lengths=LENGTHS, initial=0.0) * torch.arange(24.0).reshape(4, 6)

    found = []
    for function in (folded, torch.compile(folded, backend="hidet", fullgraph=True, options={"strict": True})):
        x = X.clone().requires_grad_()
        function(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_drawn_classes_follow_their_weights(check_import: Check) -> None:
    weights = torch.tensor([0.0, 3.0, 1.0, 0.0])
    torch.manual_seed(3)
    many = torch.compile(lambda w: torch.multinomial(w, 4000, True), backend="hidet", options={"strict": True})(weights)
    shares = torch.bincount(many, minlength=4) / 4000
    torch.testing.assert_close(shares, weights / 4, atol=0.03, rtol=0)
    few = torch.compile(lambda w: torch.multinomial(w, 2), backend="hidet", options={"strict": True})(weights)
    assert sorted(few.tolist()) == [1, 2]


RUNS = torch.tensor([1.0, 1.0, 3.0, 1.0, 3.0, 3.0, 3.0])


def size(x: torch.Tensor) -> tuple[int, ...]:
    """Of results, which differs from axis to axis."""
    return (2, 3, 4)[4 - x.dim() :]


RARE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "topk of a tensor without axes": (lambda x: torch.topk(x, 1), (torch.tensor(3.0),)),
    **{
        f"windows of {name} by given samples": (
            lambda x, u, pool=pool: pool(x, 2, output_size=size(x), _random_samples=u),
            (
                torch.sin(torch.arange(float(2 * 7 * 6**axes)) * 1.3).reshape(2, *[6] * axes, 7),
                torch.rand(1, 2, axes + 1),
            ),
        )
        for name, pool, axes in (("images", F.fractional_max_pool2d, 1), ("volumes", F.fractional_max_pool3d, 2))
    },
    "taking at one place": (lambda x, i: torch.take(x, i), (X, torch.tensor(-2))),
    "reflection in a batch of none": (lambda x: F.pad(x, (1, 1), mode="reflect"), (torch.ones(0, 3, 4),)),
    **{
        f"whole numbers pooled, {name}": (
            lambda x, options=options: F.avg_pool2d(x, 3, 2, 1, **options),
            (torch.arange(-40, 58).reshape(1, 2, 7, 7) * 37,),
        )
        for name, options in {
            "padding counted": {},
            "padding left out": {"count_include_pad": False},
            "ceil": {"ceil_mode": True},
            "divided by 7": {"divisor_override": 7},
        }.items()
    },
}


@pytest.mark.parametrize("name", RARE)
def test_rare_forms_are_compiled(name: str, check_compiled: Check) -> None:
    function, inputs = RARE[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(function, *inputs, strict=True)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_runs_of_equal_neighbours_are_found(dim: int | None, check_compiled: Check) -> None:
    table = torch.stack([RUNS, RUNS + 1, RUNS])

    def runs(x: torch.Tensor) -> Any:
        return torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check_compiled(runs, table, more=[(table[:, :3],)], strict=True)
        check_compiled(torch.unique_consecutive, table.long(), strict=True)


@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("function", [torch.unique_consecutive, torch.unique])
def test_axes_of_distinct_slices_are_counted_from_the_last_too(
    function: Callable[..., Any], dim: int, check_compiled: Check
) -> None:
    table = torch.stack([RUNS, RUNS, RUNS + 1]) > 2
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check_compiled(lambda x: function(x, dim=dim), table, strict=True)
        check_compiled(lambda x: function(x, return_inverse=True, return_counts=True, dim=dim), table, strict=True)
