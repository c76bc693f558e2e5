"""Results of compiled functions: strides, aliases and effects on inputs are those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F

from hidet.errors import FallbackWarning
from hidet.torch import compat_memory

Check = Callable[..., Callable[..., Any]]

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


def _row(name: str, function: Callable[..., Any], *inputs: Any) -> Any:
    return pytest.param(function, inputs or (X,), id=name)


def _swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x + y


def _cross_update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    one, other = y + 1, x + 1
    x.copy_(one)
    y.copy_(other)
    return x


def _old_value(x: torch.Tensor) -> Any:
    old = x.clone()
    x.add_(1)
    return old * 2, x.sum()


def _set_slice(x: torch.Tensor) -> torch.Tensor:
    x[1:3] = 7
    return x


def _view_before_whole(x: torch.Tensor) -> Any:
    y = x + 1
    return y.view(3, 8), y, y.view(-1), y.flatten(0, 0)


def _cache_step(cache: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    cache[:, 2] = key
    return cache.sum(-1)


def _conv(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight, padding=1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        _row("a view of a result before the result", _view_before_whole),
        _row("a transposed input", lambda x: x.t()),
        _row("the input itself", lambda x: (x, x[0], x * 1)),
        _row("a result with views of it", lambda x: (y := x + 1, y.t(), y[1:])),
        _row("a view alone", lambda x: (x + 1)[1:, ::2]),
        _row("a permuted result", lambda x: x.exp().permute(1, 0)),
        _row("an expanded result", lambda x: (x[:1] * 2).expand(4, 6)),
        _row("one result twice", lambda x: (y := x * 2, y)),
        _row("a result and its clone", lambda x: (y := x * 2, y.clone())),
        _row("a clone of a part of one row", lambda x: (x + 1)[:, 4:].clone(), X[:1]),
        _row("a clone of a part of one row, and the rest", lambda x: ((y := x + 1)[:, 4:].clone(), y[:, :4]), X[:1]),
        _row("a clone of a part, and views of it", lambda x: (y := (x + 1)[:, 4:].clone(), y[:, 1:], y.t()), X[:1]),
        _row("two clones of the input", lambda x: (x.clone(), x.clone())),
        _row(
            "a product twice, once as a view", lambda x: (x.t() @ x[:, 0], torch.mv(x.t(), x[:, 0]), (x + 1).t(), x + 1)
        ),
        _row("constants, sizes and nothing", lambda x: (torch.zeros(3), torch.arange(4), x.shape[0], 3.5, None)),
        _row("a strided input", lambda x: x.relu() + 1, X.t()),
        _row("no elements", lambda x: (x + 1, x.sum(), x.t(), x @ x.t()), torch.randn(0, 4)),
        _row("no axes", lambda x: x * 2 + 1, torch.tensor(3.0)),
        _row(
            "a channels-last image",
            _conv,
            X.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
            torch.ones(4, 2, 3, 3),
        ),
        _row("an image", _conv, X.reshape(1, 2, 3, 4), torch.ones(4, 2, 3, 3)),
    ],
)
@pytest.mark.thorough(every=2)
def test_results_lie_in_memory_as_in_eager_mode(check_compiled: Check, function: Any, inputs: tuple[Any, ...]) -> None:
    check_compiled(function, *inputs)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        _row("an update in place", lambda x: x.add_(1) * 2),
        _row("a clone before an update", lambda x: (x.clone(), x.mul_(3))),
        _row("the value before an update", _old_value),
        _row("two inputs swapped", _swap, X, X + 1),
        _row("two inputs updated from each other", _cross_update, X, X + 1),
        _row("a slice set", _set_slice),
        _row("a row of a cache written", _cache_step, torch.zeros(2, 5, 3), torch.ones(2, 3)),
        _row("an update through a view", lambda x: x[0].zero_() + x[1]),
    ],
)
def test_inputs_are_changed_as_in_eager_mode(check_compiled: Check, function: Any, inputs: tuple[Any, ...]) -> None:
    check_compiled(function, *inputs)


PLACES: dict[str, Any] = {
    "windows of windows": lambda x: x.sin().as_strided((4, 2, 12), (20, 1, 2)).as_strided((2, 12, 2), (20, 1, 3)),
    "more than the slice has": lambda x: torch.as_strided(x[1:], (4, 4), (1, 1), 0),
    "more than a computed slice has": lambda x: torch.as_strided((x * 2)[1:], (4, 4), (1, 1), 0) + 1,
    "of a part of a split": lambda x: (x * 2).split(2)[1].as_strided((2, 2), (20, 1), 1) + 1,
    "of a slice of a slice": lambda x: x[1:][:, 3:].as_strided((3, 3), (20, 2)) * 1,
    "of a tensor that is repeated": lambda x: x[0].expand(3, 20).as_strided((2, 5), (20, 2)) * 1,
    "of a transpose": lambda x: x.t().as_strided((2, 2), (1, 1)) * 1,
    "no elements, behind the end": lambda x: (x[:0].cos().t() + 1).as_strided((0,), (1,), 200) * 1,
    "no elements, of a slice with gaps": lambda x: x[:, ::2].as_strided((0,), (1,), 200) * 1,
    "no elements, written": lambda x: torch.as_strided_scatter(x[:, ::2], x[:0, 0], (0,), (1,), 200) * 1,
    "windows of a slice": lambda x: x[:, 1:].as_strided((x.shape[0] - 1, 2), (20, 1), 0) * 2,
    "of means of a transpose": lambda x: x.t().cos().mean(0, keepdim=True).as_strided((1, 5), (5, 1)) * 2,
    "of a product of a transpose": lambda x: (x.cos().t() @ x).as_strided((20, 20), (1, 20)) * 2,
    "of what a permuted copy was written to": lambda x: _transposed_copy(x.t().cos()) * 2,
}


def _transposed_copy(x: torch.Tensor) -> torch.Tensor:
    """How flex_attention lays its result as its query."""
    made = x.new_empty(x.shape).as_strided(x.shape, (1, x.shape[0]))
    return made.copy_(x)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("function", PLACES.values(), ids=PLACES)
@pytest.mark.thorough(every=4)
def test_as_strided_takes_elements_of_what_a_tensor_is_a_view_of(
    check_compiled: Check, function: Any, dynamic: bool
) -> None:
    """defects.md C6."""
    x = torch.arange(100.0).view(5, 20)
    check_compiled(function, x, more=[(torch.arange(120.0).view(6, 20),)], dynamic=dynamic, strict=True)


def _written_part(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x * 2)
    return x.tensor_split(2, -1)[-1]


def _written_diagonal(x: torch.Tensor) -> torch.Tensor:
    diagonal = x.diagonal(-1, 1, 0)
    x.copy_(x + 1)
    return diagonal.view(diagonal.shape[0], -1)


def _written_window(x: torch.Tensor) -> torch.Tensor:
    window = x[x.shape[0] // 2 : -1 : 2, x.shape[1] // 2 : 100]
    window.mul_(window)
    return window


def _part_set(x: torch.Tensor) -> torch.Tensor:
    x[torch.tensor([0]), 3] = -1
    return x.view(x.shape[0], -1)


def _written_through_a_transpose(x: torch.Tensor) -> torch.Tensor:
    last = x.tensor_split(2, 0)[-1]
    x[:].transpose(0, 1).add_(1)
    return last


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x[1:], lambda x: x[::2], lambda x: x.t()])
@pytest.mark.parametrize(
    "function", [_written_part, _written_diagonal, _written_window, _part_set, _written_through_a_transpose]
)
@pytest.mark.thorough(every=4)
def test_a_view_of_an_argument_that_is_written_is_a_view_of_it(function: Any, layout: Any) -> None:
    """Seeds 103815, 106398, 104129, 102692, 101189, 1230031: symbolic sizes, elements from the argument's first on."""
    compiled = torch.compile(function, backend="hidet", dynamic=True)
    for extent in (8, 6):
        given, other = (layout(torch.arange(float(extent * 10)).view(extent, 10)) for _ in range(2))
        result, right = compiled(given), function(other)
        assert torch.equal(result, right)
        assert torch.equal(given, other)
        assert (result.stride(), result.storage_offset()) == (right.stride(), right.storage_offset())
        assert result.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()


