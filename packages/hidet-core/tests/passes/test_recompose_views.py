"""Chains of operators with views between them: axes in another order, split and merged."""

import math

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


def test_a_mask_that_tells_apart_heads_of_keys_alone_is_repeated_for_queries_that_share_them(ctx, parse, same_result):
    """Heads of queries are one axis of attention with grouped queries."""
    before = parse(grouped("1, 2, 3, 5, 7"))
    after = Recompose().run(before, ctx)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    assert found.values[3].tensor.shape == (2, 6, 5, 7)
    same_result(before, after)


def windowed(first, second, images="2"):
    """Scores of 4 windows an image and 3 heads, to which two terms are added: one by images and windows as one axis,
    one where they are two. images: an extent."""
    both = {"2": "8", "1": "4", "s": "4*s"}[images]
    keys = f"f64[{both}, 3, 6, 8]"
    return f"""
        {"symbol s: 2..64" if images == "s" else ""}
        graph g(%q: f64[{both}, 3, 5, 8], %k: {keys}, %v: {keys}, %m: f64[{first}], %n: f64[{second}]):
          const %c: f64[] = 0.5
          %0: f64[{both}, 3, 5, 8] = mul(%q, %c)
          %1: f64[{both}, 3, 5, 6] = matmul(%0, %k, trans_b=True)
          %2: f64[{both}, 3, 5, 6] = add(%1, %m)
          %3: f64[{images}, 4, 3, 5, 6] = reshape(%2, shape=[dim({images}), 4, 3, 5, 6])
          %4: f64[{images}, 4, 3, 5, 6] = add(%3, %n)
          %5: f64[{both}, 3, 5, 6] = reshape(%4, shape=[dim({both}), 3, 5, 6])
          %6: f64[{both}, 3, 5, 6] = softmax(%5)
          %9: f64[{both}, 3, 5, 8] = matmul(%6, %v)
          return %9
    """


@pytest.mark.parametrize("images", ["2", "1", "s"])
def test_windows_that_are_shifted_have_a_mask_that_all_images_share(ctx, parse, same_result, images):
    """Swin's: a bias for each head and a mask for each window."""
    before = parse(windowed("1, 3, 5, 6", "1, 4, 1, 5, 6", images))
    after = Recompose().run(before, ctx)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    assert math.prod(found.values[3].tensor.shape) == 4 * 3 * 5 * 6
    assert not {"matmul", "softmax", "expand"} & {node.op.name for node in after.nodes}
    same_result(before, after)


@pytest.mark.parametrize(
    "terms",
    [
        ("1, 3, 5, 6", "2, 1, 1, 1, 6"),
        ("8, 1, 5, 1", "1, 4, 3, 1, 1"),
        ("6", "2, 4, 3, 5, 6"),
        ("8, 1, 1, 6", "2, 4, 1, 1, 6"),
    ],
)
def test_terms_of_scores_may_be_repeated_along_any_part_of_an_axis(ctx, parse, same_result, terms):
    before = parse(windowed(*terms))
    after = Recompose().run(before, ctx)
    assert {node.op.name for node in after.nodes} <= {"attention", "add", "reshape"}
    same_result(before, after)


def test_a_term_of_windows_is_no_larger_in_one_layer_of_attention_than_in_several(ctx, parse):
    """Where no term tells images from windows, they stay one axis."""
    after = Recompose().run(parse(windowed("1, 3, 5, 6", "1, 1, 3, 5, 1")), ctx)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    assert found.outputs[0].tensor.shape == (8, 3, 5, 8)


def test_positions_relative_along_two_axes_are_added_as_one_mask(ctx, parse, same_result):
    """Those of queries and of keys are axes of their own where SAM adds its terms."""
    before = parse("""
        graph g(%q: f64[4, 6, 8], %k: f64[4, 10, 8], %v: f64[4, 10, 8], %m: f64[4, 3, 2, 5, 1], %n: f64[4, 3, 2, 1, 2]):
          %1: f64[4, 6, 10] = matmul(%q, %k, trans_b=True)
          %2: f64[4, 3, 2, 5, 2] = reshape(%1, shape=[4, 3, 2, 5, 2])
          %3: f64[4, 3, 2, 5, 2] = add(%2, %m)
          %4: f64[4, 3, 2, 5, 2] = add(%3, %n)
          %5: f64[4, 6, 10] = reshape(%4, shape=[4, 6, 10])
          %6: f64[4, 6, 10] = softmax(%5)
          %9: f64[4, 6, 8] = matmul(%6, %v)
          return %9
        """)
    after = Recompose().run(before, ctx)
    assert [node.op.name for node in after.nodes] == ["reshape", "reshape", "add", "reshape", "attention"]
    same_result(before, after)


