"""Models of torch: lines of users' models in profiles, and parts of models that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hidet
from hidet.errors import OptionError
from hidet.plugins import use
from hidet.report import check_accuracy, minify_model, record_calls


class Perceptron(nn.Module):
    """Two layers with a normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 16]"""
        x = torch.relu(self.first(x))
        x = self.norm(x)
        return self.second(x)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.strip() == text)


def test_rows_name_the_lines_of_the_users_model() -> None:
    model, x = Perceptron().eval(), torch.randn(4, 16)
    found = hidet.compile(model, (x,), options={"threads": 1}).profile(x, seconds=0.02)
    lines = {row.node: row.line for row in found.rows}
    assert lines["first"].endswith(f"test_torch_models.py:{line_of('x = torch.relu(self.first(x))')}")
    assert lines["norm"].endswith(f":{line_of('x = self.norm(x)')}")
    assert lines["second"].endswith(f":{line_of('return self.second(x)')}")


def test_sizes_of_a_call_tell_its_bytes() -> None:
    model, batch = nn.LayerNorm(64), torch.export.Dim("batch", min=1, max=64)
    x = torch.randn(4, 64)
    compiled = hidet.compile(model, (x,), dynamic_shapes=({0: batch},), options={"threads": 1})
    (row,) = compiled.profile(torch.randn(32, 64), seconds=0.02).rows
    assert row.nbytes == 4 * (2 * 32 * 64 + 2 * 64)
    assert check_accuracy(compiled, torch.randn(32, 64)).is_right


def test_results_of_sizes_that_a_call_finds_out_are_not_checked() -> None:
    class Places(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x.relu()).float().exp()

    x = torch.tensor([1.0, -1.0, 2.0, 0.0])
    found = check_accuracy(hidet.compile(Places(), (x,), options={"threads": 1}), x)
    assert found.is_right and found.rows[0].own is not None and found.rows[-1].own is None
    assert "could not be checked" in found.verdict


def test_a_model_of_torch_that_does_not_compile_is_minified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        HIDET_API = 1

        def hidet_pass_done(self, name: str, after: Any) -> None:
            if name == "simplify" and any(node.op.name == "layer_norm" for node in after.nodes):
                raise AssertionError("no layer norms here")

    monkeypatch.setenv("HIDET_STRICT_PLUGINS", "1")
    with use(Broken()):
        small = minify_model(Perceptron().eval(), (torch.randn(4, 16),), tmp_path / "small.py")
    assert [node.op.name for node in small.graph.nodes] == ["layer_norm"]
    assert "no layer norms here" in small.what


class Halves(nn.Module):
    """Two layers that dynamo compiles apart."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 16]"""
        x = torch.relu(self.first(x))
        torch._dynamo.graph_break()
        return self.second(x).softmax(dim=-1)


def test_graphs_of_torch_compile_are_recorded_with_what_they_are_called_with() -> None:
    model, x = torch.compile(Halves().eval(), backend="hidet"), torch.randn(4, 16)
    with torch.no_grad():
        first, second = record_calls(model, lambda: model(x))
    for call, node in ((first, "first"), (second, "second")):
        found = call.compiled.profile(*call.inputs, seconds=0.02)
        assert found.rows[0].node == node and "test_torch_models.py" in found.rows[0].line
        assert check_accuracy(call.compiled, *call.inputs).is_right
    with torch.no_grad():
        assert torch.allclose(model(x), model._orig_mod(x), atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_backward_passes_are_recorded_too() -> None:
    model, x = torch.compile(Halves(), backend="hidet"), torch.randn(4, 16)
    calls = record_calls(model, lambda: model(x).square().sum().backward())
    names = [call.compiled.profile(*call.inputs, seconds=0.02).model for call in calls]
    assert names == ["forward", "forward", "backward", "backward"]


def test_inputs_are_those_of_the_call_whatever_it_overwrites() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.count

    model = torch.compile(Counter(), backend="hidet")
    with torch.no_grad():
        (call,) = record_calls(model, lambda: model(torch.ones(3)))
    assert any(bool((value == 1).all()) and value is not model.count for value in call.inputs)
    assert bool((model.count == 2).all())


def test_what_torch_compile_has_not_made_cannot_be_recorded() -> None:
    model, x = Perceptron().eval(), torch.randn(4, 16)
    with pytest.raises(OptionError, match="record_calls takes what"):
        record_calls(model, lambda: model(x))
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        compiled(x)
    with pytest.raises(OptionError, match="step calls no graph"):
        record_calls(compiled, lambda: model(x))
