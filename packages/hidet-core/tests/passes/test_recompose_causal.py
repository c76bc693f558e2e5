"""Masks of attention that compare positions, and fills of scores that they are told from."""

import numpy as np
import pytest

from hidet.passes.graph.recompose import Recompose
from hidet.testing.interpret import interpret

POSITIONS = [
    "%r: i64[5] = arange(stop=5)",
    "%c: i64[6] = arange(stop=6)",
    "%r1: i64[5, 1] = unsqueeze(%r, axes=[1])",
    "%c1: i64[1, 6] = unsqueeze(%c, axes=[0])",
]
TRIANGLE = ["%ones: f32[9, 9] = full(shape=[9, 9], value=1.0)"]


def attended(lines, mask, inputs=""):
    text = "".join(f"          {line}\n" for line in lines)
    return f"""
        graph g(%q: f64[2, 3, 5, 4], %k: f64[2, 3, 6, 4], %v: f64[2, 3, 6, 4]{inputs}):
{text}          %9: f64[2, 3, 5, 4] = attention(%q, %k, %v, {mask}, scale=0.5)
          return %9
        """


def found_in(text, ctx, parse, same_result):
    before = parse(text)
    after = Recompose().run(before, ctx)
    same_result(before, after)
    (found,) = [node for node in after.nodes if node.op.name == "attention"]
    return found, [node.op.name for node in after.nodes]


@pytest.mark.parametrize(
    "lines",
    [
        [*POSITIONS, "%m: bool[5, 6] = less_equal(%c1, %r1)"],
        [*POSITIONS, "%m: bool[5, 6] = greater_equal(%r1, %c1)"],
        [*POSITIONS, "%0: bool[5, 6] = greater(%c1, %r1)", "%m: bool[5, 6] = logical_not(%0)"],
        [
            *POSITIONS,
            "const %one: i64[] = 1",
            "%0: i64[5, 1] = add(%r1, %one)",
            "%m: bool[5, 6] = less(%c1, %0)",
        ],
        [
            *TRIANGLE,
            "%0: f32[9, 9] = tril(%ones)",
            "%1: f32[5, 6] = slice(%0, starts=[2, 2], stops=[7, 8])",
            "const %z: f32[] = 0.0",
            "%m: bool[5, 6] = not_equal(%1, %z)",
        ],
        [
            *TRIANGLE,
            "%0: f32[9, 9] = triu(%ones, offset=1)",
            "%1: f32[5, 6] = slice(%0, starts=[0, 0], stops=[5, 6])",
            "const %z: f32[] = 0.0",
            "%m: bool[5, 6] = equal(%1, %z)",
        ],
        [*POSITIONS, "%0: bool[5, 6] = less_equal(%c1, %r1)", "%m: bool[1, 1, 5, 6] = reshape(%0, shape=[1, 1, 5, 6])"],
        [
            *POSITIONS,
            "%0: bool[5, 6] = greater(%c1, %r1)",
            "const %z: f64[] = 0.0",
            "const %h: f64[] = -inf",
            "%m: f64[5, 6] = where(%0, %h, %z)",
        ],
        ["%0: f64[5, 6] = full(shape=[5, 6], value=-1e38, dtype=f64)", "%m: f64[5, 6] = triu(%0, offset=1)"],
    ],
)
def test_a_mask_that_lets_rows_see_keys_up_to_their_own_number_is_causal(ctx, parse, same_result, lines):
    found, names = found_in(attended(lines, "%m"), ctx, parse, same_result)
    assert names == ["attention"] and found.attrs["is_causal"] and found.attrs["scale"] == 0.5


@pytest.mark.parametrize(
    "lines",
    [
        [*POSITIONS, "%m: bool[5, 6] = less(%c1, %r1)"],
        [*POSITIONS, "const %one: i64[] = 1", "%0: i64[5, 1] = add(%r1, %one)", "%m: bool[5, 6] = less_equal(%c1, %0)"],
        [*POSITIONS, "%m: bool[5, 6] = greater_equal(%c1, %r1)"],
        [*POSITIONS, "%0: i64[5, 1] = add(%r1, %r1)", "%m: bool[5, 6] = less_equal(%c1, %0)"],
        ["%0: f64[5, 6] = full(shape=[5, 6], value=-100.0, dtype=f64)", "%m: f64[5, 6] = triu(%0, offset=1)"],
        ["%0: f64[5, 6] = full(shape=[5, 6], value=-1e38, dtype=f64)", "%m: f64[5, 6] = triu(%0, offset=2)"],
    ],
)
def test_other_masks_of_positions_stay_masks(ctx, parse, same_result, lines):
    found, _ = found_in(attended(lines, "%m"), ctx, parse, same_result)
    assert not found.attrs["is_causal"] and found.values[3].name == "m"


def test_a_row_of_positions_alone_is_no_causal_mask(ctx, parse, same_result):
    """It says the same to all rows."""
    lines = [*POSITIONS, "const %z: i64[] = 0", "%m: bool[1, 6] = less_equal(%c1, %z)"]
    found, _ = found_in(attended(lines, "%m"), ctx, parse, same_result)
    assert not found.attrs["is_causal"]


