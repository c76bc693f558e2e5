"""torch.compile on a GPU: results, layouts, streams, modes, autocast, gradients, and what is refused."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import hidet.torch
from hidet.cuda.devices import device_at
from hidet.cuda.memory import CudaMemory
from hidet.errors import FallbackWarning
from hidet.torch.backend import compile_fx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning"),
]

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def _without_gradients(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.set_grad_enabled("gradient" in request.node.name):
        yield


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each call that became a CUDA graph."""
    found: list[int] = []
    capture = CudaMemory.capture

    def counted(self: CudaMemory, run: Callable[[int], None]) -> Any:
        found.append(1)
        return capture(self, run)

    monkeypatch.setattr(CudaMemory, "capture", counted)
    return found


def compiled(function: Callable[..., Any], mode: str = "default", **settings: Any) -> Callable[..., Any]:
    # What tuning does is tested elsewhere.
    options = {"mode": mode, "search_space": 0, **settings.pop("options", {})}
    made: Callable[..., Any] = torch.compile(function, backend=compile_fx, fullgraph=True, options=options, **settings)
    return made


def agree(function: Callable[..., Any], *inputs: Any, calls: int = 4, tolerance: float = 2e-2, **options: Any) -> None:
    """The compiled function gives what `function` gives, at every one of several calls with other values."""
    ours = compiled(function, **options)
    results = []
    for number in range(calls):
        given = [value + number if isinstance(value, torch.Tensor) else value for value in inputs]
        results.append((ours(*given), function(*given)))
    for got, want in results:
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
        assert got.stride() == want.stride() and got.device == want.device


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_network_gives_what_eager_gives_in_every_mode(dtype: torch.dtype, mode: str) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)).cuda().to(dtype)
    agree(model, torch.randn(8, 64, device="cuda", dtype=dtype), mode=mode)


def sums_of_sums(x: torch.Tensor) -> torch.Tensor:
    """Many kernels: scans are not fused."""
    for _ in range(8):
        x = x.cumsum(1) * 0.5
    return x


@pytest.mark.parametrize(
    ("mode", "shapes"), [("default", 1), ("reduce-overhead", 2), ("max-autotune", 2), ("max-autotune-no-cudagraphs", 0)]
)
def test_repeated_calls_become_cuda_graphs(mode: str, shapes: int, captures: list[int]) -> None:
    function = compiled(sums_of_sums, mode=mode)
    for rows in (4, 4, 4, 4, 5, 5):
        x = torch.randn(rows, 8, device="cuda")
        torch.testing.assert_close(function(x), sums_of_sums(x), rtol=1e-4, atol=1e-4)
    assert len(captures) == shapes


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_work_goes_into_the_callers_stream(dtype: torch.dtype, mode: str) -> None:
    function = compiled(lambda x: F.softmax(x @ x.T, -1), mode=mode)
    x = torch.randn(256, 64, device="cuda", dtype=dtype)
    stream = torch.cuda.Stream()
    expected = function(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        results = [function(x) for _ in range(4)]
    stream.synchronize()
    assert all(torch.equal(result, expected) for result in results)


def test_a_call_inside_of_the_users_own_capture_is_captured_by_it() -> None:
    function = compiled(sums_of_sums, mode="reduce-overhead")
    x = torch.randn(32, 8, device="cuda")
    for _ in range(3):
        function(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(x)
    x.neg_()
    graph.replay()
    torch.testing.assert_close(result, sums_of_sums(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(
    "x",
    [
        pytest.param(lambda: torch.randn(32, 16).t(), id="transposed"),
        pytest.param(lambda: torch.randn(16, 70)[:, 3:35], id="a part"),
        pytest.param(lambda: torch.randn(1, 32).expand(16, 32), id="repeated"),
        pytest.param(lambda: torch.randn(16, 64)[:, ::2], id="every other"),
    ],
)
def test_inputs_may_lie_in_any_way(x: Callable[[], torch.Tensor], mode: str) -> None:
    weight = torch.randn(32, 32, device="cuda")
    given = x().cuda() if x().is_contiguous() else _on_the_gpu(x())
    assert not given.is_contiguous()
    function = compiled(lambda x: torch.relu(x @ weight) + x, mode=mode)
    for _ in range(4):
        torch.testing.assert_close(function(given), torch.relu(given @ weight) + given, rtol=1e-3, atol=1e-3)


def _on_the_gpu(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    made = torch.empty(1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)), device="cuda")
    view = made.as_strided(x.shape, x.stride())
    if 0 in x.stride():
        made.copy_(x[0])
    else:
        view.copy_(x)
    return view


def test_channels_last_images_give_channels_last_results() -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).cuda().eval()
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(2, 8, 12, 12, device="cuda").to(memory_format=torch.channels_last)
    agree(model, images)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_computes_in_the_type_it_asks_for(dtype: torch.dtype) -> None:
    linear = nn.Linear(64, 32).cuda()
    x = torch.randn(8, 64, device="cuda")
    function = compiled(linear)
    with torch.autocast("cuda", dtype=dtype):
        got, want = function(x), linear(x)
    assert got.dtype == want.dtype == dtype
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_numbers_on_the_cpu_go_with_tensors_on_the_gpu() -> None:
    x = torch.randn(8, device="cuda")
    assert torch.equal(compiled(lambda x, factor: x * factor)(x, torch.tensor(2.5)), x * 2.5)


def test_sizes_may_change() -> None:
    function = compiled(lambda x: F.softmax(x, -1) * x.shape[0], dynamic=True)
    for rows, columns in ((4, 9), (7, 130), (1, 33)):
        x = torch.randn(rows, columns, device="cuda")
        torch.testing.assert_close(function(x), F.softmax(x, -1) * rows, rtol=1e-5, atol=1e-5)


def test_one_function_serves_both_devices() -> None:
    function = compiled(lambda x: x.exp() + 1)
    for device in ("cuda", "cpu", "cuda"):
        x = torch.randn(5, device=device)
        torch.testing.assert_close(function(x), x.exp() + 1)


def test_what_is_computed_from_no_input_is_computed_on_the_gpu() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        table = torch.arange(8).to(x.device) * 2
        return (x + table)[torch.tensor([3, 0])] * torch.tensor([1.5, 2.5], device=x.device)

    agree(function, torch.randn(8, device="cuda"))


def result_on_the_cpu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (F.softmax(x, -1) * x).cpu().exp()


def positions_on_the_cpu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 2)[:, y.argsort(0)[:3, 0]].exp()


def number_on_the_cpu(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.exp(), x.sum().cpu()


def apart(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x * 2).exp(), y.sin() + 1


@pytest.mark.parametrize("function", [result_on_the_cpu, positions_on_the_cpu, number_on_the_cpu])
def test_torch_runs_what_is_between_devices_and_says_so(function: Any) -> None:
    x, y = torch.randn(8, 8, device="cuda"), torch.randn(8, 8)
    with pytest.warns(FallbackWarning, match=r"test_cuda\.py:\d+.*: it is between cpu and cuda:0"):
        result = torch.compile(function, backend=compile_fx)(x, y)
    torch.testing.assert_close(result, function(x, y), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    with pytest.raises(BackendCompilerFailed, match="it is between cpu and cuda:0"):
        compiled(function, options={"strict": True})(x, y)


def test_each_device_of_a_graph_has_its_own_part() -> None:
    function = compiled(apart, options={"mode": "reduce-overhead", "strict": True})
    for _ in range(4):
        x, y = torch.randn(8, 8, device="cuda"), torch.randn(8, 8)
        torch.testing.assert_close(function(x, y), apart(x, y), rtol=1e-4, atol=1e-5)


def test_gradients_go_from_device_to_device() -> None:
    gradients = []
    for run in (torch.compile(result_on_the_cpu, backend=compile_fx), result_on_the_cpu):
        x = torch.linspace(-1, 1, 64).reshape(8, 8).cuda().requires_grad_()
        run(x, x).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_gradient_is_that_of_eager(mode: str) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8)).cuda()
    function = compiled(model, mode=mode)
    for _ in range(3):
        x = torch.randn(16, 64, device="cuda")
        gradients = []
        for run in (function, model):
            model.zero_grad()
            run(x).square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])  # type: ignore[union-attr]
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_an_updated_weight_is_seen_by_captured_calls() -> None:
    model = nn.Linear(16, 16).cuda()
    function = compiled(lambda x: sums_of_sums(model(x)), mode="reduce-overhead")
    x = torch.randn(4, 16, device="cuda")
    for number in range(9):
        if number % 3 == 2:
            model.weight.mul_(2)
        torch.testing.assert_close(function(x), sums_of_sums(model(x)), rtol=1e-4, atol=1e-4)


