"""Batch norms folded into the convolution or linear layer before them."""

import pytest

from hidet.passes.graph.fold_conv_batch_norm import FoldConvBatchNorm

WEIGHT = "const %w: f64[4, 2, 1, 1] = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0, 2.0, 1.5]"
NORM = """const %m: f64[4] = [0.5, -1.0, 2.0, 0.25]
          const %positive: f64[4] = [0.5, 1.0, 2.0, 0.25]
          const %g: f64[4] = [1.5, -1.0, 2.0, 0.75]
          const %b: f64[4] = [0.5, 1.0, -2.0, 0.25]"""


def test_scale_goes_into_the_weight_and_shift_into_the_bias(becomes):
    becomes(
        FoldConvBatchNorm(),
        f"""
        graph g(%x: f64[1, 2, 5, 5]):
          {WEIGHT}
          const %c: f64[4] = [1.0, 2.0, 3.0, 4.0]
          {NORM}
          %0: f64[1, 4, 5, 5] = conv(%x, %w, %c)
          %1: f64[1, 4, 5, 5] = batch_norm(%0, %m, %positive, %g, %b, eps=0.001)
          return %1
        """,
        f"""
        graph g(%x: f64[1, 2, 5, 5]):
          {WEIGHT}
          const %c: f64[4] = [1.0, 2.0, 3.0, 4.0]
          {NORM}
          %0: f64[4] = batch_norm_scale(%positive, %g, eps=0.001)
          %1: f64[4] = batch_norm_shift(%m, %0, %c, %b, dtype=f64)
          %2: f64[4, 2, 1, 1] = scale_filters(%w, %0)
          %3: f64[1, 4, 5, 5] = conv(%x, %2, %1)
          return %3
        """,
    )


@pytest.mark.parametrize("absent", ["none, none", "%g, none", "none, %b"])
def test_absent_weights_and_biases_count_as_one_and_zero(ctx, parse, same_result, absent):
    graph = parse(f"""
        graph g(%x: f64[2, 2, 5]):
          {WEIGHT.replace(", 1, 1]", ", 1]")}
          {NORM}
          %0: f64[2, 4, 5] = conv(%x, %w, none)
          %1: f64[2, 4, 5] = batch_norm(%0, %m, %positive, {absent}, eps=0.001)
          return %1
    """)
    after = FoldConvBatchNorm().run(graph, ctx)
    assert "batch_norm" not in [node.op.name for node in after.nodes]
    same_result(graph, after)


def test_statistics_in_f32_fold_into_half_precision_weights(ctx, parse):
    graph = parse(f"""
        graph g(%x: bf16[1, 2, 5, 5]):
          {WEIGHT.replace("f64", "bf16")}
          {NORM.replace("f64", "f32")}
          %0: bf16[1, 4, 5, 5] = conv(%x, %w)
          %1: bf16[1, 4, 5, 5] = batch_norm(%0, %m, %positive, %g, %b)
          return %1
    """)
    *_, conv = FoldConvBatchNorm().run(graph, ctx).nodes
    assert [value.tensor.dtype.short for value in conv.values] == ["bf16", "bf16", "bf16"]


@pytest.mark.parametrize(
    "lines, result",
    [
        (
            [
                "%0: f64[1, 4, 5, 5] = conv(%x, %w)",
                "%1: f64[1, 4, 5, 5] = batch_norm(%0, %m, %positive, %g, %b)",
            ],
            "%1, %0",
        ),
        (
            [
                "%0: f64[4, 2, 1, 1] = mul(%w, %y)",
                "%2: f64[1, 4, 5, 5] = conv(%x, %0)",
                "%1: f64[1, 4, 5, 5] = batch_norm(%2, %m, %positive, %g, %b)",
            ],
            "%1",
        ),
    ],
    ids=["the convolution is read by others", "the weight is computed"],
)
def test_other_convolutions_are_left_alone(becomes, lines, result):
    body = "".join(f"          {line}\n" for line in lines)
    inputs = "%x: f64[1, 2, 5, 5], %y: f64[4, 2, 1, 1]"
    text = f"\n        graph g({inputs}):\n          {WEIGHT}\n          {NORM}\n{body}          return {result}\n"
    becomes(FoldConvBatchNorm(), text, text)


def test_weights_that_may_change_between_calls_are_left_alone(becomes):
    inputs = "param %m: f64[4], param %positive: f64[4], param %g: f64[4], param %b: f64[4]"
    text = f"""
        graph g(%x: f64[1, 2, 5, 5], param %w: f64[4, 2, 1, 1], {inputs}):
          %0: f64[1, 4, 5, 5] = conv(%x, %w)
          %1: f64[1, 4, 5, 5] = batch_norm(%0, %m, %positive, %g, %b)
          return %1
        """
    becomes(FoldConvBatchNorm(), text, text)
