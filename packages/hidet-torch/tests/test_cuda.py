"""torch.compile on a GPU: results, streams, modes, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hidet.errors import ImportFailed
from hidet.torch.backend import compile_fx, target_of

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_a_graph_of_several_devices_is_refused() -> None:
    elsewhere = SimpleNamespace(meta={"example_value": torch.empty(2, device="meta")})
    mixed, plain = (fx_like(nodes) for nodes in ([elsewhere], []))
    with pytest.raises(ImportFailed, match="several devices: cpu, meta"):
        target_of(mixed, [torch.empty(2)])
    assert target_of(plain, [torch.empty(2)]) == "cpu"


def fx_like(nodes: list[SimpleNamespace]) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(nodes=nodes))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
class TestOnAGpu:
    pytestmark = gpu

    def test_a_network_gives_what_eager_gives(self, dtype: torch.dtype, mode: str) -> None:
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)).cuda().to(dtype)
        compiled = torch.compile(model, backend=compile_fx, mode=mode)
        with torch.no_grad():
            results = []
            for number in range(4):
                x = torch.randn(8, 64, device="cuda", dtype=dtype) + number
                results.append((compiled(x), model(x)))
            for ours, theirs in results:
                torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)

    def test_work_goes_into_the_callers_stream(self, dtype: torch.dtype, mode: str) -> None:
        compiled = torch.compile(lambda x: F.softmax(x @ x.T, -1), backend=compile_fx, mode=mode)
        x = torch.randn(256, 64, device="cuda", dtype=dtype)
        stream = torch.cuda.Stream()
        with torch.no_grad():
            expected = compiled(x)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results = [compiled(x) for _ in range(4)]
            stream.synchronize()
        assert all(torch.equal(result, expected) for result in results)