def test_operators_that_core_lacks_run_in_torch_on_the_gpu() -> None:
    x = torch.rand(8, device="cuda")
    with hidet.torch.collect_reports() as reports:
        torch.testing.assert_close(
            compiled(lambda x: torch.igamma(x.exp(), x.exp() * 2) + 1)(x), torch.igamma(x.exp(), x.exp() * 2) + 1
        )
    assert [report.nodes.eager for report in reports] == [1]


def test_sizes_that_depend_on_data_are_read_back() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = compiled(lambda x: x[x > 0].exp(), mode="reduce-overhead")
        for _ in range(3):
            x = torch.randn(100, device="cuda")
            torch.testing.assert_close(function(x), x[x > 0].exp())


def _set_data(layer: nn.Conv2d) -> None:
    layer.weight.data = layer.weight.data * 3


def _replace_parameter(layer: nn.Conv2d) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() + 1)


def _load(layer: nn.Conv2d) -> None:
    layer.load_state_dict({name: value * 0.5 for name, value in layer.state_dict().items()})


@pytest.mark.parametrize(
    "change",
    [lambda layer: layer.weight.mul_(2), lambda layer: layer.bias.fill_(3), _set_data, _replace_parameter, _load],
)
def test_captured_calls_see_weights_that_were_changed_in_any_way(
    change: Callable[[nn.Conv2d], object], captures: list[int]
) -> None:
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    model = nn.Sequential(*layers).cuda().eval()
    ours = compiled(model, mode="reduce-overhead")
    for number in range(12):
        x = torch.randn(2, 8, 16, 16, device="cuda")
        if number in (5, 6, 9):
            change(layers[3])  # type: ignore[arg-type]  # a convolution
        torch.testing.assert_close(ours(x), model(x), rtol=1e-2, atol=1e-2)
    assert captures


def test_a_graph_of_the_users_outlives_what_it_was_recorded_from() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3)).cuda().eval()
    ours = compiled(model)
    x = torch.randn(2, 3, 16, 16, device="cuda")
    for _ in range(3):
        ours(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ours(x)
    kept = device_at(x.device.index).kept
    assert len(kept) > 0
    del ours
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    # What was freed is used again.
    others = [torch.full((1 << 20,), torch.nan, device="cuda") for _ in range(32)]
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(result, model(x), rtol=1e-2, atol=1e-2)
    assert all(bool(other.isnan().all()) for other in others)
    del graph
    deadline = time.monotonic() + 10
    while len(kept) and time.monotonic() < deadline:
        kept.drop_unneeded()
    assert len(kept) == 0
