"""Chains that spell out an operator of core, and chains that only look like it."""

import numpy as np
import pytest

import hidet
from hidet.passes.graph.recompose import Recompose
from hidet.testing.interpret import interpret

GELU = 0.7978845608028654
CUBE = 0.044715


@pytest.fixture
def recomposed(becomes):
    """`recomposed(before, after)`: checks what becomes of an indented text."""
    return lambda before, after, **tolerance: becomes(Recompose(), before, after, **tolerance)


@pytest.fixture
def stays(recomposed):
    """`stays(text)`: checks that nothing is recognised."""
    return lambda text: recomposed(text, text)


def test_silu(recomposed):
    recomposed(
        """
        graph g(%x: f64[3, 4]):
          %0: f64[3, 4] = sigmoid(%x)
          %1: f64[3, 4] = mul(%0, %x)
          return %1
        """,
        """
        graph g(%x: f64[3, 4]):
          %1: f64[3, 4] = silu(%x)
          return %1
        """,
    )


def test_a_gate_with_another_reader_is_left_alone(stays):
    stays("""
        graph g(%x: f64[3, 4]):
          %0: f64[3, 4] = sigmoid(%x)
          %1: f64[3, 4] = mul(%0, %x)
          return %1, %0
    """)


@pytest.mark.parametrize(
    "lines",
    [
        [
            "%0: f64[4] = mul(%x, %root)",
            "%1: f64[4] = erf(%0)",
            "%2: f64[4] = add(%1, %one)",
            "%3: f64[4] = mul(%x, %half)",
            "%9: f64[4] = mul(%3, %2)",
        ],
        [
            "%0: f64[4] = div(%x, %two)",
            "%1: f64[4] = erf(%0)",
            "%2: f64[4] = add(%one, %1)",
            "%3: f64[4] = mul(%2, %x)",
            "%9: f64[4] = mul(%half, %3)",
        ],
    ],
    ids=["half of x first", "half of all last"],
)
def test_gelu_by_the_error_function_in_any_order(recomposed, lines):
    numbers = {"%root": "0.7071067811865476", "%one": "1.0", "%half": "0.5", "%two": "1.4142135623730951"}
    used = [f"const {name}: f64[] = {value}" for name, value in numbers.items() if any(name in line for line in lines)]
    text = "".join(f"          {line}\n" for line in (*used, *lines))
    recomposed(
        f"\n        graph g(%x: f64[4]):\n{text}          return %9\n",
        """
        graph g(%x: f64[4]):
          %0: f64[4] = gelu(%x)
          return %0
        """,
    )


@pytest.mark.parametrize(
    "cube",
    [
        "%0: f64[4] = square(%x)\n          %1: f64[4] = mul(%0, %x)",
        "%1: f64[4] = pow(%x, %three)",
        "%0: f64[4] = mul(%x, %x)\n          %1: f64[4] = mul(%x, %0)",
    ],
    ids=["square", "pow", "products"],
)
def test_gelu_by_tanh(recomposed, cube):
    three = "const %three: f64[] = 3.0\n          " if "pow" in cube else ""
    recomposed(
        f"""
        graph g(%x: f64[4]):
          {three}const %c: f64[] = {CUBE}
          const %k: f64[] = {GELU}
          const %one: f64[] = 1.0
          const %half: f64[] = 0.5
          {cube}
          %2: f64[4] = mul(%1, %c)
          %3: f64[4] = add(%x, %2)
          %4: f64[4] = mul(%3, %k)
          %5: f64[4] = tanh(%4)
          %6: f64[4] = add(%5, %one)
          %7: f64[4] = mul(%x, %half)
          %8: f64[4] = mul(%7, %6)
          return %8
        """,
        """
        graph g(%x: f64[4]):
          %0: f64[4] = gelu(%x, approximate='tanh')
          return %0
        """,
    )


