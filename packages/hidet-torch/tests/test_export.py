"""`hidet.compile(module, example_inputs)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import hidet
from hidet.context import make_context
from hidet.cpu.target import CpuCode
from hidet.errors import ImportFailed, LaunchError, UnsupportedOp
from hidet.torch.export import device_of_module, import_module

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(6))


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.BatchNorm1d(16), nn.Linear(16, 4)).eval()


def test_a_module_becomes_a_graph_that_needs_its_inputs_only() -> None:
    model = _model()
    compiled = hidet.compile(model, (X,))
    with torch.no_grad():
        want = model(X).numpy()
    np.testing.assert_allclose(compiled(X.numpy()), want, rtol=1e-5, atol=1e-5)


def test_the_device_of_a_module_is_its_target() -> None:
    assert device_of_module(_model(), (X,)) == "cpu"
    with FakeTensorMode():
        elsewhere = nn.ParameterList([torch.empty(2, device="cuda:1")])
        assert device_of_module(elsewhere, None) == "cuda:1"
        assert device_of_module(nn.ReLU(), {"x": torch.empty(2, device="cuda:0")}) == "cuda:0"


def test_a_saved_module_gives_the_same_numbers(tmp_path: Path) -> None:
    compiled = hidet.compile(_model(), (X,))
    compiled.save(tmp_path / "model.hidet")
    assert np.array_equal(hidet.load(tmp_path / "model.hidet")(X.numpy()), compiled(X.numpy()))


def test_inputs_may_be_given_by_name() -> None:
    class Sum(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": a + b, "first": a}

    total, first = hidet.compile(Sum(), {"a": X, "b": X * 2})(X.numpy(), X.numpy() * 2)
    np.testing.assert_allclose(total, X.numpy() * 3, rtol=1e-6)
    assert np.array_equal(first, X.numpy())


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_results_lie_in_memory_as_in_eager_mode(memory: torch.memory_format) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.MaxPool2d(3, 2, 1)).eval()
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(7)).contiguous(memory_format=memory)
    want = model(x)
    (found,) = import_module(model, (x,), make_context("cpu")).graph.outputs
    assert found.tensor.element_strides == want.stride()
    result = hidet.compile(model, (x,))(x)
    assert result.stride() == want.stride()
    torch.testing.assert_close(result, want)


def test_views_and_results_that_are_returned_twice_are_tensors_of_their_own_in_the_order_of_eager_mode() -> None:
    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * 2
            return y, y.t(), y[:, :3], y.sum(1, keepdim=True), x

    compiled = hidet.compile(Turned(), (X,))
    results = compiled(X)
    for result, want in zip(results, Turned()(X), strict=True):
        torch.testing.assert_close(result, want)
    assert [result.stride() for result in results] == [(8, 1), (1, 8), (3, 1), (1, 1), (8, 1)]
    assert len({result.data_ptr() for result in (*results, X)}) == 6


def test_a_module_without_example_inputs_is_refused() -> None:
    with pytest.raises(ImportFailed, match="example inputs"):
        hidet.compile(_model())


def test_a_module_that_updates_a_buffer_is_refused() -> None:
    with pytest.raises(ImportFailed, match="updates its buffer"):
        hidet.compile(_model().train(), (X,))


def test_a_module_that_updates_a_parameter_is_refused() -> None:
    class Drifting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.add_(1)
            return super().forward(x)

    with pytest.raises(ImportFailed, match="updates its parameter weight"):
        hidet.compile(Drifting(8, 2), (X,))


class _Cache(nn.Module):
    """Writes rows to a tensor of the caller's, as the key-value cache of a language model is written to."""

    def forward(self, cache: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, places, rows)
        return cache.sum(1)


def _written() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.zeros(3, 2), torch.ones(1, 2), torch.tensor([1])