def _flat_grid(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    grid = torch.meshgrid(x[0, :4], x[1, :3], indexing="ij")[0]
    return grid, grid.transpose(-2, -2)


SHARED: dict[str, Any] = {
    "windows and some of them": lambda x: ((w := torch.atan2(x, x.abs() + 1).unfold(-2, 1, 3))[:-1:2], w),
    "a repeated tensor": lambda x: ((v := torch.tensor([1, x.shape[1] - 2, 2]).expand(2, 3)), v.view_as(v)),
    "a new axis and a transpose": lambda x: ((v := x.fmod(2)[:3:3, None]).type_as(v), v.swapaxes(1, 0)),
    "a part of several": lambda x: ((v := x.cummax(1).values.unbind(-1)[-1]).view_as(v), v),
    "a grid": _flat_grid,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t()])
@pytest.mark.parametrize("function", SHARED.values(), ids=SHARED)
@pytest.mark.thorough(every=2)
def test_views_of_what_is_not_returned_share_memory(function: Any, layout: Any, dynamic: bool) -> None:
    """Seeds 100255, 101949, 103048, 103992, 106534 and 109531."""
    x = layout(torch.arange(48.0).view(8, 6))
    results, right = torch.compile(function, backend="hidet", dynamic=dynamic)(x), function(x)
    for result, other in zip(results, right, strict=True):
        torch.testing.assert_close(result, other)
        assert result.stride() == other.stride()
    first, second = (result.untyped_storage().data_ptr() for result in results)
    assert first == second