def test_a_term_of_one_part_of_the_keys_is_repeated_along_the_other(ctx, parse, same_result):
    before = parse("""
        graph g(%q: f64[4, 6, 8], %k: f64[4, 10, 8], %v: f64[4, 10, 8], %m: f64[5, 1]):
          %1: f64[4, 6, 10] = matmul(%q, %k, trans_b=True)
          %2: f64[4, 6, 5, 2] = reshape(%1, shape=[4, 6, 5, 2])
          %3: f64[4, 6, 5, 2] = add(%2, %m)
          %5: f64[4, 6, 10] = reshape(%3, shape=[4, 6, 10])
          %6: f64[4, 6, 10] = softmax(%5)
          %9: f64[4, 6, 8] = matmul(%6, %v)
          return %9
        """)
    after = Recompose().run(before, ctx)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    assert found.values[3].tensor.shape == (1, 1, 10)
    same_result(before, after)


@pytest.mark.parametrize("place", ["queries", "keys"])
def test_a_scale_that_is_rounded_to_16_bits_is_the_scale_of_attention(ctx, parse, place):
    source, (q, k) = {"queries": ("%q", ("%2", "%k")), "keys": ("%k", ("%q", "%2"))}[place]
    before = parse(f"""
        graph g(%q: f16[2, 5, 8], %k: f16[2, 5, 8], %v: f16[2, 5, 8]):
          const %c: f32[] = 0.25
          %0: f32[2, 5, 8] = cast({source}, dtype=f32)
          %1: f32[2, 5, 8] = mul(%0, %c)
          %2: f16[2, 5, 8] = cast(%1, dtype=f16)
          %3: f16[2, 5, 5] = matmul({q}, {k}, trans_b=True)
          %4: f16[2, 5, 5] = softmax(%3)
          %9: f16[2, 5, 8] = matmul(%4, %v)
          return %9
        """)
    (found,) = Recompose().run(before, ctx).nodes
    assert found.attrs["scale"] == 0.25 and [value.name for value in found.values] == ["q", "k", "v"]


def test_queries_that_are_rounded_to_16_bits_stay_rounded(ctx, parse):
    before = parse("""
        graph g(%q: f32[2, 5, 8], %k: f16[2, 5, 8], %v: f16[2, 5, 8]):
          const %c: f32[] = 0.25
          %1: f32[2, 5, 8] = mul(%q, %c)
          %2: f16[2, 5, 8] = cast(%1, dtype=f16)
          %3: f16[2, 5, 5] = matmul(%2, %k, trans_b=True)
          %4: f16[2, 5, 5] = softmax(%3)
          %9: f16[2, 5, 8] = matmul(%4, %v)
          return %9
        """)
    assert [node.op.name for node in Recompose().run(before, ctx).nodes] == ["mul", "cast", "attention"]


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


QUERIES = """
        graph g(%x: {dtype}[2, 5, 12], %k: {dtype}[2, 3, 7, 4], %v: {dtype}[2, 3, 7, 4]):
          const %c: {dtype}[] = 0.5{scaled}
          %1: {dtype}[2, 5, 3, 4] = reshape({rows}, shape=[2, 5, 3, 4])
          %2: {dtype}[2, 3, 5, 4] = transpose(%1, perm=[0, 2, 1, 3])
          %3: {dtype}[2, 3, 5, 4] = attention(%2, %k, %v, scale={scale})
          return {results}
"""
SCALED = "\n          %0: {dtype}[2, 5, 12] = mul(%x, %c)"


@pytest.mark.parametrize("dtype", ["f64", "f16"])
def test_a_factor_of_queries_is_part_of_the_scale(becomes, dtype):
    given = {"dtype": dtype, "results": "%3"}
    before = QUERIES.format(scaled=SCALED.format(dtype=dtype), rows="%0", scale=0.25, **given)
    after = QUERIES.format(scaled="", rows="%x", scale=0.125, **given)
    becomes(Recompose(), before, after.replace(f"          const %c: {dtype}[] = 0.5\n", ""))


@pytest.mark.parametrize(
    ("scaled", "scale", "results"),
    [
        (SCALED.format(dtype="f64"), "", "%3"),  # the scale is not known here
        (SCALED.format(dtype="f64"), "0.25", "%3, %0"),  # somebody else reads the scaled queries
        (SCALED.format(dtype="f64").replace("%c", "%x"), "0.25", "%3"),  # no number
    ],
)
def test_other_factors_of_queries_stay(becomes, scaled, scale, results):
    text = QUERIES.format(dtype="f64", scaled=scaled, rows="%0", scale=scale, results=results).replace(", scale=)", ")")
    if "%c)" not in text:
        text = text.replace("          const %c: f64[] = 0.5\n", "")
    becomes(Recompose(), text, text)