def test_gelu_of_16_bit_floats_whose_products_with_numbers_are_rounded(recomposed):
    """As torch takes NewGELUActivation of transformers apart."""
    recomposed(
        f"""
        graph g(%x: f16[4, 8]):
          const %half: f16[] = 0.5
          const %c: f32[] = {CUBE}
          const %k: f32[] = {GELU}
          const %one: f16[] = 1.0
          %2: f16[4, 8] = mul(%x, %half)
          %3: f32[4, 8] = cast(%x, dtype=f32)
          %4: f32[4, 8] = square(%3)
          %5: f32[4, 8] = mul(%4, %3)
          %6: f16[4, 8] = cast(%5, dtype=f16)
          %7: f32[4, 8] = cast(%6, dtype=f32)
          %9: f32[4, 8] = mul(%7, %c)
          %10: f16[4, 8] = cast(%9, dtype=f16)
          %11: f16[4, 8] = add(%x, %10)
          %12: f32[4, 8] = cast(%11, dtype=f32)
          %14: f32[4, 8] = mul(%12, %k)
          %15: f16[4, 8] = cast(%14, dtype=f16)
          %16: f16[4, 8] = tanh(%15)
          %18: f16[4, 8] = add(%16, %one)
          %19: f16[4, 8] = mul(%2, %18)
          return %19
        """,
        """
        graph g(%x: f16[4, 8]):
          %0: f16[4, 8] = gelu(%x, approximate='tanh')
          return %0
        """,
        tolerance=2e-3,
    )


def test_a_rounded_value_that_somebody_else_reads_is_left_alone(stays):
    stays("""
        graph g(%x: f16[4]):
          const %root: f32[] = 0.7071067811865476
          const %one: f16[] = 1.0
          const %half: f16[] = 0.5
          %0: f32[4] = cast(%x, dtype=f32)
          %1: f32[4] = mul(%0, %root)
          %2: f16[4] = cast(%1, dtype=f16)
          %3: f16[4] = erf(%2)
          %4: f16[4] = add(%3, %one)
          %5: f16[4] = mul(%x, %half)
          %6: f16[4] = mul(%5, %4)
          return %6, %2
    """)


def test_gelu_with_other_numbers_is_left_alone(stays):
    stays("""
        graph g(%x: f64[4]):
          const %root: f64[] = 0.5
          const %one: f64[] = 1.0
          const %half: f64[] = 0.5
          %0: f64[4] = mul(%x, %root)
          %1: f64[4] = erf(%0)
          %2: f64[4] = add(%1, %one)
          %3: f64[4] = mul(%x, %half)
          %4: f64[4] = mul(%3, %2)
          return %4
    """)


RMS_NORM = """
        graph g(%x: f64[2, 3, 8], param %w: f64[8]):
          %0: f64[2, 3, 8] = rms_norm(%x, %w, eps=1e-06)
          return %0
"""


@pytest.mark.parametrize("square", ["square(%x)", "mul(%x, %x)", "pow(%x, %two)"])
def test_rms_norm(recomposed, square):
    two = "const %two: f64[] = 2.0\n          " if "pow" in square else ""
    recomposed(
        f"""
        graph g(%x: f64[2, 3, 8], param %w: f64[8]):
          {two}const %eps: f64[] = 1e-06
          %0: f64[2, 3, 8] = {square}
          %1: f64[2, 3, 1] = mean(%0, axes=[-1], keepdim=True)
          %2: f64[2, 3, 1] = add(%1, %eps)
          %3: f64[2, 3, 1] = rsqrt(%2)
          %4: f64[2, 3, 8] = mul(%x, %3)
          %5: f64[2, 3, 8] = mul(%w, %4)
          return %5
        """,
        RMS_NORM,
    )


def test_rms_norm_by_division(recomposed):
    recomposed(
        """
        graph g(%x: f64[2, 3, 8], param %w: f64[8]):
          const %eps: f64[] = 1e-06
          %0: f64[2, 3, 8] = square(%x)
          %1: f64[2, 3, 1] = mean(%0, axes=[2], keepdim=True)
          %2: f64[2, 3, 1] = add(%eps, %1)
          %3: f64[2, 3, 1] = sqrt(%2)
          %4: f64[2, 3, 8] = div(%x, %3)
          %5: f64[2, 3, 8] = mul(%4, %w)
          return %5
        """,
        RMS_NORM,
    )


