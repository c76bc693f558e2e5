"""Where nodes of imported graphs stand in the user's model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from hidet.compiler.graphs import import_model


class Model(nn.Module):
    """A layer of torch's, and an operator of the model's own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 4]"""
        return self.fc(x).relu()


def test_a_layer_of_torch_names_the_line_that_calls_it() -> None:
    graph = import_model(Model(), (torch.ones(2, 4),)).graph
    lines = Path(__file__).read_text().splitlines()
    called = 1 + next(n for n, line in enumerate(lines) if "self.fc(x)" in line and "return" in line)
    layer = next(node.loc for node in graph.nodes if "linear.py" in str(node.loc))
    assert layer is not None and layer.name == "fc" and layer.parent is not None
    assert (layer.parent.file, layer.parent.line) == (__file__, called)
    own = next(node.loc for node in graph.nodes if node.op.name == "relu")
    assert own is not None and (own.line, own.parent) == (called, None)
