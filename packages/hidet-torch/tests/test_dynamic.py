"""Symbolic sizes: one graph for many sizes, right for each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import hidet.torch
from hidet import dims
from hidet.errors import FallbackWarning
from hidet.torch.guards import SizeTable
from hidet.torch.runner import Runner

R = torch.randn
WEIGHT = torch.ones(4, 3, 3, 3)


def _causal(x: torch.Tensor) -> torch.Tensor:
    mask = torch.triu(torch.ones(x.shape[0], x.shape[0], dtype=torch.bool), 1)
    return torch.softmax(x.masked_fill(mask, -1e9), -1)


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], 2, -1).transpose(1, 2).reshape(x.shape[0], -1) * 1


CASES: dict[str, tuple[Callable[..., Any], list[tuple[torch.Tensor, ...]]]] = {
    "sizes in arithmetic": (lambda x: x * x.shape[0] + x.shape[1], [(R(n, 4),) for n in (3, 5, 17)]),
    "a view by sizes": (lambda x: x.view(x.shape[0] * 2, -1).sum(-1), [(R(n, 6),) for n in (3, 5, 17)]),
    "heads": (_heads, [(R(n, m),) for n, m in ((3, 4), (5, 14))]),
    "arange": (lambda x: x + torch.arange(x.shape[1]), [(R(2, n),) for n in (3, 5, 17)]),
    "a causal mask": (_causal, [(R(n, n),) for n in (3, 5, 17)]),
    "linear": (lambda x: F.linear(x, WEIGHT[0, 0]).relu(), [(R(2, n, 3),) for n in (6, 5, 17)]),
    "cat": (lambda x, y: torch.cat([x, y]), [(R(n, 4), R(m, 4)) for n, m in ((3, 5), (5, 7), (2, 9))]),
    "slices": (lambda x: (x[1:] * 1, x[:-1] * 1, x[::2] * 1), [(R(n, 4),) for n in (3, 5, 8)]),
    "views of the input": (lambda x: (x[1:], x.t(), x.shape[0] * 2), [(R(n, 4),) for n in (3, 5, 8)]),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        [(R(2, 2, n, 8),) for n in (3, 5, 17)],
    ),
    "a conv without channels": (
        lambda x, w: F.conv1d(x, w, dilation=2, padding=2),
        [(R(n, 0, 3), R(n, 0, 2)) for n in (5, 7)],
    ),
    "conv": (lambda x: F.conv2d(x, WEIGHT, stride=2, padding=1), [(R(2, 3, n, m),) for n, m in ((8, 9), (11, 16))]),
    "pool": (lambda x: F.max_pool2d(x, 3, 2, 1), [(R(2, 3, n, m),) for n, m in ((8, 9), (11, 17), (12, 16))]),
    "means of pools": (lambda x: F.avg_pool2d(x, 3, 2), [(R(2, 3, n, m),) for n, m in ((8, 9), (11, 17), (12, 16))]),
    "resampling": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        [(R(1, 2, n, m),) for n, m in ((8, 9), (11, 16))],
    ),
    "statistics": (lambda x: (x - x.mean(0)) / x.std(0), [(R(n, 5),) for n in (3, 8, 11)]),
    "a tensor filled with a size": (lambda x: torch.full((x.shape[0], 3), x.shape[0]), [(R(n),) for n in (3, 8, 11)]),
    "an update in place": (lambda x: x.add_(1).sum(), [(R(n, 4),) for n in (3, 5)]),
}


@pytest.mark.parametrize(("function", "inputs"), CASES.values(), ids=CASES.keys())
@pytest.mark.thorough(every=2)
def test_one_graph_serves_all_sizes(
    check_compiled: Callable[..., Any], function: Callable[..., Any], inputs: list[tuple[torch.Tensor, ...]]
) -> None:
    with hidet.torch.collect_reports() as reports:
        check_compiled(function, *inputs[0], more=inputs[1:], dynamic=True, tolerance=1e-4)
    assert len(reports) <= 1


def test_sizes_that_change_become_symbolic_by_themselves(check_compiled: Callable[..., Any]) -> None:
    with hidet.torch.collect_reports() as reports:
        check_compiled(lambda x: torch.softmax(x, -1), R(3, 8), more=[(R(n, 8),) for n in (5, 17, 40)], dynamic=None)
    assert len(reports) == 2


def test_sizes_of_one_and_zero_are_right(check_compiled: Callable[..., Any]) -> None:
    check_compiled(lambda x: (x + x[:1]).sum(1), R(3, 4), more=[(R(1, 4),), (R(0, 4),)], dynamic=None)


def test_a_float_computed_from_sizes_is_a_number(check_compiled: Callable[..., Any]) -> None:
    check_compiled(lambda x: x / math.sqrt(x.shape[-1]), R(3, 5), more=[(R(3, 17),)], dynamic=True)


def test_eager_nodes_get_symbolic_sizes_as_numbers() -> None:
    @torch.library.custom_op("hidet_tests::shift_by", mutates_args=())
    def shift_by(x: torch.Tensor, number: int) -> torch.Tensor:
        return x + number

    shift_by.register_fake(lambda x, number: torch.empty_like(x))

    def function(x: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = shift_by(x, x.shape[0])
        return shifted.new_zeros(x.shape[0] * 2) + shifted.sum()

    compiled = torch.compile(function, backend="hidet", dynamic=True, fullgraph=True)
    for n in (3, 5):
        x = torch.rand(n) + 2
        with pytest.warns(FallbackWarning) if n == 3 else nullcontext():
            torch.testing.assert_close(compiled(x), function(x))


def _symints() -> tuple[Any, Any]:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv()
    sizes = []
    for name, hint in (("a", 12), ("b", 7)):
        source = ConstantSource(name)
        symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
        sizes.append(env.create_symintnode(symbol, hint=hint, source=source))
    return sizes[0], sizes[1]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda a, b: a + b * 3 - 1, 32),
        (lambda a, b: a // 5 + b // 2, 5),
        (lambda a, b: a % 5, 2),
        (lambda a, b: a * b // 6, 14),
        (lambda a, b: (a + 3) // 4 * 4, 12),
        (lambda a, b: torch.sym_max(a, b) + torch.sym_min(a, b), 19),
        (lambda a, b: a * a, 144),
        (lambda a, b: torch.sym_int(a / 5), 2),
    ],
)
def test_torchs_size_expressions_become_dims(expression: Callable[..., Any], expected: int) -> None:
    a, b = _symints()
    table = SizeTable()
    names = {symbol.name: value for size, value in ((a, 12), (b, 7)) for symbol in dims.symbols(table.dim(size))}
    assert dims.evaluate(table.dim(expression(a, b)), names) == expected


def test_a_size_keeps_its_range_and_hint() -> None:
    a, _ = _symints()
    (symbol,) = dims.symbols(SizeTable().dim(a))
    assert symbol.lower == 2
    assert symbol.hint == 12


def test_a_symbol_may_turn_out_to_be_another_size() -> None:
    a, b = _symints()
    table = SizeTable()
    (symbol,) = dims.symbols(table.dim(a))
    table.settle(symbol.name, dims.minimum(table.dim(b), 4))
    assert str(table.dim(a + 1)) == str(dims.minimum(table.dim(b), 4) + 1)


def test_a_size_that_dims_cannot_hold_is_a_symbol_with_its_range() -> None:
    a, b = _symints()
    table = SizeTable()
    size = table.dim(torch.sym_int(a * 0.75))
    (symbol,) = dims.symbols(size)
    assert (symbol.lower, symbol.hint) == (1, 9)
    assert table.dim(torch.sym_int(a * 0.75) * 2) == size * 2
    assert table.dim(torch.sym_int(b * 0.75)) != size
    assert dims.symbols(table.dim(a << b)) != ()


def test_a_number_read_from_a_tensor_stays_in_the_graph(check_compiled: Callable[..., Any]) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(lambda x: x * x.sum().item(), R(4))


def test_a_float_argument_may_change(check_compiled: Callable[..., Any]) -> None:
    check_compiled(lambda x, a: x * a + a, R(4), 2.5, more=[(R(4), 3.5), (R(4), 0.1)], dynamic=True)


NUMBERS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "a clamped number": lambda x, k: x * max(k, 0),
    "an absolute number": lambda x, k: x + abs(k),
    "a quotient rounded to 0": lambda x, k: x + int(k / 2),
    "a quotient rounded down": lambda x, k: x + k // 2,
    "a bound": lambda x, k: x.clamp(min=k),
    "a shift": lambda x, k: x.roll(k, 0),
    "a diagonal": lambda x, k: x.tril(k),
    "weights of a sum": lambda x, k: torch.addmm(x, x, x, alpha=k, beta=k + 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_change_may_be_negative(name: str) -> None:
    compiled = torch.compile(NUMBERS[name], backend="hidet", dynamic=True, options={"strict": True})
    x = R(4, 4)
    for number in (2, -3, -2, 1):
        torch.testing.assert_close(compiled(x, number), NUMBERS[name](x, number), rtol=1e-5, atol=1e-5)


def test_an_operator_that_cannot_take_a_number_that_changes_runs_in_torch() -> None:
    compiled = torch.compile(lambda x, k: x.kthvalue(k, 0).values, backend="hidet", dynamic=True)
    x = R(4, 4)
    with pytest.warns(FallbackWarning, match="which differs between calls"):
        for number in (2, 3):
            assert torch.equal(compiled(x, number), x.kthvalue(number, 0).values)


def test_a_convolution_whose_stride_changes_runs_in_torch() -> None:
    compiled = torch.compile(lambda x, w, k: F.conv2d(x, w, stride=(k, 1)), backend="hidet", dynamic=True)
    x, w = R(1, 3, 9, 9), R(2, 3, 3, 3)
    with pytest.warns(FallbackWarning, match="which differs between calls"):
        for number in (2, 3):
            torch.testing.assert_close(compiled(x, w, number), F.conv2d(x, w, stride=(number, 1)))


SCALARS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "softplus beta": lambda x, k: F.softplus(x, k),
    "softplus threshold": lambda x, k: F.softplus(x, 1, k),
    "threshold": lambda x, k: F.threshold(x, k, k + 1),
    "hardtanh": lambda x, k: F.hardtanh(x, k, k + 5),
    "celu": lambda x, k: F.celu(x, k),
    "elu": lambda x, k: F.elu(x, k),
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k),
    "norm": lambda x, k: x.norm(p=k, dim=1),
    "normalize": lambda x, k: F.normalize(x, p=k, dim=1),
    "var": lambda x, k: x.var(1, correction=k),
    "std_mean": lambda x, k: torch.stack(torch.std_mean(x, 1, correction=k)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.thorough(every=4)
def test_scalars_of_operators_may_be_integers_that_change(name: str, dtype: torch.dtype) -> None:
    compiled = torch.compile(SCALARS[name], backend="hidet", dynamic=True, options={"strict": True})
    x = R(4, 6).to(dtype)
    for number in (2, 3, -1, 1) if name == "celu" else (2, 3, -1, 0):
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(
            compiled(x, number), SCALARS[name](x, number), rtol=tolerance, atol=tolerance, equal_nan=True
        )


def test_a_scalar_that_changes_has_the_type_of_the_integers_beside_it() -> None:
    compiled = torch.compile(
        lambda x, k: F.threshold(x, k, k + 1), backend="hidet", dynamic=True, options={"strict": True}
    )
    x = torch.arange(-4, 4, dtype=torch.int32)
    for number in (2, -3):
        assert torch.equal(compiled(x, number), F.threshold(x, number, number + 1))


QUOTIENTS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "the other extent of a view": lambda x, k: x.view(k, -1) + 1,
    "the other extent of an unflattened axis": lambda x, k: x.unflatten(0, (k, -1)) * 2,
    "an extent": lambda x, k: x.view(k, x.shape[0] // k, -1).softmax(-1),
    "an extent of a result by another one": lambda x, k: x[:, 0, None].cumsum(0).unflatten(-2, (-1, k)),
    "parts": lambda x, k: torch.cat([part * 2 for part in x.chunk(k)]),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_an_extent_may_be_divided_by_a_number_that_changes(name: str) -> None:
    compiled = torch.compile(QUOTIENTS[name], backend="hidet", dynamic=True, options={"strict": True})
    x = R(12, 6)
    for number in (2, 3, 6):
        torch.testing.assert_close(compiled(x, number), QUOTIENTS[name](x, number))


@pytest.mark.parametrize(
    "number", [lambda n, k: n // k, lambda n, k: n % k, lambda n, k: -(-n // k), lambda n, k: int(n / k)]
)
def test_numbers_are_divided_as_python_divides_them(number: Callable[[int, int], int]) -> None:
    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        return x + number(x.shape[0], k)

    compiled = torch.compile(function, backend="hidet", dynamic=True, options={"strict": True})
    x = R(7)
    for divisor in (2, -3, -2, 9, -9):
        assert torch.equal(compiled(x, divisor), function(x, divisor)), divisor
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0)


def _nearest(mode: str, **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.interpolate(x[None, None].float(), mode=mode, **options)


COMPUTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a larger image": _nearest("bilinear", scale_factor=1.5),
    "a smaller image": _nearest("nearest", scale_factor=0.7),
    "a smaller image of rounded scale": _nearest("bicubic", scale_factor=0.7, recompute_scale_factor=True),
    "a part": lambda x: x[:, : int(x.shape[1] * 0.75)] * 2,
    "a part of an input": lambda x: x[:, int(x.shape[1] * 0.3) :],
    "a root": lambda x: x[:, : int(x.shape[1] ** 0.5)] * 2,
    "a logarithm as a factor": lambda x: x * math.log2(x.shape[1]),
    "a logarithm": lambda x: x[:, : int(math.log2(x.shape[1]))] * 2,
    "factors whose product rounds otherwise": lambda x: x[:, : int(x.shape[1] * 0.1 * 0.7)] * 2,
    "a rounded product": lambda x: torch.zeros(round(x.shape[1] * 0.3), math.ceil(x.shape[0] / 3)) + x[0, 0],
    "a view": lambda x: (x.reshape(-1)[: int(x.shape[1] * 0.75) * 4].view(-1, 4) + 1).sum(1),
    "a number": lambda x: (x * int(x.shape[1] * 0.3), int(x.shape[1] * 0.3) + 1),
    "random numbers beside it": lambda x: torch.rand_like(x)[:, : int(x.shape[1] * 0.75)] * 0 + x.shape[0],
}


@pytest.mark.parametrize("function", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.thorough(every=6)
def test_sizes_that_python_computes_with_fractions_may_change(
    check_compiled: Callable[..., Any], function: Callable[..., Any]
) -> None:
    inputs = [(torch.arange(6.0 * n).view(6, n),) for n in (8, 10, 100, 16)]
    with hidet.torch.collect_reports() as reports:
        check_compiled(function, *inputs[0], more=inputs[1:], dynamic=True, tolerance=1e-4, strict=True)
    # torch compiles again for a size of 0.
    assert len(reports) <= 3


def test_a_scaled_image_may_change_its_size_after_the_first_call(check_compiled: Callable[..., Any]) -> None:
    images = [(R(1, 3, n, n),) for n in (8, 10, 13)]
    check_compiled(lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), *images[0], more=images, dynamic=None)


def test_gradients_of_parts_whose_size_python_computes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[:, : int(x.shape[1] * 0.75)].exp().sum()

    compiled = torch.compile(function, backend="hidet", dynamic=True, options={"strict": True})
    for n in (8, 10, 13):
        ours, theirs = (torch.linspace(0, 1, 3 * n).view(3, n).requires_grad_() for _ in range(2))
        compiled(ours).backward()
        function(theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_size_computed_with_a_fraction_of_data(check_compiled: Callable[..., Any]) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        inputs = [(torch.full((4,), float(n)),) for n in (3, 8)]
        check_compiled(lambda x: torch.ones(int(x.amax().item() * 1.5)) * 2, *inputs[0], more=inputs, strict=True)


def test_a_size_that_only_a_custom_operator_defines_is_that_of_its_result() -> None:
    @torch.library.custom_op("hidet_tests::beginning", mutates_args=())
    def beginning(x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.shape[0] * 0.75)].clone()

    beginning.register_fake(lambda x: x.new_empty(int(x.shape[0] * 0.75)))
    compiled = torch.compile(lambda x: torch.cat([beginning(x * 2), x]), backend="hidet", dynamic=True)
    with pytest.warns(FallbackWarning, match="beginning"):
        for n in (8, 10):
            x = R(n)
            assert torch.equal(compiled(x), torch.cat([(x * 2)[: int(n * 0.75)], x]))


def _of_a_window(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x * 2, 2) - x.argmin().expand(2, x.shape[0] - 2)


def _of_a_diagonal(x: torch.Tensor) -> torch.Tensor:
    rows = x[0, 0, :, :1].expand(2, -1, -1)
    padded = torch.logaddexp(F.pad(rows, (1, 1), mode="replicate"), rows.square())
    return torch.addcmul(padded[:, :2].diagonal(1, 2, 0), padded[:, :2], padded[:, :2], value=0.5)


def _of_a_repeated_axis(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1).as_strided((2, 3), (0, 1))[torch.tensor([-2])]


def _of_a_part(x: torch.Tensor) -> torch.Tensor:
    part = x.chunk(2, 0)[-1]
    return torch.cat([part.abs(), part.split(1, 0)[0].expand_as(part)[1:]], 0)


@pytest.mark.parametrize("function", [_of_a_window, _of_a_diagonal, _of_a_repeated_axis, _of_a_part])
def test_an_extent_that_guards_make_one_broadcasts(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Seeds 101232, 108243, 108945 and 31000205 of tests.fuzz.torch_programs."""
    x = torch.arange(144.0).view(6, 2, 4, 3)
    compiled = torch.compile(function, backend="hidet", dynamic=True)
    torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("sizes", [(2, 5, 8), (8, 5, 6)])
