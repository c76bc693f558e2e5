"""Operators that call a graph inside the graph, with torch's own samples of them."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.hop_db import hop_db


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", ["invoke_quant", "invoke_quant_packed", "invoke_subgraph"])
def test_what_is_called_is_compiled_with_the_graph_around_it(name: str, gradients: bool) -> None:
    """defects.md C7."""
    (info,) = (info for info in hop_db if info.name == name)
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=gradients):
        torch.compiler.reset()
        compiled = torch.compile(lambda *a, **k: info.op(*a, **k), backend="hidet", options={"strict": True})
        arguments = (sample.input, *sample.args)
        want, got = info.op(*arguments, **sample.kwargs), compiled(*arguments, **sample.kwargs)
        torch.testing.assert_close(got, want)
        if gradients:
            leaves = [a for a in torch.utils._pytree.tree_leaves(arguments) if isinstance(a, torch.Tensor)]
            results = [torch.utils._pytree.tree_leaves(tree) for tree in (want, got)]
            gradients_of = [torch.autograd.grad([r.sum() for r in made], leaves) for made in results]
            torch.testing.assert_close(gradients_of[1], gradients_of[0])