def _negated_pairs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    negated = -x.unflatten(-1, (-1, 2))
    return negated, negated.view(-1, negated.shape[-1])


@pytest.mark.parametrize("function", [_negated_pairs, lambda x: (_negated_pairs(x)[1][1:], *_negated_pairs(x))])
def test_results_of_sizes_that_may_be_zero_share_memory_as_in_eager_mode(function: Any) -> None:
    """Seeds 1110604 and 1040582: torch counts an axis of no elements as one of one in strides."""
    compiled = torch.compile(function, backend="hidet", dynamic=True)
    for extent in (2, 8, 6):
        given = torch.arange(float(extent * extent)).view(extent, extent)[::2]
        results, right = compiled(given), function(given)
        assert [result.stride() for result in results] == [other.stride() for other in right]
        ours, eager = (len({r.untyped_storage().data_ptr() for r in every}) for every in (results, right))
        assert ours == eager


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x[::2], lambda x: x.t()])
def test_what_is_saved_for_gradients_lies_as_the_backward_graph_reads_it(layout: Any) -> None:
    """Seed 1111427: what overwrites an argument with gaps is saved as well."""

    def write(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x.scatter_(-1, torch.zeros_like(x, dtype=torch.int64).narrow(-1, 0, 1), 1)
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)

    gradients = []
    for function in (torch.compile(write, backend="hidet"), write):
        x = layout(torch.arange(24.0).view(4, 6))
        weight = torch.ones(x.shape[-1], requires_grad=True)
        result = function(x, weight)
        result.backward(torch.arange(float(result.numel())).view(result.shape))
        gradients.append(weight.grad)
    torch.testing.assert_close(*gradients)


def test_a_detached_view_of_a_result_has_no_gradient() -> None:
    """Seed 103088."""
    compiled = torch.compile(lambda x: ((y := x.sin()).detach().reshape(6, 1), y), backend="hidet")
    detached, result = compiled(torch.ones(6, requires_grad=True))
    assert (detached.requires_grad, result.requires_grad) == (False, True)
    assert detached.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(8, 1)[1:],
        lambda: torch.ones(4, 8).t(),
        lambda: torch.ones(3, 4, 1).transpose(0, 1)[:, :, 0],
    ],
)
def test_a_diagonal_is_filled_in_any_layout(make: Any) -> None:
    """Seeds 106643, 109023, 101076."""
    given, right = make(), make().fill_diagonal_(2)
    torch.compile(lambda x: x.fill_diagonal_(2), backend="hidet")(given)
    assert torch.equal(given, right)


def test_a_result_stays_valid_after_the_next_call() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="hidet")
    first = compiled(X)
    kept = first.clone()
    compiled(X + 1)
    assert torch.equal(first, kept)