def test_rms_norm_in_f32_of_half_precision_values(ctx, parse):
    before = parse("""
        graph g(%x: bf16[2, 8], param %w: bf16[8]):
          const %eps: f32[] = 1e-06
          %c: f32[2, 8] = cast(%x, dtype=f32)
          %0: f32[2, 8] = square(%c)
          %1: f32[2, 1] = mean(%0, axes=[-1], keepdim=True)
          %2: f32[2, 1] = add(%1, %eps)
          %3: f32[2, 1] = rsqrt(%2)
          %4: f32[2, 8] = mul(%c, %3)
          %5: bf16[2, 8] = cast(%4, dtype=bf16)
          %6: bf16[2, 8] = mul(%w, %5)
          return %6
    """)
    (node,) = Recompose().run(before, ctx).nodes
    assert (node.op.name, [v.name for v in node.values]) == ("rms_norm", ["x", "w"])


def test_a_mean_over_another_axis_is_no_norm(stays):
    stays("""
        graph g(%x: f64[2, 3, 8]):
          const %eps: f64[] = 1e-06
          %0: f64[2, 3, 8] = square(%x)
          %1: f64[2, 1, 8] = mean(%0, axes=[1], keepdim=True)
          %2: f64[2, 1, 8] = add(%1, %eps)
          %3: f64[2, 1, 8] = rsqrt(%2)
          %4: f64[2, 3, 8] = mul(%x, %3)
          return %4
    """)


@pytest.mark.parametrize(
    "variance",
    [
        "%2: f64[2, 8] = square(%1)\n          %3: f64[2, 1] = mean(%2, axes=[-1], keepdim=True)",
        "%3: f64[2, 1] = var(%x, axes=[-1], correction=0, keepdim=True)",
    ],
    ids=["mean of squares", "var"],
)
@pytest.mark.parametrize(
    "scaling",
    [
        "%5: f64[2, 1] = rsqrt(%4)\n          %6: f64[2, 8] = mul(%1, %5)",
        "%5: f64[2, 1] = sqrt(%4)\n          %6: f64[2, 8] = div(%1, %5)",
    ],
    ids=["rsqrt", "sqrt"],
)
def test_layer_norm(recomposed, variance, scaling):
    recomposed(
        f"""
        graph g(%x: f64[2, 8], param %w: f64[8], param %b: f64[8]):
          const %eps: f64[] = 1e-05
          %0: f64[2, 1] = mean(%x, axes=[-1], keepdim=True)
          %1: f64[2, 8] = sub(%x, %0)
          {variance}
          %4: f64[2, 1] = add(%3, %eps)
          {scaling}
          %7: f64[2, 8] = mul(%6, %w)
          %8: f64[2, 8] = add(%7, %b)
          return %8
        """,
        """
        graph g(%x: f64[2, 8], param %w: f64[8], param %b: f64[8]):
          %0: f64[2, 8] = layer_norm(%x, %w, %b)
          return %0
        """,
    )


def test_softmax(recomposed):
    recomposed(
        """
        graph g(%x: f64[2, 5, 3]):
          %0: f64[2, 1, 3] = amax(%x, axes=[1], keepdim=True)
          %1: f64[2, 5, 3] = sub(%x, %0)
          %2: f64[2, 5, 3] = exp(%1)
          %3: f64[2, 1, 3] = sum(%2, axes=[1], keepdim=True)
          %4: f64[2, 5, 3] = div(%2, %3)
          return %4
        """,
        """
        graph g(%x: f64[2, 5, 3]):
          %0: f64[2, 5, 3] = softmax(%x, axis=1)
          return %0
        """,
    )


INPUTS = "%q: f64[2, 3, 5, 4], %k: f64[2, 3, 6, 4], %v: f64[2, 3, 6, 4], %m: f64[3, 5, 6], %n: f64[2, 1, 1, 6]"


def attention(*lines, result="%9"):
    text = "".join(f"          {line}\n" for line in lines)
    return f"\n        graph g({INPUTS}):\n{text}          return {result}\n"


