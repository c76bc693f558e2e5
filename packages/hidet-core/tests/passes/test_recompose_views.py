"""Chains of operators with views between them: axes in another order, split and merged."""

import numpy as np
import pytest

from hidet.passes.graph.recompose import Recompose
from hidet.testing.interpret import interpret


def grouped(mask):
    """Queries that share keys are rows of one product, and in front for the softmax, as jax's own attention has it."""
    return f"""
        graph g(%q: f64[2, 5, 6, 4], %k: f64[2, 7, 3, 4], %v: f64[2, 7, 3, 4], %m: f64[{mask}]):
          %0: f64[2, 5, 3, 2, 4] = reshape(%q, shape=[2, 5, 3, 2, 4])
          %1: f64[2, 3, 5, 2, 4] = transpose(%0, perm=[0, 2, 1, 3, 4])
          %2: f64[2, 3, 10, 4] = reshape(%1, shape=[2, 3, 10, 4])
          %3: f64[2, 3, 4, 7] = transpose(%k, perm=[0, 2, 3, 1])
          %4: f64[2, 3, 10, 7] = matmul(%2, %3)
          %5: f64[2, 3, 5, 2, 7] = reshape(%4, shape=[2, 3, 5, 2, 7])
          const %c: f64[] = 0.5
          %6: f64[2, 3, 5, 2, 7] = mul(%5, %c)
          %7: f64[2, 2, 3, 5, 7] = transpose(%6, perm=[3, 0, 1, 2, 4])
          %8: f64[2, 2, 3, 5, 7] = add(%7, %m)
          %9: f64[2, 2, 3, 5, 7] = softmax(%8)
          %10: f64[2, 3, 7, 2, 5] = transpose(%9, perm=[1, 2, 4, 0, 3])
          %11: f64[2, 3, 7, 10] = reshape(%10, shape=[2, 3, 7, 10])
          %12: f64[2, 3, 4, 7] = transpose(%v, perm=[0, 2, 3, 1])
          %13: f64[2, 3, 4, 10] = matmul(%12, %11)
          %14: f64[2, 3, 4, 2, 5] = reshape(%13, shape=[2, 3, 4, 2, 5])
          %15: f64[2, 5, 3, 2, 4] = transpose(%14, perm=[0, 4, 1, 3, 2])
          %16: f64[2, 5, 6, 4] = reshape(%15, shape=[2, 5, 6, 4])
          return %16
        """


@pytest.mark.parametrize("mask", ["5, 7", "2, 2, 3, 5, 7", "2, 1, 1, 7", "2, 2, 3, 1, 1"])
def test_attention_whose_queries_share_keys_in_one_product(ctx, parse, mask):
    before = parse(grouped(mask))
    after = Recompose().run(before, ctx)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    assert found.attrs["enable_gqa"] and found.values[1].tensor.shape == (2, 3, 7, 4)
    assert not {"matmul", "softmax"} & {node.op.name for node in after.nodes}
    arrays = [np.random.default_rng(n).standard_normal(v.tensor.shape) for n, v in enumerate(before.inputs)]
    np.testing.assert_allclose(*(interpret(made, arrays)[0] for made in (after, before)), atol=1e-9)


def test_a_mask_that_tells_apart_heads_of_keys_alone_is_left_as_it_is(ctx, parse):
    """It would be repeated in part of an axis."""
    after = Recompose().run(parse(grouped("1, 2, 3, 5, 7")), ctx)
    assert "attention" not in {node.op.name for node in after.nodes}


@pytest.mark.parametrize("keepdim", ["", ", keepdim=True"])
def test_a_softmax_that_is_shifted_in_another_order_of_axes(ctx, parse, keepdim):
    """Where jax maps it over an axis."""
    top, turned = ("[4, 2, 3, 1]", "[2, 3, 4, 1]") if keepdim else ("[4, 2, 3]", "[2, 3, 4]")
    perm = "[1, 2, 0, 3]" if keepdim else "[1, 2, 0]"
    before = parse(f"""
        graph g(%x: f64[4, 2, 3, 6]):
          %0: f64{top} = amax(%x, axes=[3]{keepdim})
          %1: f64{turned} = transpose(%0, perm={perm})
          %2: f64[2, 3, 4, 1] = reshape(%1, shape=[2, 3, 4, 1])
          %3: f64[2, 3, 4, 6] = transpose(%x, perm=[1, 2, 0, 3])
          %4: f64[2, 3, 4, 6] = sub(%3, %2)
          %5: f64[2, 3, 4, 6] = exp(%4)
          %6: f64[2, 3, 4, 1] = sum(%5, axes=[3], keepdim=True)
          %9: f64[2, 3, 4, 6] = div(%5, %6)
          return %9
        """)
    after = Recompose().run(before, ctx)
    assert [node.op.name for node in after.nodes] == ["transpose", "softmax"]
    x = np.random.default_rng(0).standard_normal((4, 2, 3, 6))
    np.testing.assert_allclose(interpret(after, [x])[0], interpret(before, [x])[0], atol=1e-12)


def test_the_maximum_along_another_axis_makes_no_softmax(ctx, parse):
    """The axis has the same extent, and is another one."""
    before = parse("""
        graph g(%x: f64[6, 6]):
          %0: f64[6] = amax(%x, axes=[0])
          %2: f64[6, 1] = reshape(%0, shape=[6, 1])
          %4: f64[6, 6] = sub(%x, %2)
          %5: f64[6, 6] = exp(%4)
          %6: f64[6, 1] = sum(%5, axes=[1], keepdim=True)
          %9: f64[6, 6] = div(%5, %6)
          return %9
        """)
    assert "softmax" not in {node.op.name for node in Recompose().run(before, ctx).nodes}
