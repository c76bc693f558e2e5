"""Rows, chains, windows and transposes on a GPU, against torch in f64. Run by `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hidet.testing.numerics import Sample, check_output
from hidet.torch.backend import compile_fx
from tests.models.check import to_numpy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DTYPES = [torch.bfloat16, torch.float32]
Function = Callable[..., torch.Tensor]
ROWS: dict[str, Function] = {
    "softmax": lambda x: F.softmax(x, -1),
    "log-softmax of a sum": lambda x: F.log_softmax(x + 1, -1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[1]),
    "RMS norm and an activation": lambda x: F.gelu(F.rms_norm(x, x.shape[-1:], x[0])),
    "sum": lambda x: x.sum(-1),
    "mean of columns": lambda x: x.mean(0),
    # Of squares: what is left of one sum of numbers that cancel is a matter of luck.
    "mean of everything": lambda x: x.square().mean(),
    "variance": lambda x: x.var(-1),
    "softmax of columns": lambda x: F.softmax(x, 0),
    "running sum": lambda x: x.cumsum(-1),
    "running sum of columns": lambda x: (x * 2).cumsum(0),
    "running log of sums": lambda x: x.logcumsumexp(-1),
    "running maximum": lambda x: x.cummax(-1)[0],
    "transpose": lambda x: x.t().contiguous() + 1,
    "transpose beside another": lambda x: x.t() + x.reshape(x.shape[1], x.shape[0]),
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    "concatenation": lambda x: torch.cat([x, x * 2], 1),
    "padding": lambda x: F.pad(x, (3, 5)),
}
IMAGES: dict[str, Function] = {
    "largest of windows": lambda x: F.max_pool2d(x, 3, 2, 1),
    "averages of windows": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "average": lambda x: F.adaptive_avg_pool2d(x, 1),
    "depthwise": lambda x: F.conv2d(x, x[0, :, :3, :3].unsqueeze(1), padding=1, groups=x.shape[1]),
    "depthwise, every second pixel": lambda x: F.conv2d(x, x[0, :, :5, :5].unsqueeze(1), None, 2, 2, 1, x.shape[1]),
    "group norm": lambda x: F.group_norm(x, 4),
    "statistics of channels": lambda x: x.sum((0, 2, 3)),
}


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33, 197), (2000, 768), (3, 70000)])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_any_length_are_as_exact_as_eager(name: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    check(ROWS[name], [torch.randn(shape, device="cuda") for _ in range(2)], dtype)


@pytest.mark.parametrize("name", ROWS)
def test_tensors_that_start_anywhere_are_right(name: str) -> None:
    check(ROWS[name], [torch.randn(65 * 128 + 1, device="cuda")[1:].view(65, 128)], torch.float16)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "sum", "mean of columns", "running sum", "transpose"])
def test_one_program_serves_rows_of_many_lengths(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(ROWS[name], backend=compile_fx, dynamic=True)
    for shape in [(64, 96), (33, 197), (5, 5000), (3, 40000), (2000, 8)]:
        x = torch.randn(shape, device="cuda")
        torch.testing.assert_close(compiled(x), ROWS[name](x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 20, 9, 11), (8, 64, 56, 56)])
@pytest.mark.parametrize("name", IMAGES)
def test_images_are_as_exact_as_eager(
    name: str, shape: tuple[int, ...], memory: torch.memory_format, dtype: torch.dtype
) -> None:
    check(IMAGES[name], [torch.randn(shape, device="cuda").contiguous(memory_format=memory)], dtype)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(33, 197), (3, 70000), (9000, 8)])
def test_places_of_extremes_are_those_of_eager(shape: tuple[int, int], axis: int) -> None:
    torch._dynamo.reset()
    x = torch.randperm(shape[0] * shape[1], device="cuda").view(shape).float()
    compiled = torch.compile(lambda x: x.argmax(axis), backend=compile_fx, dynamic=False)
    assert torch.equal(compiled(x), x.argmax(axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(33, 197), (3, 70000), (9000, 8)])
def test_scans_of_integers_are_those_of_eager(shape: tuple[int, int], axis: int) -> None:
    torch._dynamo.reset()
    x = torch.randint(-9, 9, shape, device="cuda")
    functions = [lambda x: x.cumsum(axis), lambda x: (x > 0).cumsum(axis), lambda x: torch.cummax(x, axis)[1]]
    for function in functions:
        compiled = torch.compile(function, backend=compile_fx, dynamic=False)
        assert torch.equal(compiled(x), function(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("shape", [(33, 197), (3, 70000), (9000, 8)])
def test_rows_are_ordered_as_in_eager_mode(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = torch.randn(shape, device="cuda").mul(50).round().to(dtype)
    if dtype.is_floating_point:
        x[0, ::5], x[1, 3] = torch.nan, torch.inf
    most = min(shape[1], 40)
    functions = [
        lambda x: torch.sort(x, stable=True),
        lambda x: torch.sort(x, dim=0, descending=True, stable=True),
        lambda x: torch.argsort(x, stable=True),
        lambda x: x.topk(most)[0],
        lambda x: x.topk(most, largest=False)[0],
    ]
    for function in functions:
        compiled = torch.compile(function, backend=compile_fx, dynamic=False)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64]
)
@pytest.mark.parametrize("shape, k", [((300, 4099), 50), ((3, 128256), 300), ((1, 1000003), 1000), ((5, 2000), 1)])
def test_the_best_of_long_rows_come_in_stable_order(shape: tuple[int, int], k: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = torch.randn(shape, device="cuda").mul(20).to(dtype)
    x[0, k:] = x[0, 0]  # More equal elements than a tile holds.
    if dtype.is_floating_point:
        x[-1, ::5], x[-1, 1::7], x[-1, 2::9], x[-1, 3::4] = torch.nan, torch.inf, -torch.inf, -0.0
    for largest in (True, False):
        compiled = torch.compile(lambda x, best=largest: x.topk(k, largest=best), backend=compile_fx, dynamic=False)
        values, positions = torch.sort(x, descending=largest, stable=True)
        for found, wanted in zip(compiled(x), (values, positions), strict=True):
            torch.testing.assert_close(found, wanted[:, :k], rtol=0, atol=0, equal_nan=True)


def test_rows_of_any_length_are_ordered_by_one_program() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.sort(x, stable=True), backend=compile_fx, dynamic=True)
    for length in (40, 5000, 131072, 1000000):
        x = torch.randint(-1000, 1000, (2, length), device="cuda")
        torch.testing.assert_close(compiled(x), torch.sort(x, stable=True), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_places_are_written_as_in_eager_mode(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x, y = (torch.randn(3000, 70, device="cuda").mul(50).to(dtype) for _ in range(2))
    rows = torch.randperm(3000, device="cuda")[:1000]
    every = torch.rand(3000, 70, device="cuda").argsort(0)[:1000]
    functions = [
        lambda x, y: x.index_put((rows,), y[:1000]),
        lambda x, y: x.index_copy(0, rows, y[:1000]),
        lambda x, y: x.scatter(0, every, y),
        lambda x, y: torch.slice_scatter(x, y[:100], 0, 50, 150),
        lambda x, y: x.masked_scatter(x > 0, y),
    ]
    for function in functions:
        compiled = torch.compile(function, backend=compile_fx, dynamic=False)
        assert torch.equal(compiled(x, y), function(x, y))


def test_the_last_of_rows_that_meet_wins() -> None:
    torch._dynamo.reset()
    x, y = torch.randn(50, 70), torch.randn(4000, 70)
    places = torch.randint(0, 50, (4000,))
    compiled = torch.compile(lambda x, y, places: x.index_put((places,), y), backend=compile_fx, dynamic=False)
    expected = x.clone()
    for number, place in enumerate(places.tolist()):
        expected[place] = y[number]
    for _ in range(5):
        assert torch.equal(compiled(x.cuda(), y.cuda(), places.cuda()).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_rows_that_meet_add_up_in_their_order(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x, y = torch.randn(50, 70).mul(9).to(dtype), torch.randn(4000, 70).mul(9).to(dtype)
    places = torch.randint(0, 50, (4000,))
    wide = torch.float32 if dtype == torch.float16 else dtype
    expected = x.to(wide, copy=True)
    for number, place in enumerate(places.tolist()):
        expected[place] += y[number].to(wide)
    compiled = torch.compile(lambda x, y, places: x.index_add(0, places, y), backend=compile_fx, dynamic=False)
    for _ in range(5):
        assert torch.equal(compiled(x.cuda(), y.cuda(), places.cuda()).cpu(), expected.to(dtype))


@pytest.mark.parametrize("name", ["sum", "mean of columns", "mean of everything", "running sum"])
def test_reductions_give_the_same_bits_every_time(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(ROWS[name], backend=compile_fx, dynamic=False)
    x = torch.randn(4096, 4096, device="cuda")
    first = compiled(x)
    assert all(torch.equal(compiled(x), first) for _ in range(20))


def check(function: Function, inputs: list[torch.Tensor], dtype: torch.dtype) -> None:
    """Results are as near to those in f64 as `hidet.testing.numerics` asks, in memory that holds no zeros."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=compile_fx, dynamic=False)
    samples = []
    with torch.backends.cudnn.flags(allow_tf32=False):
        for x in inputs:
            given = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="cuda").copy_(x)
            if x.storage_offset():
                given = torch.cat([given.new_zeros(1), given.flatten()])[1:].view(x.shape)
            eager = function(given)
            poison = [torch.full_like(eager, float("nan")) for _ in range(4)]
            del poison
            samples.append(Sample(*map(to_numpy, (compiled(given), eager, function(given.double())))))
    verdict = check_output("output", samples)
    assert verdict.correct, str(verdict)
