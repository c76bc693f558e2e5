"""Products with scales of blocks: what they mean, and what they are taken apart to."""

from __future__ import annotations

import numpy as np
import pytest

from hidet.errors import VerifyError
from hidet.graph.parser import parse_graph
from hidet.passes.rewriter import GraphRewriter
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret

TEXT = """graph g(%a: f8e4m3[5, 20], %b: f8e4m3[{b}], %s: f32[{s}], %t: f32[{t}]):
  %0: f32[5, 9] = block_scaled_matmul(%a, %b, %s, %t, trans_b={trans}, dtype={dtype}, rows=2, columns=4, size=8)
  return %0
"""


def graph(b: str = "9, 20", s: str = "3, 3", t: str = "3, 3", trans: bool = True, dtype: str = "f32"):
    return parse_graph(TEXT.format(b=b, s=s, t=t, trans=trans, dtype=dtype), load_registry().operators)


def drawn(g):
    random = np.random.default_rng(2)
    return [random.standard_normal(value.tensor.shape).astype(value.tensor.dtype.numpy()) for value in g.inputs]


def exact(a, b, s, t):
    k, rows, columns = np.arange(20) // 8, np.arange(5) // 2, np.arange(9) // 4
    a, b, s, t = (x.astype(np.float64) for x in (a, b, s, t))
    return (a * s[rows][:, k]) @ (b * t[k][:, columns].T).T


@pytest.mark.parametrize("trans", [True, False])
def test_blocks_are_multiplied_with_their_scales(trans):
    g = graph("9, 20" if trans else "20, 9", trans=trans)
    arrays = drawn(g)
    a, b, s, t = arrays
    (found,) = interpret(g, arrays)
    np.testing.assert_allclose(np.asarray(found), exact(a, b if trans else b.T, s, t), rtol=1e-5, atol=1e-5)


def test_targets_without_a_schedule_multiply_what_is_scaled_before():
    g = graph()
    assert [node.op.name for node in g.nodes] == ["block_scaled_matmul"]
    arrays = drawn(g)
    rewriter = GraphRewriter(g, load_registry().operators)
    (node,) = g.nodes
    rewriter.substitute(node.outputs[0], *rewriter.decompose(node))
    (found,) = interpret(rewriter.finish(), arrays)
    np.testing.assert_allclose(np.asarray(found), exact(*arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("s", "t"), [("5, 3", "3, 3"), ("3, 3", "3, 2"), ("3, 2", "2, 3")])
def test_other_numbers_of_scales_are_refused(s, t):
    with pytest.raises(VerifyError, match="against the blocks that it scales"):
        graph(s=s, t=t)


def test_results_of_other_kinds_are_refused():
    with pytest.raises(VerifyError, match="results of i32"):
        graph(dtype="i32")
