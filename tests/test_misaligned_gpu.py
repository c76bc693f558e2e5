"""Tensors that begin where kernels do not take them: calls on a GPU copy them. Run by `pytest -m gpu`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hidet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTH, ROWS = 256, 64


def misaligned(*shape: int, dtype: torch.dtype = torch.float16, offset: int = 1) -> torch.Tensor:
    """A contiguous tensor of random numbers that begins so many elements after a multiple of 16 bytes."""
    count = torch.Size(shape).numel()
    made = torch.randn(count + 16, device="cuda").to(dtype)[offset : offset + count].view(shape)
    assert made.is_contiguous() and (made.data_ptr() % 16 != 0) == (offset != 0)
    return made


def block() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    return layers.cuda().half().eval()


def is_right(model: nn.Module, found: torch.Tensor, x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_an_input_may_begin_anywhere_and_may_change(mode: str) -> None:
    model = block()
    compiled = torch.compile(model, backend="hidet", mode=mode)
    inputs = [misaligned(ROWS, WIDTH, offset=offset) for offset in (1, 0, 3)]
    with torch.no_grad():
        for turn in range(12):
            for x in inputs:
                is_right(model, compiled(x), x)
                x += turn % 3 - 1
    assert torch._dynamo.utils.counters["hidet"]["graphs"] >= 1


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_parameters_may_be_views_of_one_tensor_which_changes(mode: str) -> None:
    model = block()
    for name, parameter in list(model.named_parameters()):
        moved = misaligned(*parameter.shape)
        moved.copy_(parameter.data)
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, nn.Parameter(moved, requires_grad=False))
    assert all(parameter.data_ptr() % 16 for parameter in model.parameters())
    compiled, x = torch.compile(model, backend="hidet", mode=mode), misaligned(ROWS, WIDTH)
    with torch.no_grad():
        for _ in range(12):
            is_right(model, compiled(x), x)
            for parameter in model.parameters():
                parameter.mul_(0.9)


def test_a_user_records_calls_with_misaligned_inputs() -> None:
    model, x = block(), misaligned(ROWS, WIDTH)
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = compiled(x)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            graph.replay()
            torch.cuda.synchronize()
            is_right(model, found, x)


def test_explicitly_compiled_graphs_and_sizes_by_symbols() -> None:
    model = block()
    shapes = ({0: torch.export.Dim("rows", max=4096)},)
    with torch.no_grad():
        compiled = hidet.compile(model, [misaligned(ROWS, WIDTH, offset=0)], dynamic_shapes=shapes, target="cuda")
        for rows in (1, 7, 64, 333):
            x = misaligned(rows, WIDTH, offset=rows % 8)
            is_right(model, compiled(x), x)


def test_a_column_of_a_large_matrix_is_read_where_it_is() -> None:
    whole = torch.randn(1 << 14, 1 << 12, device="cuda", dtype=torch.float16)
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="hidet")
    with torch.no_grad():
        compiled(whole[:, 1])
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = compiled(whole[:, 1])
        torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    torch.testing.assert_close(found, torch.relu(whole[:, 1]) + 1)


def test_what_a_model_overwrites_is_written_where_it_is() -> None:
    def step(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[3:5] = x * 2
        return cache.sum(0)

    compiled, cache = torch.compile(step, backend="hidet"), misaligned(16, WIDTH)
    with torch.no_grad():
        for _ in range(6):
            x, wanted = misaligned(2, WIDTH), cache.clone()
            right = step(wanted, x)
            torch.testing.assert_close(compiled(cache, x), right, rtol=1e-2, atol=1e-2)
            torch.testing.assert_close(cache, wanted)
