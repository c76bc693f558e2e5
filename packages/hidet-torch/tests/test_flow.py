"""`hidet.frontend.from_torch`: modules on tensors of hidet, and as parts of flow graphs."""

from __future__ import annotations

import pytest
import torch

import hidet
from hidet.errors import ImportFailed


class Scaled(torch.nn.Module):
    """A layer with an argument that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        product = self.layer(x) * factor
        return product, product + y


@pytest.fixture(name="module")
def _module() -> Scaled:
    torch.manual_seed(0)
    return Scaled().eval()


@pytest.mark.parametrize("factor", [None, 3.0])
def test_a_module_is_called_with_tensors(module: Scaled, factor: float | None) -> None:
    more = {} if factor is None else {"factor": factor}
    converted = hidet.frontend.from_torch(module, more)
    for rows in (2, 5):
        x, y = torch.randn(rows, 6), torch.randn(4)
        results = converted(hidet.from_torch(x), hidet.from_torch(y))
        with torch.no_grad():
            for found, right in zip(results, module(x, y, **more), strict=True):
                torch.testing.assert_close(found.torch(), right, rtol=1e-5, atol=1e-6)


def test_symbols_give_symbols_that_make_a_graph(module: Scaled) -> None:
    x, y = hidet.symbol([2, 6]), hidet.symbol([4])
    _, moved = hidet.frontend.from_torch(module)(hidet.ops.relu(x), y)
    graph = hidet.trace_from(moved, inputs=[x, y])
    assert "linear" in [node.name for node in graph.nodes]
    given = torch.randn(2, 6), torch.randn(4)
    with torch.no_grad():
        right = module(given[0].relu(), given[1])[1]
    torch.testing.assert_close(graph(*map(hidet.from_torch, given)).torch(), right, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_refused(module: Scaled) -> None:
    converted = hidet.frontend.from_torch(module)
    with pytest.raises(ImportFailed, match="some inputs have elements and others are symbolic"):
        converted(hidet.symbol([2, 6]), hidet.zeros([4]))
    with pytest.raises(ImportFailed, match="a size of an input is a symbol"):
        converted(hidet.symbol(["n", 6]), hidet.symbol([4]))