def test_attention_with_scaled_queries_and_a_mask(recomposed):
    recomposed(
        attention(
            "const %c: f64[] = 0.5",
            "%0: f64[2, 3, 5, 4] = mul(%q, %c)",
            "%1: f64[2, 3, 5, 6] = matmul(%0, %k, trans_b=True)",
            "%2: f64[2, 3, 5, 6] = add(%1, %m)",
            "%3: f64[2, 3, 5, 6] = softmax(%2)",
            "%9: f64[2, 3, 5, 4] = matmul(%3, %v)",
        ),
        attention("%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, %m, scale=0.5)"),
    )


def test_gelu_by_the_complement_of_the_error_function(recomposed):
    """As jax writes it."""
    recomposed(
        f"""
        graph g(%x: f64[2, 8]):
          const %a: f64[] = 0.5
          const %b: f64[] = {0.5**0.5}
          %0: f64[2, 8] = mul(%a, %x)
          %1: f64[2, 8] = neg(%x)
          %2: f64[2, 8] = mul(%1, %b)
          %3: f64[2, 8] = erfc(%2)
          %9: f64[2, 8] = mul(%0, %3)
          return %9
        """,
        """
        graph g(%x: f64[2, 8]):
          %9: f64[2, 8] = gelu(%x)
          return %9
        """,
    )


@pytest.mark.parametrize("turned", [True, False], ids=["transposed", "trans_b"])
def test_attention_whose_values_come_first(ctx, parse, turned):
    lines = ["%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)", "%3: f64[2, 3, 5, 6] = softmax(%1)"]
    lines += ["%4: f64[2, 3, 4, 6] = transpose(%v, perm=[0, 1, 3, 2])"]
    if turned:
        lines += ["%5: f64[2, 3, 6, 5] = transpose(%3, perm=[0, 1, 3, 2])", "%9: f64[2, 3, 4, 5] = matmul(%4, %5)"]
    else:
        lines += ["%9: f64[2, 3, 4, 5] = matmul(%4, %3, trans_b=True)"]
    before = parse(attention(*lines))
    after = Recompose().run(before, ctx)
    assert {node.op.name for node in after.nodes} == {"attention", "transpose"}
    arrays = [np.random.default_rng(n).standard_normal(v.tensor.shape) for n, v in enumerate(before.inputs)]
    assert np.allclose(*(interpret(made, arrays)[0] for made in (before, after)))


def test_attention_with_scaled_scores_and_transposed_keys(recomposed):
    recomposed(
        attention(
            "const %c: f64[] = 2.0",
            "%0: f64[2, 3, 4, 6] = transpose(%k, perm=[0, 1, 3, 2])",
            "%1: f64[2, 3, 5, 6] = matmul(%q, %0)",
            "%2: f64[2, 3, 5, 6] = div(%1, %c)",
            "%3: f64[2, 3, 5, 6] = softmax(%2, axis=3)",
            "%9: f64[2, 3, 5, 4] = matmul(%3, %v)",
        ),
        attention("%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, none, scale=0.5)"),
    )


def filled(number, *further):
    return attention(
        f"const %c: f64[] = {number}",
        "%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)",
        "%2: f64[2, 3, 5, 6] = where(%m, %1, %c)",
        *further,
        "%3: f64[2, 3, 5, 6] = softmax(%2)",
        "%9: f64[2, 3, 5, 4] = matmul(%3, %v)",
    )


def test_scores_that_are_filled_with_a_large_negative_number_are_masked(recomposed):
    """As Keras has it, with 0.7 of the least number."""
    recomposed(
        filled("-2.372671e+38"),
        attention(
            "const %a: f64[] = 0.0",
            "const %c: f64[] = -1e+30",
            "%1: f64[3, 5, 6] = where(%m, %a, %c)",
            "%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, %1, scale=1.0)",
        ),
    )


@pytest.mark.parametrize("number", ["-1000000000.0", "-inf"])
def test_scores_that_are_filled_with_another_number_are_left_alone(stays, number):
    """The sum of such a number and a score is not that number, or has no exponential where a whole row is hidden."""
    stays(filled(number))