def test_results_are_boxed_so_that_arguments_can_be_freed(import_function: Callable[..., Any]) -> None:
    from hidet.compiler.graphs import compile_graph
    from hidet.context import make_context
    from hidet.torch.runner import Runner

    imported = import_function(lambda x: x + 1, X)
    runner = Runner(imported, compile_graph(imported.graph, make_context("cpu")))
    arguments = [X]
    (result,) = runner(arguments)
    assert arguments == []
    assert torch.equal(result, X + 1)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
def test_a_result_and_its_detached_self_share_memory_and_only_one_has_a_gradient(dynamic: bool) -> None:
    """Seed 1221944."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = x @ x.clone()
        return product.detach(), product.expand(2, x.shape[0] - 2)

    x = torch.arange(8.0, requires_grad=True)
    kept, wide = torch.compile(function, backend="hidet", dynamic=dynamic)(x)
    assert not kept.requires_grad and wide.grad_fn is not None
    assert kept.untyped_storage().data_ptr() == wide.untyped_storage().data_ptr()
    wide.sum().backward()
    torch.testing.assert_close(x.grad, 24 * x.detach())


def _added_to(x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scaled = other * 2
    x.add_(1)
    return x.diagonal(-1, 1, 0), x.view(-1), scaled


def _filled(x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.fill_diagonal_(2)
    return x.diagonal(-1, 1, 0), x[1:], other + 1


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("part", [lambda x: x.reshape(-1)[::2], lambda x: x[:, 1:]], ids=["flat", "columns"])
@pytest.mark.parametrize("function", [_added_to, _filled])
@pytest.mark.thorough(every=2)
def test_a_view_of_an_argument_that_shares_memory_with_another_is_a_view_of_it(
    function: Any, part: Any, dynamic: bool
) -> None:
    """Seed 3000876: AOTAutograd replays the views of the argument on the memory that both have (torch 2.11 to 2.13)."""
    compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
    for extent in (5, 6):
        given, other = (torch.arange(float(extent**2)).view(extent, extent)[1:] for _ in range(2))
        results, right = compiled(given, part(given)), function(other, part(other))
        assert torch.equal(given, other)
        for result, wanted in zip(results, right, strict=True):
            assert torch.equal(result, wanted)
            assert (result.stride(), result.storage_offset()) == (wanted.stride(), wanted.storage_offset())
        for result in results[:2]:
            assert result.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()


def test_a_view_with_an_axis_of_one_element_shares_memory_whatever_its_stride_is_called() -> None:
    """Seed 13000704: its stride is an expression of the symbol that is 2 at every size that is allowed."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = x.unfold(-1, 2, 3) + 1
        return pairs.expand(pairs.shape[0], -1, -1), pairs

    wide, pairs = torch.compile(function, backend="hidet", dynamic=True)(torch.tensor(1.5).expand(3))
    assert wide.untyped_storage().data_ptr() == pairs.untyped_storage().data_ptr()
    assert (wide.stride(), wide.tolist()) == ((2, 2, 1), [[[2.5, 2.5]]])


def _masked(x: torch.Tensor, mask: torch.Tensor) -> None:
    x.masked_fill_(mask, 30.0)


def _accumulated(x: torch.Tensor, mask: torch.Tensor) -> None:
    x.cumsum_(1)


def _scattered(x: torch.Tensor, mask: torch.Tensor) -> None:
    x.scatter_(0, mask.long()[None], 30.0)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("write", [_masked, _accumulated, _scattered])
def test_views_of_what_was_written_through_a_transposition_have_its_elements(write: Any, dynamic: bool) -> None:
    """Seed 9003246, and torch's own backends with symbolic sizes (torch 2.11 to 2.13)."""

    def function(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor, part: torch.Tensor) -> tuple[torch.Tensor, ...]:
        write(x.mT, mask)
        middle = x.shape[0] // 2
        return x[-2::2], x[middle:], x[: x.shape[0] - 1, middle], x, y + part

    compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
    y, mask = torch.arange(4.0), torch.tensor([True, False, False])
    given, other = (torch.arange(9.0).view(3, 3) for _ in range(2))
    results, right = compiled(given, mask, y, y[1:2]), function(other, mask, y, y[1:2])
    for result, wanted in zip((given, *results), (other, *right), strict=True):
        assert torch.equal(result, wanted)
        assert (result.stride(), result.storage_offset()) == (wanted.stride(), wanted.storage_offset())