def test_a_view_that_leaves_the_slice_for_the_sizes_traced_reads_the_storage(sizes: tuple[int, ...]) -> None:
    """Seeds 1040697 and 1630064 of tests.fuzz.torch_programs."""
    compiled = torch.compile(lambda x: x.as_strided((2, 3), (0, 1)) + 1, backend="hidet", dynamic=True)
    for size in sizes:
        x = torch.arange(1.0 * size * size).view(size, size)[: size // 2, :2]
        assert torch.equal(compiled(x), x.as_strided((2, 3), (0, 1)) + 1)


def test_a_view_is_judged_by_the_sizes_of_its_own_trace_whatever_others_had() -> None:
    """Sizes of equal names and bounds are one, also those of other graphs."""
    for size, last in (((2, 3), 1), ((5, 20), 83)):
        torch._dynamo.reset()
        function = torch.compile(
            lambda x, last=last: x.neg().as_strided((last,), (1,)) + 1,
            backend="hidet",
            dynamic=True,
            options={"strict": True},
        )
        x = torch.arange(1.0 * size[0] * size[1]).view(size)
        assert torch.equal(function(x), 1 - x.view(-1)[:last])


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.thorough(every=4)
def test_membership_asks_nothing_of_sizes(dtype: torch.dtype, dynamic: bool, invert: bool) -> None:
    """Seed 1031204 of tests.fuzz.torch_programs: torch's own way compares symbolic numbers of elements."""
    compiled = torch.compile(
        lambda x, y: torch.isin(x, y, invert=invert), backend="hidet", dynamic=dynamic, options={"strict": True}
    )
    source = torch.Generator().manual_seed(0)
    sizes = [(5, 3), (40, 70), (2, 30)] if dynamic else [(5, 3), (40, 70), (4, 0)]
    for rows, others in sizes:
        x, y = (torch.randint(0, 40, shape, generator=source).to(dtype) for shape in ((rows, 3), (others,)))
        if dtype.is_floating_point and others:
            x[0], y[0] = torch.nan, torch.nan
        assert torch.equal(compiled(x, y), torch.isin(x, y, invert=invert))


def _callers_of_runner(run: Callable[[], object]) -> list[str]:
    """The files whose functions call a compiled graph, and those these are called from."""
    found: list[str] = []

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is Runner.__call__.__code__:
            while frame.f_back is not None and len(found) < 2:
                frame = frame.f_back
                found.append(Path(frame.f_code.co_filename).name)

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_dynamo_calls_a_graph_that_changes_nothing_without_aotautograd(is_dynamic: bool) -> None:
    compiled = torch.compile(lambda x: F.linear(x, WEIGHT[0, 0]).relu() * x.shape[0], backend="hidet")
    x = R(6, 3)
    if is_dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        compiled(x)
        assert _callers_of_runner(lambda: compiled(x)) == ["running.py", "eval_frame.py"]


def test_what_a_symbolic_graph_returns_is_symbolic_in_the_next_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).relu()
        torch._dynamo.graph_break()
        return y.sum(1) + y.shape[0]

    def call(count: int) -> None:
        x = R(count, 4)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), function(x))

    compiled = torch.compile(function, backend="hidet")
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        for count in (3, 5, 17):
            call(count)
    assert len(reports) == 2


def test_a_symbolic_graph_that_is_partly_torchs_is_called_by_aotautograd() -> None:
    """Which switches off what changes operators: gradients and autocast."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x @ x.mT).float() + x.shape[0]

    compiled, x = torch.compile(function, backend="hidet"), R(5, 5)
    torch._dynamo.mark_dynamic(x, (0, 1))
    with torch.no_grad(), pytest.warns(FallbackWarning):
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-3, atol=1e-3)
        assert _callers_of_runner(lambda: compiled(x))[0] != "running.py"