def test_what_hides_padding_beside_a_causal_mask_stays(ctx, parse, same_result):
    lines = [
        *POSITIONS,
        "%0: bool[5, 6] = less_equal(%c1, %r1)",
        "const %z: f64[] = 0.0",
        "%1: bool[2, 1, 1, 6] = greater(%n, %z)",
        "%m: bool[2, 1, 5, 6] = logical_and(%0, %1)",
    ]
    found, names = found_in(attended(lines, "%m", ", %n: f64[2, 1, 1, 6]"), ctx, parse, same_result)
    assert names == ["greater", "attention"]
    assert found.attrs["is_causal"] and found.values[3].tensor.shape == (2, 1, 1, 6)


@pytest.mark.parametrize("diagonal, is_causal", [(0, True), (1, False), (-1, False)])
@pytest.mark.parametrize("kind", ["bool", "f16"])
def test_a_mask_that_is_known_as_data_is_looked_at(ctx, parse, kind, diagonal, is_causal):
    flags = np.tri(5, 6, diagonal)
    elements = (flags > 0).ravel() if kind == "bool" else np.where(flags > 0, 0.0, -65504.0).ravel()
    data = str(elements.tolist())
    graph = parse(attended([f"const %m: {kind}[5, 6] = {data}"], "%m"))
    (found,) = Recompose().run(graph, ctx).nodes
    assert found.attrs["is_causal"] == is_causal and len(found.values) == (3 if is_causal else 4)


def test_the_mask_of_transformers_is_causal_whatever_the_length(ctx, parse):
    """It also compares the numbers of packed sequences, which are told from steps of the positions."""
    graph = parse("""
        symbol s: 2..64
        graph g(%q: f64[2, 3, s, 4], %k: f64[2, 3, s, 4], %v: f64[2, 3, s, 4]):
          const %one: i64[] = 1
          %0: i64[s] = arange(stop=dim(s))
          %1: i64[1, s] = unsqueeze(%0, axes=[0])
          %2: i64[2, s] = expand(%1, shape=[2, dim(s)])
          %3: i64[2, 1] = slice(%2, starts=[None, 0], stops=[None, 1])
          %4: i64[2, 1] = sub(%3, %one)
          %5: i64[2, s + 1] = concat(%4, %2, axis=-1)
          %6: i64[2, s] = slice(%5, starts=[None, 0], stops=[None, dim(s)])
          %7: i64[2, s] = slice(%5, starts=[None, 1], stops=[None, dim(s + 1)])
          %8: i64[2, s] = sub(%7, %6)
          %9: bool[2, s] = not_equal(%8, %one)
          %10: i64[2, s] = cast(%9, dtype=i64)
          %11: i64[2, s] = cumsum(%10, axis=-1)
          %12: i64[2] = arange(stop=2)
          %13: i64[2, 1, 1, 1] = reshape(%12, shape=[2, 1, 1, 1])
          %14: i64[1, 1, s, 1] = reshape(%0, shape=[1, 1, dim(s), 1])
          %15: i64[1, 1, 1, s] = reshape(%0, shape=[1, 1, 1, dim(s)])
          %16: i64[2, 1, s, 1] = index(%11, %13, %14)
          %17: i64[2, 1, 1, s] = index(%11, %13, %15)
          %18: bool[2, 1, s, s] = equal(%16, %17)
          %19: i64[2, 1, s, 1] = index(%2, %13, %14)
          %20: i64[2, 1, 1, s] = index(%2, %13, %15)
          %21: bool[2, 1, s, s] = less_equal(%20, %19)
          %22: bool[2, 1, s, s] = bitwise_and(%18, %21)
          %23: f64[2, 3, s, 4] = attention(%q, %k, %v, %22)
          return %23
    """)
    (found,) = Recompose().run(graph, ctx).nodes
    assert found.attrs["is_causal"] and len(found.values) == 3


@pytest.mark.parametrize(
    "lines",
    [
        ["%0: bool[s] = greater_equal(%r, %zero)"],
        ["const %one: i64[] = 1", "%1: i64[s] = add(%r, %one)", "%0: bool[s] = greater(%1, %zero)"],
        ["%1: i64[s] = sub(%zero, %r)", "%0: bool[s] = less_equal(%1, %zero)"],
        ["const %most: i64[] = 63", "%0: bool[s] = less_equal(%r, %most)"],
        ["%1: bool[s] = less(%r, %zero)", "%0: bool[s] = logical_not(%1)"],
    ],
)
def test_a_mask_that_positions_cannot_fail_hides_nothing(ctx, parse, lines):
    """Some versions of transformers compare the numbers of rows with 0, for models that see keys on both sides."""
    text = "".join(f"          {line}\n" for line in lines)
    graph = parse(f"""
        symbol s: 2..64
        graph g(%q: f64[2, 3, s, 4], %k: f64[2, 3, s, 4], %v: f64[2, 3, s, 4]):
          const %zero: i64[] = 0
          %r: i64[s] = arange(stop=dim(s))
{text}          %3: bool[1, 1, s, 1] = reshape(%0, shape=[1, 1, dim(s), 1])
          %4: bool[2, 1, s, s] = expand(%3, shape=[2, 1, dim(s), dim(s)])
          %5: f64[2, 3, s, 4] = attention(%q, %k, %v, %4)
          return %5
    """)
    (found,) = Recompose().run(graph, ctx).nodes
    assert not found.attrs["is_causal"] and len(found.values) == 3


