"""One operator, whoever wrote it: the ways in which frameworks and people spell reductions, norms and softmax."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.compute.definition import SUM, compute, reduce, single
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.operator import OperatorSpec
from hidet.passes.graph.recompose import Recompose
from hidet.passes.manager import run_graph_passes
from hidet.testing.interpret import interpret


@pytest.fixture
def recomposed(becomes):
    """`recomposed(before, after)`: checks what becomes of an indented text."""
    return lambda before, after: becomes(Recompose(), before, after)


@pytest.fixture
def stays(recomposed):
    """`stays(text)`: checks that nothing is recognised."""
    return lambda text: recomposed(text, text)


def graph(inputs, lines, result="%9"):
    """The text of a graph of these lines, which may have a size s."""
    size = "        symbol s: 1..64\n" if "s]" in inputs else ""
    indented = "".join(f"          {line}\n" for line in lines)
    return f"\n{size}        graph g({inputs}):\n{indented}          return {result}\n"


ROWS = "%x: f64[2, 8]"


@pytest.mark.parametrize("view", ["unsqueeze(%0, axes=[-1])", "reshape(%0, shape=[2, 1])"])
@pytest.mark.parametrize("fold", ["sum", "amax", "mean", "logsumexp", "norm"])
def test_a_reduction_keeps_its_axes_itself(recomposed, fold, view):
    recomposed(
        graph(ROWS, [f"%0: f64[2] = {fold}(%x, axes=[1])", f"%1: f64[2, 1] = {view}", "%9: f64[2, 8] = sub(%x, %1)"]),
        graph(ROWS, [f"%1: f64[2, 1] = {fold}(%x, axes=[1], keepdim=True)", "%9: f64[2, 8] = sub(%x, %1)"]),
    )


def test_axes_are_kept_through_what_is_element_wise(recomposed):
    recomposed(
        graph(
            ROWS,
            [
                "const %c: f64[] = 0.5",
                "%0: f64[2] = var(%x, axes=[-1])",
                "%1: f64[2] = add(%0, %c)",
                "%2: f64[2] = sqrt(%1)",
                "%9: f64[2, 1] = unsqueeze(%2, axes=[1])",
            ],
        ),
        graph(
            ROWS,
            [
                "const %c: f64[] = 0.5",
                "%0: f64[2, 1] = var(%x, axes=[-1], keepdim=True)",
                "%1: f64[2, 1] = add(%0, %c)",
                "%9: f64[2, 1] = sqrt(%1)",
            ],
        ),
    )


def test_the_value_of_an_extreme_with_an_index_is_the_extreme(recomposed):
    recomposed(
        graph(ROWS, ["%0: f64[2], %1: i64[2] = max_with_index(%x, axis=1)", "%9: f64[2, 1] = unsqueeze(%0, axes=[1])"]),
        graph(ROWS, ["%9: f64[2, 1] = amax(%x, axes=[1], keepdim=True)"]),
    )


@pytest.mark.parametrize(
    "lines, result",
    [
        (["%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2, 1] = unsqueeze(%0, axes=[1])"], "%9, %0"),
        (["%0: f64[2] = sum(%x, axes=[1])", "%9: f64[1, 2] = unsqueeze(%0, axes=[0])"], "%9"),
        (
            ["%0: f64[2], %1: i64[2] = max_with_index(%x, axis=1)", "%9: f64[2, 1] = unsqueeze(%0, axes=[1])"],
            "%9, %1",
        ),
    ],
    ids=["the sum is read", "another axis", "the index is read"],
)
def test_other_reshapes_of_reductions_stay(stays, lines, result):
    stays(graph(ROWS, lines, result))


def test_a_reduction_of_a_plugin_without_axes_stays(ctx):
    def total(x):
        stage = compute("total", x.shape[:1], lambda i: reduce(SUM, x.shape[1:], lambda r: x[i, r]))
        return single((x,), stage)

    operator = OperatorSpec(name="acme.total", inputs=("x",), define=total, family="reduction")
    builder = GraphBuilder({**ctx.registry.operators, operator.name: operator})
    x = builder.input(TensorType(dtypes.f64, (2, 8)), "x")
    whole = builder.build([builder.emit("unsqueeze", builder.emit("acme.total", x), axes=(1,))])
    assert Recompose().run(whole, ctx) is whole


@pytest.mark.parametrize(
    "line", ["div(%0, %n)", "mul(%0, %r)", "mul(%r, %0)"], ids=["quotient", "product", "product the other way"]
)
def test_a_sum_over_a_count_is_a_mean(recomposed, line):
    number = "const %n: f64[] = 24.0" if "%n" in line else f"const %r: f64[] = {1 / 24!r}"
    recomposed(
        graph("%x: f64[2, 3, 8]", [number, "%0: f64[2] = sum(%x, axes=[1, 2])", f"%9: f64[2] = {line}"]),
        graph("%x: f64[2, 3, 8]", ["%9: f64[2] = mean(%x, axes=[1, 2])"]),
    )


def test_a_sum_over_a_size_is_a_mean(recomposed):
    size = "%n: f64[] = full(shape=[], value=dim(s), dtype=f64)"
    recomposed(
        graph("%x: f64[2, s]", [size, "%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2] = div(%0, %n)"]),
        graph("%x: f64[2, s]", ["%9: f64[2] = mean(%x, axes=[1])"]),
    )


def test_a_reciprocal_is_one_of_a_count_as_its_type_rounds_it(ctx, parse):
    text = graph(
        "%x: f16[2, 3000]",
        [
            f"const %r: f16[] = {float(np.float16(1 / 3000))!r}",
            "%0: f16[2] = sum(%x, axes=[1])",
            "%9: f16[2] = mul(%0, %r)",
        ],
    )
    (node,) = Recompose().run(parse(text), ctx).nodes
    assert node.op.name == "mean"


@pytest.mark.parametrize(
    "number, lines, inputs",
    [
        ("7.0", ["%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2] = div(%0, %n)"], ROWS),
        ("8.0", ["%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2] = div(%n, %0)"], ROWS),
        ("8.0", ["%0: f64[] = sum(%x)", "%9: f64[] = div(%0, %n)"], ROWS),
        ("3.0", ["%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2] = div(%0, %n)"], "%x: f64[2, s]"),
    ],
    ids=["count less one", "the other way", "another count", "a size that is not known"],
)
def test_a_sum_over_another_number_stays(stays, number, lines, inputs):
    stays(graph(inputs, [f"const %n: f64[] = {number}", *lines]))


SCALES = {
    "rsqrt": ["%5: f64[2, 1] = rsqrt(%4)", "%6: f64[2, 8] = mul(%1, %5)"],
    "power": ["const %p: f64[] = -0.5", "%5: f64[2, 1] = pow(%4, %p)", "%6: f64[2, 8] = mul(%5, %1)"],
    "over a power": ["const %p: f64[] = 0.5", "%5: f64[2, 1] = pow(%4, %p)", "%6: f64[2, 8] = div(%1, %5)"],
    "reciprocal": ["%50: f64[2, 1] = sqrt(%4)", "%5: f64[2, 1] = reciprocal(%50)", "%6: f64[2, 8] = mul(%1, %5)"],
    "one over": [
        "const %one: f64[] = 1.0",
        "%50: f64[2, 1] = sqrt(%4)",
        "%5: f64[2, 1] = div(%one, %50)",
        "%6: f64[2, 8] = mul(%1, %5)",
    ],
}


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_a_layer_norm_divides_in_any_way(recomposed, scale):
    recomposed(
        graph(
            "%x: f64[2, 8]",
            [
                "const %eps: f64[] = 1e-05",
                "%3: f64[2, 1], %0: f64[2, 1] = var_mean(%x, axes=[-1], correction=0, keepdim=True)",
                "%1: f64[2, 8] = sub(%x, %0)",
                "%4: f64[2, 1] = add(%3, %eps)",
                *scale,
                "%9: f64[2, 8] = neg(%6)",
            ],
        ),
        graph("%x: f64[2, 8]", ["%6: f64[2, 8] = layer_norm(%x, none, none)", "%9: f64[2, 8] = neg(%6)"]),
    )


MEANS = ["%m: f64[2] = mean(%x, axes=[1])", "%0: f64[2, 1] = unsqueeze(%m, axes=[1])", "%1: f64[2, 8] = sub(%x, %0)"]
SQUARES = ["%s: f64[2, 8] = mul(%x, %x)", "%a: f64[2] = mean(%s, axes=[1])", "%n: f64[2] = mul(%m, %m)"]
NORM_END = ["const %eps: f64[] = 1e-05", "%4: f64[2, 1] = add(%v, %eps)", "%5: f64[2, 1] = rsqrt(%4)"]


@pytest.mark.parametrize(
    "variance",
    [
        ["%d: f64[2] = sub(%a, %n)", "%v: f64[2, 1] = unsqueeze(%d, axes=[1])"],
        [
            *("const %z: f64[] = 0.0", "%d: f64[2] = sub(%a, %n)", "%t: f64[2] = maximum(%z, %d)"),
            "%v: f64[2, 1] = unsqueeze(%t, axes=[1])",
        ],
    ],
)
def test_a_variance_may_be_a_difference_of_squares(recomposed, variance):
    """As Flax writes it."""
    lines = [*MEANS, *SQUARES, *variance, *NORM_END, "%6: f64[2, 8] = mul(%1, %5)", "%9: f64[2, 8] = neg(%6)"]
    recomposed(
        graph(ROWS, lines),
        graph(ROWS, ["%6: f64[2, 8] = layer_norm(%x, none, none)", "%9: f64[2, 8] = neg(%6)"]),
    )


@pytest.mark.parametrize("line", ["%n: f64[2] = mul(%m, %a)", "%n: f64[2] = add(%m, %m)"])
def test_a_difference_of_something_else_is_no_variance(ctx, parse, line):
    lines = [*MEANS, *SQUARES[:2], line, "%d: f64[2] = sub(%a, %n)", "%v: f64[2, 1] = unsqueeze(%d, axes=[1])"]
    lines += [*NORM_END, "%9: f64[2, 8] = mul(%1, %5)"]
    made = Recompose().run(parse(graph(ROWS, lines)), ctx)
    assert "layer_norm" not in {node.op.name for node in made.nodes}


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_an_rms_norm_divides_in_any_way(recomposed, scale):
    recomposed(
        graph(
            "%1: f64[2, 8]",
            ["%0: f64[2, 8] = square(%1)", "%4: f64[2, 1] = mean(%0, axes=[1], keepdim=True)", *scale],
            "%6",
        ),
        graph("%1: f64[2, 8]", ["%6: f64[2, 8] = rms_norm(%1, none, eps=0.0)"], "%6"),
    )


CENTRED = ["%0: f64[2, 1] = mean(%x, axes=[-1], keepdim=True)", "%1: f64[2, 8] = sub(%x, %0)"]
VARIANCE = ["%2: f64[2, 8] = mul(%1, %1)", "%3: f64[2, 1] = mean(%2, axes=[-1], keepdim=True)"]
SHIFTED = ["const %eps: f64[] = 1e-05", "%4: f64[2, 1] = add(%3, %eps)", "%5: f64[2, 1] = rsqrt(%4)"]
PARAMETERS = "%x: f64[2, 8], param %w: f64[8], param %b: f64[8]"
LAYER_NORM = graph(PARAMETERS, ["%9: f64[2, 8] = layer_norm(%x, %w, %b)"])


def test_a_layer_norm_is_scaled_by_its_weight_first(recomposed):
    scaled = ["%6: f64[2, 8] = mul(%5, %w)", "%7: f64[2, 8] = mul(%1, %6)", "%9: f64[2, 8] = add(%b, %7)"]
    recomposed(graph(PARAMETERS, [*CENTRED, *VARIANCE, *SHIFTED, *scaled]), LAYER_NORM)


def test_a_layer_norm_is_a_product_and_an_offset(recomposed):
    """As Keras has it, by tf.nn.batch_normalization."""
    parts = [
        "%6: f64[2, 8] = mul(%5, %w)",
        "%7: f64[2, 8] = mul(%x, %6)",
        "%8: f64[2, 8] = mul(%0, %6)",
        "%10: f64[2, 8] = sub(%b, %8)",
        "%9: f64[2, 8] = add(%7, %10)",
    ]
    recomposed(graph(PARAMETERS, [*CENTRED, *VARIANCE, *SHIFTED, *parts]), LAYER_NORM)


@pytest.mark.parametrize("offset", ["%8, %b", "%b, %8"])
def test_a_layer_norm_is_a_product_and_an_offset_with_the_mean_negated(recomposed, offset):
    """As Keras 3 has it."""
    parts = [
        "%6: f64[2, 8] = mul(%5, %w)",
        "%7: f64[2, 8] = mul(%x, %6)",
        "%11: f64[2, 1] = neg(%0)",
        "%8: f64[2, 8] = mul(%11, %6)",
        f"%10: f64[2, 8] = add({offset})",
        "%9: f64[2, 8] = add(%7, %10)",
    ]
    recomposed(graph(PARAMETERS, [*CENTRED, *VARIANCE, *SHIFTED, *parts]), LAYER_NORM)


def test_a_product_and_an_offset_by_another_number_are_no_norm(stays):
    stays(
        graph(
            "%x: f64[2, 8], %s: f64[2, 1], %b: f64[8]",
            [
                "%0: f64[2, 1] = mean(%x, axes=[-1], keepdim=True)",
                "%7: f64[2, 8] = mul(%x, %s)",
                "%8: f64[2, 1] = mul(%0, %s)",
                "%10: f64[2, 8] = sub(%b, %8)",
                "%9: f64[2, 8] = add(%7, %10)",
            ],
        )
    )


def test_a_variance_has_a_difference_of_its_own(recomposed):
    lines = ["%11: f64[2, 8] = sub(%x, %0)", "%6: f64[2, 8] = mul(%11, %5)"]
    recomposed(
        graph("%x: f64[2, 8]", [*CENTRED, *VARIANCE, *SHIFTED, *lines], "%6"),
        graph("%x: f64[2, 8]", ["%9: f64[2, 8] = layer_norm(%x, none, none)"]),
    )


def test_a_layer_norm_is_over_several_axes_with_parameters_that_broadcast(recomposed):
    recomposed(
        graph(
            "%x: f64[2, 3, 8], param %w: f64[1, 3, 8]",
            [
                "const %eps: f64[] = 1e-05",
                "%0: f64[2, 1, 1] = mean(%x, axes=[1, 2], keepdim=True)",
                "%1: f64[2, 3, 8] = sub(%x, %0)",
                "%2: f64[2, 3, 8] = square(%1)",
                "%3: f64[2, 1, 1] = mean(%2, axes=[1, 2], keepdim=True)",
                "%4: f64[2, 1, 1] = add(%3, %eps)",
                "%5: f64[2, 1, 1] = rsqrt(%4)",
                "%6: f64[2, 3, 8] = mul(%1, %5)",
                "%9: f64[2, 3, 8] = mul(%6, %w)",
            ],
        ),
        graph(
            "%x: f64[2, 3, 8], param %w: f64[1, 3, 8]",
            ["%0: f64[3, 8] = reshape(%w, shape=[3, 8])", "%9: f64[2, 3, 8] = layer_norm(%x, %0, none, rank=2)"],
        ),
    )


def test_a_factor_of_rows_is_no_weight(recomposed):
    rows = ["%10: f64[8, 1] = reshape(%w, shape=[8, 1])", "%9: f64[8, 8] = mul(%1, %10)"]
    recomposed(
        graph(
            "%x: f64[8, 8], param %w: f64[8]",
            [
                "%0: f64[8, 8] = square(%x)",
                "%2: f64[8, 1] = mean(%0, axes=[1], keepdim=True)",
                "%3: f64[8, 1] = rsqrt(%2)",
                "%1: f64[8, 8] = mul(%x, %3)",
                *rows,
            ],
        ),
        graph("%x: f64[8, 8], param %w: f64[8]", ["%1: f64[8, 8] = rms_norm(%x, none, eps=0.0)", *rows]),
    )


@pytest.mark.parametrize(
    "variance",
    [
        ["%3: f64[2, 1] = var(%x, axes=[-1], keepdim=True)"],
        ["%2: f64[2, 8] = square(%x)", "%3: f64[2, 1] = mean(%2, axes=[-1], keepdim=True)"],
    ],
    ids=["unbiased", "about zero"],
)
def test_another_variance_is_no_layer_norm(stays, variance):
    stays(graph("%x: f64[2, 8]", [*CENTRED, *variance, *SHIFTED, "%9: f64[2, 8] = mul(%1, %5)"]))


POWERS = [
    "%0: f64[2, 1] = amax(%x, axes=[1], keepdim=True)",
    "%1: f64[2, 8] = sub(%x, %0)",
    "%2: f64[2, 8] = exp(%1)",
    "%3: f64[2, 1] = sum(%2, axes=[-1], keepdim=True)",
]


@pytest.mark.parametrize("inverse", ["reciprocal(%3)", "div(%one, %3)"])
def test_a_softmax_is_a_product_with_an_inverse(recomposed, inverse):
    one = ["const %one: f64[] = 1.0"] if "one" in inverse else []
    recomposed(
        graph(ROWS, [*one, *POWERS, f"%4: f64[2, 1] = {inverse}", "%9: f64[2, 8] = mul(%4, %2)"]),
        graph(ROWS, ["%9: f64[2, 8] = softmax(%x, axis=1)"]),
    )


def test_a_softmax_takes_the_largest_with_its_index(recomposed):
    largest = "%0: f64[2, 1], %10: i64[2, 1] = max_with_index(%x, axis=-1, keepdim=True)"
    recomposed(
        graph(ROWS, [largest, *POWERS[1:], "%9: f64[2, 8] = div(%2, %3)"]),
        graph(ROWS, ["%9: f64[2, 8] = softmax(%x, axis=1)"]),
    )


def test_a_log_softmax_is_a_difference(recomposed):
    recomposed(
        graph(ROWS, [*POWERS, "%4: f64[2, 1] = log(%3)", "%9: f64[2, 8] = sub(%1, %4)"]),
        graph(ROWS, ["%9: f64[2, 8] = log_softmax(%x, axis=1)"]),
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["%2: f64[2, 8] = exp(%x)", POWERS[3], "%9: f64[2, 8] = div(%2, %3)"],
        [*POWERS, "%9: f64[2, 8] = div(%3, %2)"],
        [POWERS[0].replace("amax", "amin"), *POWERS[1:], "%9: f64[2, 8] = div(%2, %3)"],
    ],
    ids=["overflow gives NaN", "the other way", "below the smallest"],
)
def test_what_only_looks_like_a_softmax_stays(stays, lines):
    stays(graph(ROWS, lines))


JAX_SOFTMAX = [
    "const %low: f64[] = -inf",
    "%10: f64[2, 3, 5] = amax({scores}, axes=[3])",
    "%11: f64[2, 3, 5] = expand(%low, shape=[2, 3, 5])",
    "%12: f64[2, 3, 5] = maximum(%11, %10)",
    "%13: f64[2, 3, 5, 1] = reshape(%12, shape=[2, 3, 5, 1])",
    "%14: f64[2, 3, 5, 6] = expand(%13, shape=[2, 3, 5, 6])",
    "%15: f64[2, 3, 5, 6] = sub({scores}, %14)",
    "%16: f64[2, 3, 5, 6] = exp(%15)",
    "%17: f64[2, 3, 5] = sum(%16, axes=[3])",
    "%18: f64[2, 3, 5, 1] = reshape(%17, shape=[2, 3, 5, 1])",
    "%19: f64[2, 3, 5, 6] = expand(%18, shape=[2, 3, 5, 6])",
    "%20: f64[2, 3, 5, 6] = div(%16, %19)",
]
ATTENTION_INPUTS = "%q: f64[2, 3, 5, 4], %k: f64[2, 3, 6, 4], %v: f64[2, 3, 6, 4]"


def names_after_all_passes(text, ctx, parse, same_result):
    """Operators that are left of a graph, which computes the same as before."""
    before = parse(text)
    after = run_graph_passes(before, ctx)
    same_result(before, after)
    return [node.op.name for node in after.nodes]


def test_a_softmax_of_a_number_is_no_attention(stays):
    """Seed 7100054 of the random torch programs: a softmax of rank zero has no last axis."""
    lines = [
        "%0: f64[] = softmax(%x, axis=0)",
        "%1: f64[1, 1] = reshape(%0, shape=[1, 1])",
        "%9: f64[1, 3] = matmul(%1, %v)",
    ]
    stays(graph("%x: f64[], %v: f64[1, 3]", lines))


@pytest.mark.parametrize("place", ["queries", "keys", "scores"])
def test_attention_as_jax_writes_it(ctx, parse, same_result, place):
    q, k, scores = ("%30" if place == p else name for p, name in (("queries", "%q"), ("keys", "%k"), ("scores", "%1")))
    shapes = {"queries": "[2, 3, 5, 4]", "keys": "[2, 3, 6, 4]", "scores": "[2, 3, 5, 6]"}
    source = {"queries": "%q", "keys": "%k", "scores": "%1"}[place]
    scale = ["const %c: f64[] = 0.5", f"%30: f64{shapes[place]} = mul({source}, %c)"]
    product = [f"%1: f64[2, 3, 5, 6] = matmul({q}, {k}, trans_b=True)"]
    lines = [*product, *scale] if place == "scores" else [*scale, *product]
    softmax = [line.format(scores=scores) for line in JAX_SOFTMAX]
    text = graph(ATTENTION_INPUTS, [*lines, *softmax, "%9: f64[2, 3, 5, 4] = matmul(%20, %v)"])
    assert names_after_all_passes(text, ctx, parse, same_result) == ["attention"]


def test_a_layer_norm_as_jax_writes_it(ctx, parse, same_result):
    text = graph(
        PARAMETERS,
        [
            "const %n: f64[] = 8.0",
            "%0: f64[2] = sum(%x, axes=[1])",
            "%1: f64[2, 1] = reshape(%0, shape=[2, 1])",
            "%2: f64[2, 1] = div(%1, %n)",
            "%3: f64[2, 8] = expand(%2, shape=[2, 8])",
            "%4: f64[2, 8] = sub(%x, %3)",
            "%5: f64[2, 8] = square(%4)",
            "%6: f64[2] = sum(%5, axes=[1])",
            "%7: f64[2, 1] = reshape(%6, shape=[2, 1])",
            "%8: f64[2, 1] = div(%7, %n)",
            "const %eps: f64[] = 1e-05",
            "%10: f64[2, 1] = add(%8, %eps)",
            "%11: f64[2, 1] = rsqrt(%10)",
            "%12: f64[2, 8] = expand(%2, shape=[2, 8])",
            "%13: f64[2, 8] = sub(%x, %12)",
            "%14: f64[2, 8] = expand(%11, shape=[2, 8])",
            "%15: f64[1, 8] = reshape(%w, shape=[1, 8])",
            "%16: f64[2, 8] = expand(%15, shape=[2, 8])",
            "%17: f64[2, 8] = mul(%14, %16)",
            "%18: f64[2, 8] = mul(%13, %17)",
            "%19: f64[1, 8] = reshape(%b, shape=[1, 8])",
            "%20: f64[2, 8] = expand(%19, shape=[2, 8])",
            "%9: f64[2, 8] = add(%18, %20)",
        ],
    )
    assert names_after_all_passes(text, ctx, parse, same_result) == ["layer_norm"]


SPECIAL = np.array(
    [[1, 2, 3, 4], [np.nan, 0, 1, 2], [np.inf, 0, 1, 2], [-np.inf, 0, 1, 2], [-np.inf] * 4, [3, 3, 3, 3]]
)


@pytest.mark.parametrize(
    "lines, name",
    [
        ([*POWERS, "%4: f64[2, 1] = reciprocal(%3)", "%9: f64[2, 8] = mul(%4, %2)"], "softmax"),
        ([*POWERS, "%4: f64[2, 1] = log(%3)", "%9: f64[2, 8] = sub(%1, %4)"], "log_softmax"),
        ([*CENTRED, *VARIANCE, "%5: f64[2, 1] = rsqrt(%3)", "%9: f64[2, 8] = mul(%1, %5)"], "layer_norm"),
        (
            [
                *CENTRED,
                *VARIANCE,
                "%5: f64[2, 1] = rsqrt(%3)",
                "%6: f64[2, 8] = mul(%x, %5)",
                "%7: f64[2, 1] = mul(%0, %5)",
                "%8: f64[2, 8] = sub(%x, %7)",
                "%9: f64[2, 8] = add(%6, %8)",
            ],
            "layer_norm",
        ),
        (["const %n: f64[] = 0.125", "%0: f64[2] = sum(%x, axes=[1])", "%9: f64[2] = mul(%0, %n)"], "mean"),
    ],
    ids=["softmax", "log_softmax", "layer_norm", "layer_norm of parts", "mean"],
)
def test_nan_and_infinities_stay_where_they_are(ctx, parse, lines, name):
    text = graph(ROWS, lines).replace("[2, 8]", "[6, 4]").replace("[2, 1]", "[6, 1]").replace("[2]", "[6]")
    before = parse(text.replace("0.125", "0.25"))
    after = Recompose().run(before, ctx)
    assert name in [node.op.name for node in after.nodes]
    np.testing.assert_allclose(interpret(after, [SPECIAL])[0], interpret(before, [SPECIAL])[0], rtol=1e-12)
