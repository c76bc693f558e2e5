"""What sizes hint at is of the graph that they are in: other graphs of the same process may hint at other numbers."""

from __future__ import annotations

import pytest

from hidet.dims import hint_value, symbol
from hidet.dtypes import f32
from hidet.graph.builder import GraphBuilder
from hidet.graph.types import TensorType
from hidet.plugins.host import load_registry


@pytest.mark.parametrize("hint", [3, 500, None, 7])
def test_results_hint_at_what_the_inputs_of_their_graph_do(hint: int | None) -> None:
    n = symbol("n", lower=1, hint=hint)
    builder = GraphBuilder(load_registry().operators)
    x = builder.input(TensorType(f32, (n, 4)))
    for value in (
        builder.emit("exp", x),
        builder.emit("transpose", x, perm=(1, 0)),
        builder.emit("reshape", x, shape=(n * 4,)),
        builder.emit("full", shape=(n, 2), value=0, dtype=f32),
    ):
        found = [hint_value(extent) for extent in value.tensor.shape if not isinstance(extent, int)]
        assert found == [hint if value.tensor.rank == 2 or hint is None else 4 * hint]
