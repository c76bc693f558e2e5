"""Convolutions of patches that lie side by side are products with a patch a row."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.cuda.testing.schedules import context_for
from hidet.gpu.passes.im2col_patches import Im2colPatches
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.testing.interpret import interpret

TEXT = """
graph g(%x: {dtype}[2, {channels}, {height}, 12], %w: {dtype}[16, {channels}, 4, 3], %b: {dtype}[16]):
  %0: {dtype}[2, 16, {rows}, {columns}]{strides} = conv(%x, %w, %b, {window}, dilation=[1, 1])
  %1: {dtype}[2, 16, {rows}, {columns}] = relu(%0)
  return %1
"""


def rewritten(**changed: object) -> tuple[Graph, Graph]:
    """A graph before and after the pass."""
    given: dict[str, object] = {"dtype": "f16", "channels": 3, "height": 8, "step": 3, "padding": 0}
    given |= changed
    height, step, padding = (int(str(given[name])) for name in ("height", "step", "padding"))
    rows, columns = (height - 4) // 4 + 1, (12 + 2 * padding - 3) // step + 1
    strides = f"{{{16 * rows * columns}, 1, {16 * columns}, 16}}"
    window = f"stride=[4, {step}], padding=[0, {padding}]"
    text = TEXT.format(**{"window": window, "rows": rows, "columns": columns, "strides": strides, **given})
    ctx = context_for("sm_90a")
    graph = parse_graph(textwrap.dedent(text), ctx.registry.operators)
    return graph, Im2colPatches().run(graph, ctx)


def test_patches_are_copied_to_rows_and_multiplied() -> None:
    graph, changed = rewritten()
    names = [node.op.name for node in changed.nodes]
    assert "conv" not in names
    assert names.count("copy") == names.count("linear") == 1
    random = np.random.default_rng(0)
    given = [random.standard_normal(value.tensor.shape).astype(np.float16) for value in graph.inputs]
    (found,), (expected,) = interpret(changed, given), interpret(graph, given)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


OTHERS = {
    "patches that overlap": {"step": 2},
    "patches that see beyond the image": {"padding": 3},
    "images that patches do not fill": {"height": 10},
    "channels enough for wide copies": {"channels": 8},
    "elements that are multiplied without matrix units": {"dtype": "f32"},
    "results whose channels are no neighbours": {"strides": ""},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_convolutions_stay(case) -> None:
    graph, changed = rewritten(**OTHERS[case])
    assert changed is graph