def test_what_a_module_writes_to_an_input_is_in_the_caller_s_tensor_and_no_result() -> None:
    compiled = hidet.compile(_Cache(), _written())
    cache, rows, _ = _written()
    for row in (1, 2):
        result = compiled(cache, rows, torch.tensor([row]))
        assert torch.equal(result, cache.sum(1))
    assert cache.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_a_saved_module_writes_to_the_same_input(tmp_path: Path) -> None:
    hidet.compile(_Cache(), _written()).save(tmp_path / "cache.hidet")
    cache, rows, places = (tensor.numpy() for tensor in _written())
    assert hidet.load(tmp_path / "cache.hidet")(cache, rows, places).tolist() == [0, 2, 0]
    assert cache.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_an_input_that_is_overwritten_and_returned_is_returned_as_a_copy() -> None:
    class Increment(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    x = torch.zeros(3)
    result = hidet.compile(Increment(), (x,))(x)
    result.add_(1)
    assert (x.tolist(), result.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_an_input_that_is_overwritten_but_cannot_be_written_to_is_refused() -> None:
    compiled = hidet.compile(_Cache(), _written())
    cache, rows, places = (tensor.numpy() for tensor in _written())
    cache.flags.writeable = False
    with pytest.raises(LaunchError, match=r"argument 0 \(cache\) is overwritten by the graph, but it is read-only"):
        compiled(cache, rows, places)


def test_an_input_that_is_overwritten_is_no_list() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y.add_(x)

    class Module(nn.Module):
        forward = staticmethod(add)

    compiled = hidet.compile(Module(), (torch.ones(2), torch.ones(2)))
    with pytest.raises(LaunchError, match=r"argument 1 \(y\) is overwritten by the graph, but it is a list"):
        compiled(torch.ones(2), [1.0, 1.0])


def test_an_operator_that_only_torch_can_run_is_refused() -> None:
    class Gamma(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.igamma(x, x)

    with pytest.raises(UnsupportedOp, match=r"aten\.igamma"):
        hidet.compile(Gamma(), (X,))


def test_an_update_of_the_model_does_not_show_in_what_was_compiled() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Embedding(4, 3)).eval()
    compiled = hidet.compile(model[:2], (X,))
    table = hidet.compile(model[2], (torch.tensor([1, 2]),))
    before, rows = compiled(X), table(torch.tensor([1, 2]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(compiled(X), before)
    assert torch.equal(table(torch.tensor([1, 2])), rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_module_on_a_gpu_is_compiled_for_it() -> None:
    model, x = _model().cuda(), X.cuda()
    compiled = hidet.compile(model, (x,))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_a_module_writes_to_an_input_on_a_gpu_is_in_an_array_of_the_host_too() -> None:
    compiled = hidet.compile(_Cache(), tuple(tensor.cuda() for tensor in _written()))
    for given in (_written(), tuple(tensor.cuda() for tensor in _written())):
        cache, rows, places = (tensor if tensor.is_cuda else tensor.numpy() for tensor in given)
        assert compiled(cache, rows, places).tolist() == [0, 2, 0]
        assert cache.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_module_is_compiled_for_as_many_threads_as_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    function = CpuCode.function

    def counted(code: CpuCode, name: str, threads: int | None) -> Callable[[int], object]:
        asked.append(threads)
        return function(code, name, threads)

    monkeypatch.setattr(CpuCode, "function", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    hidet.compile(nn.ReLU(), (X,))
    hidet.compile(nn.ReLU(), (X,), options={"threads": 1})
    assert asked == [3, 1]


def test_a_function_of_tensors_is_compiled_as_a_module_is() -> None:
    """user-walk.md section 6, row 5."""

    def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * factor

    x, factor = torch.randn(3, 4), torch.randn(4)
    compiled = hidet.compile(scaled, (x, factor))
    torch.testing.assert_close(compiled(x, factor), scaled(x, factor))
    torch.testing.assert_close(compiled(x, factor=factor), scaled(x, factor))