@pytest.mark.parametrize("comparison", ["greater(%r, %zero)", "less_equal(%r, %most)", "less(%r, %zero)"])
def test_a_mask_that_some_or_all_positions_fail_stays(ctx, parse, comparison):
    graph = parse(f"""
        symbol s: 2..64
        graph g(%q: f64[2, 3, s, 4], %k: f64[2, 3, s, 4], %v: f64[2, 3, s, 4]):
          const %zero: i64[] = 0
          const %most: i64[] = 62
          %r: i64[s] = arange(stop=dim(s))
          %0: bool[s] = {comparison}
          %1: bool[s, s] = expand(%0, shape=[dim(s), dim(s)])
          %2: f64[2, 3, s, 4] = attention(%q, %k, %v, %1)
          return %2
    """)
    *_, found = Recompose().run(graph, ctx).nodes
    assert not found.attrs["is_causal"] and len(found.values) == 4


def filled(flags, scores, shape="5, 6", lines=(), dtype="f64", number="-inf"):
    text = "".join(f"          {line}\n" for line in lines)
    return f"""
        graph g(%q: {dtype}[2, 3, 5, 4], %k: {dtype}[2, 3, 6, 4], %v: {dtype}[2, 3, 6, 4], %m: bool[{shape}]):
          const %h: {dtype}[] = {number}
{text}          %1: {dtype}[2, 3, 5, 6] = matmul(%q, %k, trans_b=True)
          %2: {dtype}[2, 3, 5, 6] = where({flags}, {scores})
          %3: {dtype}[2, 3, 5, 6] = softmax(%2)
          %9: {dtype}[2, 3, 5, 4] = matmul(%3, %v)
          return %9
        """


def test_a_fill_with_infinity_is_a_mask_where_each_row_keeps_a_key(ctx, parse, same_result):
    lines = [*POSITIONS, "%0: bool[5, 6] = greater(%c1, %r1)"]
    found, names = found_in(filled("%0", "%h, %1", lines=lines), ctx, parse, same_result)
    assert names == ["attention"] and found.attrs["is_causal"]
    kept = "[True, False, True, True, True]"
    for flags, is_known in ((kept.replace("False", "True"), True), (kept, False)):
        before = parse(filled("%0", "%1, %h", lines=[f"const %0: bool[5, 1] = {flags}"]))
        names = [node.op.name for node in Recompose().run(before, ctx).nodes]
        assert ("attention" in names) == is_known


def test_a_fill_with_infinity_that_may_hide_a_row_is_left_alone(ctx, parse):
    before = parse(filled("%m", "%h, %1"))
    assert Recompose().run(before, ctx) is before


@pytest.mark.parametrize("scores", ["%1, %h", "%h, %1"])
@pytest.mark.parametrize("dtype, number", [("f32", "-3.4028235e+38"), ("f16", "-65504.0")])
def test_a_fill_with_the_least_number_takes_the_place_of_scores_either_way_round(ctx, parse, scores, dtype, number):
    before = parse(filled("%m", scores, dtype=dtype, number=number))
    after = Recompose().run(before, ctx)
    assert [node.op.name for node in after.nodes] == ["where", "attention"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.tensor.shape).astype(dtype.replace("f", "float")) for v in before.inputs[:3]]
    flags = rng.random((5, 6)) > 0.4
    flags[2], flags[3] = True, False
    expected, made = (interpret(each, [*arrays, flags])[0] for each in (before, after))
    np.testing.assert_allclose(made, expected, atol=1e-5 if dtype == "f32" else 5e-3)


def test_terms_may_be_subtracted_from_scores(ctx, parse, same_result):
    _, names = found_in(
        """
        graph g(%q: f64[2, 5, 4], %k: f64[2, 6, 4], %v: f64[2, 6, 4], %m: f64[5, 6]):
          %1: f64[2, 5, 6] = matmul(%q, %k, trans_b=True)
          %2: f64[2, 5, 6] = sub(%1, %m)
          %3: f64[2, 5, 6] = softmax(%2)
          %9: f64[2, 5, 4] = matmul(%3, %v)
          return %9
        """,
        ctx,
        parse,
        same_result,
    )
    assert names == ["neg", "attention"]


def test_scores_that_are_subtracted_are_none(ctx, parse):
    before = parse("""
        graph g(%q: f64[2, 5, 4], %k: f64[2, 6, 4], %v: f64[2, 6, 4], %m: f64[5, 6]):
          %1: f64[2, 5, 6] = matmul(%q, %k, trans_b=True)
          %2: f64[2, 5, 6] = sub(%m, %1)
          %3: f64[2, 5, 6] = softmax(%2)
          %9: f64[2, 5, 4] = matmul(%3, %v)
          return %9
    """)
    assert Recompose().run(before, ctx) is before
