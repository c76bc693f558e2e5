"""The backend as users meet it: options, fallbacks, strictness, reports, custom operators, autocast."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

import hidet.torch
from hidet.context import make_context
from hidet.errors import FallbackWarning, OptionError, UnsupportedOp
from hidet.torch import compat
from hidet.torch.composed import _FUNCTIONS as composed_functions
from hidet.torch.decompositions import _FURTHER
from hidet.torch.foreach import _FUNCTIONS as foreach_functions
from hidet.torch.settings import torch_options

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))


def _with_gamma(x: torch.Tensor) -> torch.Tensor:
    return torch.igamma(x.exp() * 2, x.exp()) + torch.igamma(x.exp(), x.exp()) + 1


def test_the_backend_is_found_by_name() -> None:
    assert "hidet" in torch._dynamo.list_backends()


def test_an_operator_that_core_lacks_runs_in_torch_with_one_warning() -> None:
    compiled = torch.compile(_with_gamma, backend="hidet", fullgraph=True)
    with hidet.torch.collect_reports() as reports, pytest.warns(FallbackWarning) as caught:
        torch.testing.assert_close(compiled(X), _with_gamma(X))
    assert len(caught) == 1
    assert "aten.igamma.default (2x)" in str(caught[0].message)
    assert "test_backend.py" in str(caught[0].message)
    assert reports[0].nodes.eager == 2
    assert ("eager", "torch:aten.igamma.default") in reports[0].nodes.names


def test_checks_of_values_run_in_torch_and_still_fail() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async.msg((x < 3).all(), "a number is too large")
        return x * 2

    compiled = torch.compile(function, backend="hidet", fullgraph=True)
    x = torch.tensor([0, 2, 1])
    with pytest.warns(FallbackWarning, match="_assert_async"):
        assert torch.equal(compiled(x), x * 2)
    with pytest.raises(RuntimeError, match="a number is too large"):
        compiled(x + 1)


def test_strict_refuses_with_the_whole_list() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return _with_gamma(x) + torch.igammac(x.exp(), x.exp())

    compiled = torch.compile(function, backend="hidet", options={"strict": True})
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(X)
    error = caught.value.inner_exception
    assert isinstance(error, UnsupportedOp)
    assert "aten.igamma.default (2x)" in str(error)
    assert "aten.igammac.default (1x)" in str(error)


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="hidet", options={"strickt": True})
    with pytest.raises(BackendCompilerFailed, match="did you mean 'strict'") as caught:
        compiled(X)
    assert isinstance(caught.value.inner_exception, OptionError)


@pytest.mark.parametrize(
    "options",
    [{"threads": True}, {"threads": 0}, {"dump": 5}, {"plugin_options": 3}, {1: 2}, {"freeze": 1}, {"a.b": 1}],
)
def test_an_option_of_a_wrong_kind_is_named(options: dict[Any, Any]) -> None:
    with pytest.raises(OptionError, match=r"option.*(must|named|unknown)"):
        make_context("cpu", torch_options(None, options))


@pytest.mark.parametrize("options", [[1], "strict", 3])
def test_options_that_are_no_mapping_are_refused(options: Any) -> None:
    with pytest.raises(OptionError, match=f"options is a {type(options).__name__}: expected a mapping"):
        torch_options(None, options)


def test_modes_are_understood() -> None:
    for mode in ("default", "reduce-overhead", "max-autotune"):
        options = {"mode": mode, "search_space": 0}  # no test of what tuning does
        assert torch.equal(torch.compile(lambda x: x + 1, backend="hidet", options=options)(X), X + 1)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(OptionError, match="mode 'fastest' is unknown"):
        torch_options("fastest", None)


def test_threads_follow_torch() -> None:
    assert torch_options(None, None).threads == torch.get_num_threads()
    assert torch_options(None, {"threads": 1}).threads == 1


def test_f32_is_rounded_where_torch_allows_it() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        for precision, allowed in (("high", True), ("highest", False)):
            torch.set_float32_matmul_precision(precision)
            assert torch_options(None, None).tf32_products is allowed
            assert torch_options(None, {"tf32_products": not allowed}).tf32_products is not allowed
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch_options(None, None).tf32_convolutions is True
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert torch_options(None, None).tf32_convolutions is False


def test_reports_reach_only_those_who_collect() -> None:
    with hidet.torch.collect_reports() as outer:
        torch.compile(lambda x: x + 1, backend="hidet")(X)
        with hidet.torch.collect_reports() as inner:
            torch.compile(lambda x: x + 2, backend="hidet")(X)
    assert len(outer) == len(inner) == 1
    assert set(inner[0].seconds) == {"cache", "graph", "build", "compile", "load"}


def test_torchs_counters_count_graphs() -> None:
    from torch._dynamo.utils import counters

    before = counters["hidet"]["graphs"]
    torch.compile(lambda x: x + 1, backend="hidet")(X)
    assert counters["hidet"]["graphs"] == before + 1


def _fill(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y * 3)


@pytest.fixture
def twice() -> Iterator[torch.library.Library]:
    """A custom operator that returns and one that writes its argument."""
    library = torch.library.Library("hidet_test", "DEF")
    library.define("twice(Tensor x, int n) -> Tensor")
    library.impl("twice", lambda x, n: x * 2 + n, "CPU")
    torch.library.register_fake("hidet_test::twice", lambda x, n: torch.empty_like(x), lib=library)
    library.define("fill(Tensor(a!) x, Tensor y) -> ()")
    library.impl("fill", _fill, "CPU")
    torch.library.register_fake("hidet_test::fill", lambda x, y: None, lib=library)
    yield library
    library._destroy()


@pytest.mark.usefixtures("twice")
def test_a_custom_operator_is_an_opaque_node() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.hidet_test.twice(x.relu(), 5) + 1
        return result

    compiled = torch.compile(function, backend="hidet", fullgraph=True)
    with pytest.warns(FallbackWarning, match="hidet_test.twice"):
        torch.testing.assert_close(compiled(X), X.relu() * 2 + 6)


@pytest.mark.usefixtures("twice")
def test_a_custom_operator_that_writes_its_argument_writes_it() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.ops.hidet_test.fill(x, y)
        return x + 1

    x = torch.zeros(4, 6)
    with pytest.warns(FallbackWarning):
        result = torch.compile(function, backend="hidet", fullgraph=True)(x, X)
    torch.testing.assert_close(x, X * 3)
    torch.testing.assert_close(result, X * 3 + 1)


def test_autocast_computes_in_the_type_it_asks_for() -> None:
    linear = nn.Linear(6, 5).eval()
    compiled = torch.compile(linear, backend="hidet")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(X), linear(X)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_autocast_reaches_attention() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    mask = torch.randn(6, 6)
    compiled = torch.compile(F.scaled_dot_product_attention, backend="hidet")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = compiled(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_attention_with_dropout_draws_from_torchs_generator() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    compiled = torch.compile(lambda *qkv: F.scaled_dot_product_attention(*qkv, dropout_p=0.5), backend="hidet")
    with torch.no_grad():
        results = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            results.append(compiled(q, k, v))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


STORAGE = torch.arange(40.0)


@pytest.mark.parametrize("x", [STORAGE[3:12].view(3, 3), STORAGE[:36].view(6, 6)[:, ::2], STORAGE[:3].expand(3, 3)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.as_strided((2, 2), (1, 2), 0) + 1,
        lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (1, 2), 0),
    ],
    ids=["as_strided", "as_strided_scatter"],
)
def test_elements_of_a_storage_outside_of_the_tensor_are_refused(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> None:
    with pytest.raises(BackendCompilerFailed, match="as_strided takes elements of a storage that may lie outside"):
        torch.compile(function, backend="hidet")(x)


def test_a_graph_of_written_arguments_that_runs_in_torch_has_its_gradients() -> None:
    """Seeds 100620 and 101178: an argument that is written, and another over the same memory, under gradients."""

    def function(x: torch.Tensor, part: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x.index_fill_(0, torch.tensor([0]), 0)
        return (part.double() @ weight).sin()

    def arguments() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]]).bool().transpose(0, 1)
        return x, x[..., :2], torch.arange(1.0, 7.0, dtype=torch.float64).view(2, 3).requires_grad_()

    compiled = torch.compile(function, backend="hidet")
    given, others = arguments(), arguments()
    with pytest.warns(FallbackWarning, match="runs in torch"):
        result = compiled(*given)
    right = function(*others)
    (result.sum() * 2).backward()
    (right.sum() * 2).backward()
    assert torch.equal(result, right)
    assert torch.equal(given[0], others[0])
    torch.testing.assert_close(given[2].grad, others[2].grad)


def test_a_graph_that_aot_autograd_cannot_trace_runs_in_torch() -> None:
    """Its own error: a view by places in the storage of a slice is more than the storage of the functional copy has."""

    def fill(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((4,), (17,)).fill_(2)

    given, right = torch.arange(64.0).view(8, 8)[::2], torch.arange(64.0).view(8, 8)[::2]
    fill(right)
    with pytest.warns(FallbackWarning, match="AOTAutograd cannot trace it: as_strided_scatter"):
        torch.compile(fill, backend="hidet")(given)
    assert torch.equal(given, right)


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 1, 1), (0, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("axis", [-3, -1, 1])
def test_norms_have_the_rank_that_eager_mode_gives_them(shape: tuple[int, ...], axis: int) -> None:
    """Seeds 1400129 and 1510603 of tests.fuzz.torch_programs: torch 2.11 infers an axis too many over one element."""

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, 3, axis).sum(0) + 1

    x = torch.ones(*shape)
    torch.testing.assert_close(torch.compile(norm, backend="hidet")(x), norm(x))


def test_a_trace_that_fails_in_a_region_of_autocast_leaves_it_closed() -> None:
    """Seed 1020624 of tests.fuzz.torch_programs: torch kept the weights of the first call."""
    linear = torch.nn.Linear(8, 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x.as_strided((4,), (17,)).fill_(2)
            return linear(x)

    compiled = torch.compile(function, backend="hidet")
    with pytest.warns(FallbackWarning, match="AOTAutograd cannot trace it"):
        compiled(torch.ones(8, 8)[::2])
    with torch.no_grad():
        torch._foreach_add_(list(linear.parameters()), 0.5)
    assert torch.equal(compiled(torch.ones(8, 8)[::2]), function(torch.ones(8, 8)[::2]))
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0


def test_what_a_failed_trace_has_entered_is_off_again() -> None:
    """Seed 1510975 of tests.fuzz.torch_programs."""
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    with pytest.raises(ZeroDivisionError), compat.closing_autocast():
        torch.autocast("cpu", torch.float16, cache_enabled=False).__enter__()
        raise ZeroDivisionError
    assert not torch.is_autocast_enabled("cpu")
    after = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    assert after == before


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.ones(n, 4)[1:],
        lambda n: torch.ones(4, n).t(),
        lambda n: torch.ones(2 * n, n)[::2],
        lambda n: torch.ones(n, n + 3),
    ],
    ids=["a slice", "transposed", "with gaps", "wide"],
)
@pytest.mark.thorough(every=2)
def test_diagonals_are_filled_where_they_lie(make: Callable[[int], torch.Tensor], dynamic: bool) -> None:
    """Seed 1030359 of tests.fuzz.torch_programs: that of a functional copy began at the slice's first place."""

    def fill(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x.fill_diagonal_(2) + 1

    compiled = torch.compile(fill, backend="hidet", dynamic=dynamic, options={"strict": True})
    for n in (3, 8, 2):
        given, other = make(n), make(n)
        assert torch.equal(compiled(given), fill(other))
        assert torch.equal(given, other)


def test_diagonals_of_cubes_and_wrapped_ones_are_filled() -> None:
    def fill(cube: torch.Tensor, tall: torch.Tensor) -> torch.Tensor:
        return cube.fill_diagonal_(5).sum() + tall.fill_diagonal_(2, wrap=True).sum()

    compiled = torch.compile(fill, backend="hidet")
    given, others = ([torch.ones(3, 3, 3), torch.ones(9, 3)] for _ in range(2))
    assert compiled(*given) == fill(*others)
    assert all(map(torch.equal, given, others))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.as_strided((2, 3), (0, 1)).clamp(-1, 1).cumprod(0),
        lambda x: (torch.xlogy(x, x.abs() + 1)).as_strided((4, 2), (1, 1), 2).select(1, 1),
    ],
)
def test_gradients_through_overlapping_elements_of_a_storage(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Seeds 303546 and 300033."""
    given, other = (torch.linspace(-2, 2, 32).view(8, 4).requires_grad_() for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        torch.compile(function, backend="hidet")(given).sum().backward()
    function(other).sum().backward()
    torch.testing.assert_close(given.grad, other.grad)


def _of_a_quotient(x: torch.Tensor) -> torch.Tensor:
    """Torch traces this floor division as row-major; eager mode makes a transposed tensor."""
    return (x.t() // (x.abs() + 1)).as_strided((3, 2), (1, 1), 1) + 1


def _of_a_quotient_by_a_column(x: torch.Tensor) -> torch.Tensor:
    return (x.t() // (x[:, :1].abs() + 1)).neg().as_strided((3, 2), (1, 1), 1)


def _of_a_product(x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("...i,oi->...o", -0.25 - x[:1].t(), x[:, :1]).as_strided((2, 3), (1, 1))


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("function", [_of_a_quotient, _of_a_quotient_by_a_column, _of_a_product])
def test_a_graph_that_asks_where_elements_of_a_computed_tensor_lie_runs_in_torch(
    function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool
) -> None:
    """Seeds 590 and 106929 of tests.fuzz.torch_programs."""
    x = torch.arange(9.0).view(3, 3)
    compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
    with pytest.warns(FallbackWarning, match=r"the whole graph \(1x\) at .*as_strided takes elements"):
        assert torch.equal(compiled(x), function(x))
    torch._dynamo.reset()
    strict = torch.compile(function, backend="hidet", dynamic=dynamic, options={"strict": True})
    with pytest.raises(BackendCompilerFailed, match="as_strided takes elements of a storage"):
        strict(x)


@pytest.mark.parametrize("x", [torch.ones(3), torch.ones(3, 4)], ids=["rows without axes", "rows"])
def test_vmap(x: torch.Tensor) -> None:
    """red-team.md finding 6."""
    function = torch.vmap(lambda row: row * 2 + row.sum())
    assert torch.equal(torch.compile(function, backend="hidet", options={"strict": True})(x), function(x))


def test_a_graph_break_makes_two_graphs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    with hidet.torch.collect_reports() as reports:
        assert torch.equal(torch.compile(function, backend="hidet")(X), (X + 1) * 2)
    assert len(reports) == 2


def test_a_python_scalar_stays_a_number() -> None:
    compiled = torch.compile(lambda x, a: x * a, backend="hidet")
    for number in (2.0, 3.0):
        torch.testing.assert_close(compiled(X, number), X * number)


def test_profiler_shows_the_graph() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="hidet")
    compiled(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            compiled(X)
    assert "hidet::inference" in {event.key for event in profile.key_averages()}


def test_several_threads_may_call_one_compiled_function() -> None:
    from concurrent.futures import ThreadPoolExecutor

    compiled = torch.compile(lambda x: torch.softmax(x @ x.t(), -1), backend="hidet")
    compiled(X)
    inputs = [X * n for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(compiled, inputs))
    for value, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, torch.softmax(value @ value.t(), -1))


def test_importing_the_package_imports_no_torch() -> None:
    script = "import sys, hidet.torch, hidet.torch._plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_every_operator_that_is_taken_apart_is_one_of_torchs() -> None:
    """A torch that lacks some still works, so that nothing else would notice a misspelt name."""
    names = [*_FURTHER, *composed_functions, *(f"aten._foreach_{name}" for name in foreach_functions)]
    assert [name for name in names if name not in compat.operators_of(names)] == []