def test_arguments_that_torch_takes_for_apart_by_mistake_are_left_to_torch() -> None:
    """Seed 1231269: AOTAutograd is wrong about rows behind the first (torch 2.11 to 2.13)."""

    def function(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        rows.sub_(3.0)
        return x.relu()

    whole, other = (torch.arange(32.0).view(8, 4) for _ in range(2))
    compiled = torch.compile(function, backend="hidet")
    with pytest.warns(FallbackWarning, match="takes arguments for apart that overlap"):
        result = compiled(whole[::2], whole[::2][1:])
    torch.testing.assert_close(result, function(other[::2], other[::2][1:]))
    torch.testing.assert_close(whole, other)
    between = torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True})
    torch.testing.assert_close(between(whole[::2], whole[1::2]), function(other[::2], other[1::2]))


def test_overlaps_are_asked_for_where_guards_have_made_numbers_of_all_sizes() -> None:
    """Seed 9001442: torch finds no symbols among the sizes, and refuses to read a tensor that once had some."""
    environment = ShapeEnv()
    tensor = FakeTensorMode(shape_env=environment).from_tensor(
        torch.empty(6), symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC])
    )
    assert tensor.shape[0] == 6, "a guard"
    with compat_memory.correcting_memory_analysis(pytest.fail):
        analysis: Any = import_module("torch._functorch._aot_autograd.input_output_analysis")
        assert analysis.compute_overlapping_tensors([tensor, tensor.select(0, 0)], symbolic=False) == {0, 1}
        assert analysis.compute_overlapping_tensors([tensor[:2], tensor[3:]], symbolic=False) == set()