def test_a_row_that_a_fill_hides_counts_all_keys_alike(ctx, parse):
    before = parse(filled("-3.4e+38").replace("f64", "f32"))
    after = Recompose().run(before, ctx)
    assert [node.op.name for node in after.nodes] == ["where", "attention"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(value.tensor.shape).astype(np.float32) for value in before.inputs]
    arrays[3] = (arrays[3] > 0).astype(np.float32)
    arrays[3][1, 2] = 0
    expected, made = (interpret(each, arrays)[0] for each in (before, after))
    np.testing.assert_allclose(made, expected, atol=1e-6)
    np.testing.assert_allclose(made[:, 1, 2], arrays[2][:, 1].mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(hidet.compile(after)(*arrays), expected, atol=1e-6)


def test_two_masks_of_attention_are_added(recomposed):
    recomposed(
        attention(
            "%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)",
            "%2: f64[2, 3, 5, 6] = add(%m, %1)",
            "%3: f64[2, 3, 5, 6] = add(%2, %n)",
            "%4: f64[2, 3, 5, 6] = softmax(%3)",
            "%9: f64[2, 3, 5, 4] = matmul(%4, %v)",
        ),
        attention("%1: f64[2, 3, 5, 6] = add(%n, %m)", "%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, %1, scale=1.0)"),
    )


@pytest.mark.parametrize("read", ["%1", "%2", "%3"], ids=["scores", "masked scores", "weights"])
def test_attention_whose_inside_is_read_is_left_alone(stays, read):
    stays(
        attention(
            "%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)",
            "%2: f64[2, 3, 5, 6] = add(%1, %m)",
            "%3: f64[2, 3, 5, 6] = softmax(%2)",
            "%9: f64[2, 3, 5, 4] = matmul(%3, %v)",
            result=f"%9, {read}",
        )
    )


def test_a_softmax_over_queries_is_no_attention(stays):
    stays(
        attention(
            "%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)",
            "%3: f64[2, 3, 5, 6] = softmax(%1, axis=2)",
            "%9: f64[2, 3, 5, 4] = matmul(%3, %v)",
        )
    )


MERGED = [
    "%1: f64[6, 5, 4] = reshape(%q, shape=[6, 5, 4])",
    "%2: f64[6, 6, 4] = reshape(%k, shape=[6, 6, 4])",
    "%3: f64[6, 5, 6] = matmul(%1, %2, trans_b=True)",
    "%4: f64[2, 3, 5, 6] = reshape(%3, shape=[2, 3, 5, 6])",
    "%5: f64[2, 3, 5, 6] = add(%4, %m)",
    "%6: f64[2, 3, 5, 6] = softmax(%5)",
    "%7: f64[6, 5, 6] = reshape(%6, shape=[6, 5, 6])",
    "%8: f64[6, 6, 4] = reshape(%v, shape=[6, 6, 4])",
    "%9: f64[6, 5, 4] = matmul(%7, %8)",
]


def test_attention_whose_products_have_batch_and_heads_merged(recomposed):
    """As torch takes einsum apart."""
    recomposed(
        attention(*MERGED),
        attention(
            "%8: f64[2, 3, 5, 4] = attention(%q, %k, %v, %m, scale=1.0)",
            "%9: f64[6, 5, 4] = reshape(%8, shape=[6, 5, 4])",
        ),
    )


def test_batch_and_heads_that_are_taken_apart_again_stay_apart(recomposed):
    recomposed(
        attention(*MERGED, "%10: f64[2, 3, 5, 4] = reshape(%9, shape=[2, 3, 5, 4])", result="%10"),
        attention("%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, %m, scale=1.0)"),
    )


def test_attention_where_only_scores_are_merged(recomposed):
    values = "%10: f64[2, 3, 6, 4] = neg(%v)"
    recomposed(
        attention(*MERGED[:6], values, "%9: f64[2, 3, 5, 4] = matmul(%6, %10)"),
        attention(values, "%9: f64[2, 3, 5, 4] = attention(%q, %k, %10, %m, scale=1.0)"),
    )


def test_what_is_added_below_a_factor_is_scaled_too(recomposed):
    recomposed(
        attention(
            "const %c: f64[] = 0.5",
            "%1: f64[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)",
            "%2: f64[2, 3, 5, 6] = add(%1, %m)",
            "%3: f64[2, 3, 5, 6] = mul(%2, %c)",
            "%4: f64[2, 3, 5, 6] = softmax(%3)",
            "%9: f64[2, 3, 5, 4] = matmul(%4, %v)",
        ),
        attention(
            "const %c: f64[] = 0.5",
            "%1: f64[3, 5, 6] = mul(%m, %c)",
            "%9: f64[2, 3, 5, 4] = attention(%q, %k, %v, %1, scale=0.5)",
        ),
    )


def test_a_fill_stands_for_what_is_added_below_it(ctx, parse):
    lines = filled("-3.4e+38").replace("where(%m, %1, %c)", "where(%m, %8, %c)")
    lines = lines.replace("          %2:", "          %8: f64[2, 3, 5, 6] = add(%1, %n)\n          %2:")
    before = parse(lines)
    after = Recompose().run(before, ctx)
    assert [node.op.name for node in after.nodes] == ["where", "attention"]
    arrays = [np.random.default_rng(n).standard_normal(v.tensor.shape) for n, v in enumerate(before.inputs)]
    arrays[3] = (arrays[3] > 0).astype(np.float64)
    arrays[4][0, 0, 0, :3] = -np.inf
    np.testing.assert_allclose(*(interpret(made, arrays)[0] for made in (after, before)), atol=1e-9)


def test_scores_that_trade_rows_for_heads_are_no_attention(stays):
    stays(
        attention(
            "%1: f64[6, 5, 4] = reshape(%q, shape=[6, 5, 4])",
            "%2: f64[6, 6, 4] = reshape(%k, shape=[6, 6, 4])",
            "%3: f64[6, 5, 6] = matmul(%1, %2, trans_b=True)",
            "%4: f64[2, 15, 6] = reshape(%3, shape=[2, 15, 6])",
            "%6: f64[2, 15, 6] = softmax(%4)",
            "%7: f64[2, 3, 5, 6] = reshape(%6, shape=[2, 3, 5, 6])",
            "%9: f64[2, 3, 5, 4] = matmul(%7, %v)",
        )
    )


GROUPED = """
        graph g(%q: f64[2, 6, 5, 4], %k: f64[2, 3, 7, 4], %v: f64[2, 3, 7, 4]):
          %0: f64[2, 6, 5, 4] = attention(%q, %k, %v, enable_gqa=True)
          return %0
"""


def test_repeated_heads_are_read_where_they_are(recomposed):
    recomposed(
        """
        graph g(%q: f64[2, 6, 5, 4], %k: f64[2, 3, 7, 4], %v: f64[2, 3, 7, 4]):
          %0: f64[2, 3, 1, 7, 4] = unsqueeze(%k, axes=[2])
          %1: f64[2, 3, 2, 7, 4] = expand(%0, shape=[2, 3, 2, 7, 4])
          %2: f64[2, 6, 7, 4] = reshape(%1, shape=[2, 6, 7, 4])
          %3: f64[2, 6, 7, 4] = repeat_interleave(%v, repeats=2, axis=1)
          %4: f64[2, 6, 5, 4] = attention(%q, %2, %3)
          return %4
        """,
        GROUPED,
    )


def test_heads_repeated_in_another_order_are_left_alone(stays):
    stays("""
        graph g(%q: f64[2, 6, 5, 4], %k: f64[2, 3, 7, 4], %v: f64[2, 3, 7, 4]):
          %0: f64[2, 1, 3, 7, 4] = unsqueeze(%k, axes=[1])
          %1: f64[2, 2, 3, 7, 4] = expand(%0, shape=[2, 2, 3, 7, 4])
          %2: f64[2, 6, 7, 4] = reshape(%1, shape=[2, 6, 7, 4])
          %3: f64[2, 6, 7, 4] = repeat_interleave(%v, repeats=2, axis=1)
          %4: f64[2, 6, 5, 4] = attention(%q, %2, %3)
          return %4
    """)