@pytest.mark.parametrize("records", [False, True], ids=["inference", "gradients"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.unfold(0, 1, 2).fill_(2),
        lambda x: x.unfold(0, 2, 2).mul_(3),
        lambda x: x[1:].unfold(-1, 2, 3).select(1, 0).add_(1),
        lambda x: x.as_strided((3, 2), (1, 1))[:, 1].add_(1),
        lambda x: x.as_strided((3,), (0,), 1)[1].add_(1),
    ],
    ids=["gaps", "rest", "view", "strides", "one element"],
)
def test_what_is_written_to_windows_leaves_other_elements_as_they_are(
    write: Callable[..., Any], dynamic: bool, records: bool
) -> None:
    """Seed 21000496: the functional form of a write to `unfold`'s view puts zeros where there is no window. Seed
    31005247: that of a write to a part of a view whose elements meet writes the rest of the view."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        write(y)
        return y.abs()

    x, other = (torch.arange(1.0, 6.0, requires_grad=records) for _ in range(2))
    with pytest.warns(FallbackWarning, match="windows"):
        result = torch.compile(function, backend="hidet", dynamic=dynamic)(x)
    torch.testing.assert_close(result, function(other))


def test_windows_that_nothing_is_written_to_are_compiled() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(0, 2, 3)
        y.add_(windows)
        x.mul_(2)
        return windows[1:] * 2

    compiled = torch.compile(function, backend="hidet", options={"strict": True})
    given, other = ((torch.arange(7.0), torch.ones(2, 2)) for _ in range(2))
    results = (compiled(*given), *given)
    for result, right in zip(results, (function(*other), *other), strict=True):
        assert torch.equal(result, right)


def test_a_guard_about_the_size_of_a_base_is_checked_in_later_calls() -> None:
    """Seed 13000185: torch knows where such a symbol comes from, and failed to write the guard."""
    compiled_for: list[bool] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        with compat_memory.correcting_memory_analysis(pytest.fail):
            mode = torch._guards.TracingContext.get().fake_mode
            assert mode is not None
            environment: Any = mode.shape_env
            for symbol, sources in environment.var_to_sources.items():
                if [source.name for source in sources] == ["L['x']._base.size()[0]"]:
                    compiled_for.append(environment.evaluate_expr(symbol * symbol >= 36))
        return gm.forward

    compiled = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)
    for rows in (7, 9, 5, 4, 8):
        x = torch.ones(rows, 13)[1:3, :11]
        assert torch.equal(compiled(x), x * 2)
    assert compiled_for == [True, False]
    assert compiled(torch.ones(2, 11)).shape == (2, 11), "no view of anything"


def test_a_size_of_a_base_that_guards_make_a_number_is_checked_in_later_calls() -> None:
    """Seed 33001776: torch took the first size for 5, and wrote no guard on it."""

    def function(x: torch.Tensor, turned: torch.Tensor) -> tuple[torch.Tensor]:
        x[-2:3, :] = 2
        return (turned,)

    compiled = torch.compile(function, backend="hidet", dynamic=True)
    with torch.no_grad():
        for rows in (6, 5, 3, 4, 5):
            x, other = (torch.zeros(rows, 4) for _ in range(2))
            (result,), (right,) = compiled(x, x.t()), function(other, other.t())
            assert torch.equal(result, right) and torch.equal(x, other)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_view_of_an_argument_that_another_one_is_a_view_of_has_the_gradient_of_all_its_elements() -> None:
    """Seed 1240094."""

    def function(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        part.expand(part.shape[0], -1, -1)
        return x.broadcast_to(2, *x.shape)

    x = torch.zeros(4, 3, requires_grad=True)
    torch.compile(function, backend="hidet")(x, x[:, :2]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 4


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("part", [lambda x: x[1:], lambda x: x.reshape(-1)[::2]], ids=["rows", "flat"])
@pytest.mark.parametrize(
    "function", [lambda x, part: (x.view(x.shape[0], -1), part * 2), lambda x, part: (x.flatten(),)]
)
def test_a_view_of_an_argument_beside_a_part_of_it_has_the_gradient_of_all_its_elements(
    function: Any, part: Any, dynamic: bool
) -> None:
    """Seeds 7101066 and 7000943."""

    def gradient(run: Any) -> torch.Tensor | None:
        x = torch.zeros(4, 4, requires_grad=True)
        sum(result.sum() for result in run(x, part(x))).backward()
        return x.grad

    wanted, found = gradient(function), gradient(torch.compile(function, backend="hidet", dynamic=dynamic))
    assert wanted is not None and found is not None and torch.equal(found, wanted)


def _beyond_a_slice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    row = x.expand(x.shape[0], -1, -1)[:, -2, :4]
    return row.as_strided((2, 2), (1, 1), 3), y.sin()


def _beyond_two_slices(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide = x.expand(x.shape[0], -1, -1)[0, -2].as_strided((6,), (1,), 2)
    return wide.as_strided((4,), (2,), 1)[1:], y.sin()


def _beyond_a_slice_of_a_result(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    result = x * 2
    row = result.expand(x.shape[0], -1, -1)[:, -2, :4]
    return row.as_strided((2, 2), (1, 1), 3), y.sin(), result


def _beyond_a_slice_of_a_written_one(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    row = x.mul_(2).expand(x.shape[0], -1, -1)[:, -2, :4]
    return row.as_strided((2, 2), (1, 1), 3), y.sin()


BEYOND = [
    _beyond_a_slice,
    _beyond_two_slices,
    _beyond_a_slice_of_a_result,
    _beyond_a_slice_of_a_written_one,
]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("function", BEYOND)
@pytest.mark.thorough(every=2)
def test_elements_that_a_view_takes_from_beyond_what_it_is_a_view_of_have_no_gradient(
    function: Any, dynamic: bool
) -> None:
    """Seed 1141141."""
    compiled = torch.compile(function, backend="hidet", dynamic=dynamic)
    for rows in (3, 4):
        gradients = []
        for each in (compiled, function):
            x = torch.arange(rows * 4.0).view(rows, 4).requires_grad_()
            result, *_ = each(x * 1, torch.ones(5, requires_grad=True))
            (result * torch.arange(1.0, 1 + result.numel()).view(result.shape)).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


def test_a_result_that_the_graph_makes_with_other_axes_can_be_changed_in_place() -> None:
    """Seed 1240558."""
    layer = torch.nn.Linear(6, 2)
    result = torch.compile(layer, backend="hidet")(torch.ones(6))
    assert not result._is_view()
    result.narrow(-1, 0, 1).mul_(-1)
    result.sum().backward()
    assert layer.bias.grad is not None and layer.bias.grad.tolist() == [-1.0, 1.0]
