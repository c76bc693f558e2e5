"""Simplification, rule by rule. Every example is also run through the interpreter before and after."""

from types import SimpleNamespace

import numpy as np
import pytest

from hidet import dtypes
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators
from hidet.passes.graph.move_views import broadcast_after_reshape
from hidet.passes.graph.simplify import Simplify, holds_all
from hidet.testing.interpret import interpret


@pytest.fixture
def simplified(becomes):
    """`simplified(before, after)`: checks what becomes of an indented text."""
    return lambda before, after: becomes(Simplify(), before, after)


def body(lines, result="%9", inputs="%x: f64[2, 3, 4]"):
    """A graph of the given lines."""
    indented = "".join(f"          {line}\n" for line in lines)
    return f"\n        graph g({inputs}):\n{indented}          return {result}\n"


@pytest.mark.parametrize(
    "line",
    [
        "reshape(%x, shape=[2, 3, 4])",
        "transpose(%x, perm=[0, 1, 2])",
        "slice(%x, starts=[None, 0, None], stops=[None, 3, 100])",
        "expand(%x, shape=[2, -1, 4])",
        "pad(%x, pads=[[0, 0], [0, 0], [0, 0]])",
        "flip(%x, axes=[])",
        "cast(%x, dtype=f64)",
        "concat(%x)",
        "copy(%x)",
        "positive(%x)",
    ],
)
def test_operators_that_do_nothing_disappear(simplified, line):
    simplified(body([f"%1: f64[2, 3, 4] = {line}", "%9: f64[2, 3, 4] = neg(%1)"]), body(["%9: f64[2, 3, 4] = neg(%x)"]))


def test_a_copy_that_is_returned_stays(simplified):
    text = body(["%1: f64[2, 3, 4] = neg(%x)", "%2: f64[2, 3, 4] = copy(%1)"], "%1, %2")
    simplified(text, text)


def test_a_copy_that_is_returned_as_a_view_stays(simplified):
    text = body(
        ["%1: f64[2, 3, 4] = neg(%x)", "%2: f64[2, 3, 4] = copy(%1)", "%3: f64[6, 4] = reshape(%2, shape=[6, 4])"],
        "%1, %3",
    )
    simplified(text, text)


def test_an_axis_of_extent_one_may_be_read_at_zero(simplified):
    simplified(
        body(["%1: f64[1] = slice(%x, starts=[0], stops=[7])", "%9: f64[1] = neg(%1)"], inputs="%x: f64[1]"),
        body(["%9: f64[1] = neg(%x)"], inputs="%x: f64[1]"),
    )


def test_transposes_merge(simplified):
    simplified(
        body(["%1: f64[3, 4, 2] = transpose(%x, perm=[1, 2, 0])", "%9: f64[4, 3, 2] = transpose(%1, perm=[1, 0, 2])"]),
        body(["%1: f64[4, 3, 2] = transpose(%x, perm=[2, 1, 0])"], "%1"),
    )


def test_inverse_transposes_vanish(simplified):
    simplified(
        body(
            [
                "%1: f64[3, 4, 2] = transpose(%x, perm=[1, 2, 0])",
                "%2: f64[2, 3, 4] = transpose(%1, perm=[2, 0, 1])",
                "%9: f64[2, 3, 4] = neg(%2)",
            ]
        ),
        body(["%9: f64[2, 3, 4] = neg(%x)"]),
    )


def test_a_transpose_of_axes_of_extent_one_is_a_reshape(simplified):
    simplified(
        body(
            ["%1: f64[3, 1, 4] = transpose(%x, perm=[1, 0, 2])", "%9: f64[12] = reshape(%1, shape=[12])"],
            inputs="%x: f64[1, 3, 4]",
        ),
        body(["%0: f64[12] = reshape(%x, shape=[12])"], "%0", "%x: f64[1, 3, 4]"),
    )


def test_views_that_regroup_axes_merge(simplified):
    simplified(
        body(
            [
                "%1: f64[6, 4] = flatten(%x, start=0, end=1)",
                "%2: f64[6, 1, 4] = unsqueeze(%1, axes=[1])",
                "%9: f64[24] = reshape(%2, shape=[-1])",
            ]
        ),
        body(["%11: f64[24] = reshape(%x, shape=[24])"], "%11"),
    )


def test_expands_merge(simplified):
    simplified(
        body(
            ["%1: f64[2, 4] = expand(%x, shape=[2, 4])", "%9: f64[3, 2, 4] = expand(%1, shape=[3, 2, 4])"],
            inputs="%x: f64[1, 4]",
        ),
        body(["%0: f64[3, 2, 4] = expand(%x, shape=[3, 2, 4])"], "%0", "%x: f64[1, 4]"),
    )


def test_casts_merge_where_the_inner_one_loses_nothing(simplified):
    simplified(
        body(["%1: f32[4] = cast(%x, dtype=f32)", "%9: bf16[4] = cast(%1, dtype=bf16)"], inputs="%x: f16[4]"),
        body(["%0: bf16[4] = cast(%x, dtype=bf16)"], "%0", "%x: f16[4]"),
    )


def test_a_cast_that_rounds_stays(simplified):
    text = body(["%1: bf16[4] = cast(%x, dtype=bf16)", "%9: f32[4] = cast(%1, dtype=f32)"], inputs="%x: f32[4]")
    simplified(text, text)


@pytest.mark.parametrize(
    "wide, narrow, holds",
    [
        ("f32", "f16", True),
        ("f32", "bf16", True),
        ("bf16", "f16", False),
        ("f16", "bf16", False),
        ("f64", "i32", True),
        ("f32", "i32", False),
        ("f32", "i16", True),
        ("i64", "u32", True),
        ("u64", "i8", False),
        ("u8", "bool", True),
        ("bool", "u8", False),
        ("f32", "f64", False),
    ],
)
def test_which_types_hold_which(wide, narrow, holds):
    assert holds_all(dtypes.dtype(wide), dtypes.dtype(narrow)) is holds


@pytest.mark.parametrize(
    "line, number",
    [("mul(%c, %x)", 1.0), ("div(%x, %c)", 1.0), ("pow(%x, %c)", 1.0), ("sub(%x, %c)", 0.0), ("add(%x, %c)", -0.0)],
)
def test_arithmetic_with_neutral_numbers_disappears(simplified, line, number):
    simplified(
        body([f"const %c: f64[] = {number}", f"%1: f64[2, 3, 4] = {line}", "%9: f64[2, 3, 4] = neg(%1)"]),
        body(["%9: f64[2, 3, 4] = neg(%x)"]),
    )


@pytest.mark.parametrize("line, number", [("add(%x, %c)", 0.0), ("sub(%x, %c)", -0.0), ("div(%c, %x)", 1.0)])
def test_arithmetic_that_may_change_a_sign_of_zero_stays(simplified, line, number):
    text = body([f"const %c: f64[] = {number}", f"%1: f64[2, 3, 4] = {line}", "%9: f64[2, 3, 4] = neg(%1)"])
    simplified(text, text)


@pytest.mark.parametrize(
    "line, dtype, number",
    [
        ("maximum(%x, %c)", "f64", "-inf"),
        ("maximum(%c, %x)", "f16", "-inf"),
        ("minimum(%x, %c)", "bf16", "inf"),
        ("maximum(%x, %c)", "i32", -(2**31)),
        ("minimum(%c, %x)", "u8", 255),
    ],
)
def test_a_limit_that_no_number_is_beyond_disappears(simplified, line, dtype, number):
    simplified(
        body(
            [f"const %c: {dtype}[] = {number}", f"%1: {dtype}[3] = {line}", f"%9: {dtype}[3] = mul(%1, %1)"],
            inputs=f"%x: {dtype}[3]",
        ),
        body([f"%9: {dtype}[3] = mul(%x, %x)"], inputs=f"%x: {dtype}[3]"),
    )


@pytest.mark.parametrize(
    "line, number", [("maximum(%x, %c)", "inf"), ("minimum(%x, %c)", "-inf"), ("fmax(%x, %c)", "-inf")]
)
def test_a_limit_that_changes_numbers_or_nan_stays(simplified, line, number):
    text = body([f"const %c: f64[] = {number}", f"%1: f64[2, 3, 4] = {line}", "%9: f64[2, 3, 4] = neg(%1)"])
    simplified(text, text)


def test_nan_and_zeros_outlive_a_limit_that_disappears(ctx, parse):
    inputs = "%x: f32[5]"
    graph = parse(
        body(["const %c: f32[] = -inf", "%1: f32[5] = maximum(%x, %c)", "%9: f32[5] = neg(%1)"], inputs=inputs)
    )
    simple = Simplify().run(graph, ctx)
    assert [node.op.name for node in simple.nodes] == ["neg"]
    x = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf], np.float32)
    before, after = (interpret(g, [x])[0] for g in (graph, simple))
    assert np.array_equal(before, after, equal_nan=True)
    assert np.array_equal(np.signbit(before[1:]), np.signbit(after[1:]))


def test_operators_broadcast_what_they_read_themselves(simplified):
    inputs = "%x: f64[2, 3, 4], %y: f64[2, 1, 1], %z: f64[4]"
    simplified(
        body(
            [
                "%0: f64[2, 3, 4] = expand(%y, shape=[2, 3, 4])",
                "%1: f64[2, 3, 4] = sub(%x, %0)",
                "%2: f64[2, 3, 4] = expand(%z, shape=[2, 3, 4])",
                "%9: f64[2, 3, 4] = maximum(%2, %1)",
            ],
            inputs=inputs,
        ),
        body(["%1: f64[2, 3, 4] = sub(%x, %y)", "%9: f64[2, 3, 4] = maximum(%z, %1)"], inputs=inputs),
    )


def test_one_operand_keeps_the_shape_of_the_result(simplified):
    inputs = "%y: f64[2, 1], %z: f64[2, 1]"
    simplified(
        body(
            [
                "%0: f64[2, 4] = expand(%y, shape=[2, 4])",
                "%1: f64[2, 4] = expand(%z, shape=[2, 4])",
                "%9: f64[2, 4] = sub(%0, %1)",
            ],
            inputs=inputs,
        ),
        body(["%1: f64[2, 4] = expand(%z, shape=[2, 4])", "%9: f64[2, 4] = sub(%y, %1)"], inputs=inputs),
    )


def test_what_is_no_element_wise_operator_reads_what_was_expanded(simplified):
    inputs = "%x: f64[3, 4], %y: f64[1, 4]"
    text = body(["%0: f64[3, 4] = expand(%y, shape=[3, 4])", "%9: f64[6, 4] = concat(%x, %0, axis=0)"], inputs=inputs)
    simplified(text, text)


def test_a_neutral_number_that_broadcasts_stays(simplified):
    text = body(["const %c: f64[1] = [1.0]", "%1: f64[1] = mul(%x, %c)", "%9: f64[1] = neg(%1)"], inputs="%x: f64[]")
    simplified(text, text)


def test_rows_are_split_before_a_product_and_what_follows_it(simplified):
    simplified(
        """
        graph g(%x: f64[2, 3, 4], param %w: f64[4, 5], param %b: f64[5], %r: f64[2, 3, 5]):
          %1: f64[6, 4] = reshape(%x, shape=[6, 4])
          %2: f64[6, 5] = matmul(%1, %w)
          %3: f64[6, 5] = add(%2, %b)
          %4: f64[2, 3, 5] = reshape(%3, shape=[2, 3, 5])
          %5: f64[2, 3, 5] = add(%4, %r)
          return %5
        """,
        """
        graph g(%x: f64[2, 3, 4], param %w: f64[4, 5], param %b: f64[5], %r: f64[2, 3, 5]):
          %12: f64[2, 3, 5] = matmul(%x, %w)
          %10: f64[2, 3, 5] = add(%12, %b)
          %5: f64[2, 3, 5] = add(%10, %r)
          return %5
        """,
    )


def test_rows_of_a_batch_of_one_are_split_as_well(simplified):
    simplified(
        """
        graph g(%x: f64[1, 3, 4], param %w: f64[4, 5], param %b: f64[5], %r: f64[1, 3, 5]):
          %1: f64[3, 4] = reshape(%x, shape=[3, 4])
          %2: f64[3, 5] = matmul(%1, %w)
          %3: f64[3, 5] = add(%2, %b)
          %4: f64[1, 3, 5] = reshape(%3, shape=[1, 3, 5])
          %5: f64[1, 3, 5] = add(%4, %r)
          return %5
        """,
        """
        graph g(%x: f64[1, 3, 4], param %w: f64[4, 5], param %b: f64[5], %r: f64[1, 3, 5]):
          %12: f64[1, 3, 5] = matmul(%x, %w)
          %10: f64[1, 3, 5] = add(%12, %b)
          %5: f64[1, 3, 5] = add(%10, %r)
          return %5
        """,
    )


def test_heads_that_are_merged_with_the_batch_and_split_again_are_views(simplified):
    simplified(
        """
        graph g(%x: f64[7, 2, 12]):
          %1: f64[7, 6, 4] = reshape(%x, shape=[7, 6, 4])
          %2: f64[6, 7, 4] = transpose(%1, perm=[1, 0, 2])
          %3: f64[2, 3, 7, 4] = reshape(%2, shape=[2, 3, 7, 4])
          %4: f64[2, 3, 7, 4] = neg(%3)
          return %4
        """,
        """
        graph g(%x: f64[7, 2, 12]):
          %7: f64[7, 2, 3, 4] = reshape(%x, shape=[7, 2, 3, 4])
          %8: f64[2, 3, 7, 4] = transpose(%7, perm=[1, 2, 0, 3])
          %4: f64[2, 3, 7, 4] = neg(%8)
          return %4
        """,
    )


def test_rows_stay_flat_for_another_reader_of_the_product(simplified):
    text = """
        graph g(%x: f64[6, 4], param %w: f64[4, 5]):
          %2: f64[6, 5] = matmul(%x, %w)
          %4: f64[2, 3, 5] = reshape(%2, shape=[2, 3, 5])
          %5: f64[6, 5] = neg(%2)
          return %4, %5
        """
    simplified(text, text)


def test_a_reshape_moves_past_a_sum_to_the_broadcast_side(simplified):
    simplified(
        """
        graph g(%x: f64[6, 3, 4, 4], %m: f64[6, 4, 4]):
          %1: f64[1, 6, 3, 4, 4] = reshape(%x, shape=[1, 6, 3, 4, 4])
          %2: f64[6, 1, 4, 4] = unsqueeze(%m, axes=[1])
          %3: f64[1, 6, 3, 4, 4] = add(%1, %2)
          %4: f64[6, 3, 4, 4] = reshape(%3, shape=[6, 3, 4, 4])
          %5: f64[6, 3, 4, 4] = neg(%4)
          return %5
        """,
        """
        graph g(%x: f64[6, 3, 4, 4], %m: f64[6, 4, 4]):
          %2: f64[6, 1, 4, 4] = reshape(%m, shape=[6, 1, 4, 4])
          %7: f64[6, 3, 4, 4] = add(%x, %2)
          %5: f64[6, 3, 4, 4] = neg(%7)
          return %5
        """,
    )


@pytest.mark.parametrize(
    "shape, whole, target, expected",
    [
        ((4,), (2, 3, 4), (6, 4), (4,)),
        ((2, 3, 4), (2, 3, 4), (6, 4), (6, 4)),
        ((2, 1, 4), (2, 3, 4), (6, 4), None),
        ((1, 1, 4), (2, 3, 4), (6, 2, 2), (2, 2)),
        ((), (2, 3), (6,), ()),
        ((0, 3), (0, 3), (0,), None),
    ],
)
def test_shapes_of_operands_broadcast_after_a_reshape(shape, whole, target, expected):
    assert broadcast_after_reshape(shape, whole, target) == expected


def test_an_update_of_a_part_of_a_part_is_one_update(simplified):
    simplified(
        """
        graph g(%cache: f64[2, 4, 8, 5], %row: f64[4, 1, 5]):
          %0: f64[4, 8, 5] = select(%cache, axis=0, index=1)
          %1: f64[4, 8, 5] = slice(%0, starts=[None, 0, None], stops=[None, 8, None])
          %2: f64[4, 8, 5] = slice_scatter(%1, %row, starts=[None, 3, None], stops=[None, 4, None])
          %3: f64[4, 8, 5] = slice_scatter(%0, %2, starts=[None, None, None], stops=[None, None, None])
          %4: f64[2, 4, 8, 5] = select_scatter(%cache, %3, axis=0, index=1)
          return %4
          mutates 0 <- 0
        """,
        """
        graph g(%cache: f64[2, 4, 8, 5], %row: f64[4, 1, 5]):
          %5: f64[1, 4, 1, 5] = unsqueeze(%row, axes=[0])
          %6: f64[2, 4, 8, 5] = slice_scatter(%cache, %5, starts=[1, 0, 3, 0], stops=[2, 4, 4, 5], steps=[1, 1, 1, 1])
          return %6
          mutates 0 <- 0
        """,
    )


def test_steps_of_updates_multiply(simplified):
    simplified(
        """
        graph g(%x: f64[20], %rows: f64[3]):
          %0: f64[9] = slice(%x, starts=[1], stops=[19], steps=[2])
          %1: f64[9] = slice_scatter(%0, %rows, starts=[2], stops=[9], steps=[3])
          %2: f64[20] = slice_scatter(%x, %1, starts=[1], stops=[19], steps=[2])
          return %2
        """,
        """
        graph g(%x: f64[20], %rows: f64[3]):
          %3: f64[20] = slice_scatter(%x, %rows, starts=[5], stops=[18], steps=[6])
          return %3
        """,
    )


def test_an_update_whose_part_comes_from_elsewhere_stays(simplified):
    text = """
        graph g(%x: f64[20], %y: f64[20], %rows: f64[2]):
          %0: f64[4] = slice(%y, starts=[1], stops=[5])
          %1: f64[4] = slice_scatter(%0, %rows, starts=[0], stops=[2])
          %2: f64[20] = slice_scatter(%x, %1, starts=[1], stops=[5])
          return %2
        """
    simplified(text, text)


def test_an_update_of_everything_is_what_it_is_updated_with(simplified):
    simplified(
        body(
            [
                "%0: f64[1, 4] = select_scatter(%x, %y, axis=0, index=0)",
                "%9: f64[1, 4] = neg(%0)",
            ],
            inputs="%x: f64[1, 4], %y: f64[4]",
        ),
        body(
            ["%10: f64[1, 4] = unsqueeze(%y, axes=[0])", "%9: f64[1, 4] = neg(%10)"], inputs="%x: f64[1, 4], %y: f64[4]"
        ),
    )


def test_an_output_keeps_its_layout(simplified):
    simplified(
        """
        graph g(%x: f64[2, 3, 4]):
          %1: f64[6, 4] = reshape(%x, shape=[6, 4])
          %2: f64[3, 8]{1, 3} = reshape(%1, shape=[3, 8])
          return %2
        """,
        """
        graph g(%x: f64[2, 3, 4]):
          %3: f64[3, 8]{1, 3} = reshape(%x, shape=[3, 8])
          return %3
        """,
    )


def test_axes_of_extent_one_may_come_and_go_before_a_product(simplified):
    simplified(
        """
        graph g(%x: f64[1, 7, 12], param %w: f64[5, 12], %r: f64[1, 7, 5]):
          %0: f64[7, 1, 12] = transpose(%x, perm=[1, 0, 2])
          %1: f64[7, 1, 5] = linear(%0, %w)
          %2: f64[1, 7, 5] = transpose(%1, perm=[1, 0, 2])
          %3: f64[1, 7, 5] = add(%2, %r)
          return %3
        """,
        """
        graph g(%x: f64[1, 7, 12], param %w: f64[5, 12], %r: f64[1, 7, 5]):
          %0: f64[1, 7, 5] = linear(%x, %w)
          %1: f64[1, 7, 5] = add(%0, %r)
          return %1
        """,
    )


def test_a_choice_that_is_known_is_made(simplified):
    simplified(
        """
        graph g(%x: f16[2, 3], %y: f16[2, 3]):
          const %c: bool[2, 1] = [False, False]
          const %d: bool[2, 1] = [True, False]
          %0: f16[2, 3] = where(%c, %x, %y)
          %1: f16[2, 3] = positive(%0)
          %2: f16[2, 3] = where(%d, %x, %1)
          return %2
        """,
        """
        graph g(%x: f16[2, 3], %y: f16[2, 3]):
          const %d: bool[2, 1] = [True, False]
          %0: f16[2, 3] = where(%d, %x, %y)
          return %0
        """,
    )


def test_a_product_that_loses_its_only_row_stays_one_of_matrices(simplified):
    text = """
        graph g(%x: f64[1, 4], param %w: f64[4, 5]):
          %0: f64[1, 5] = matmul(%x, %w)
          %1: f64[5] = squeeze(%0, axes=[0])
          return %1
        """
    simplified(text, text)


def test_rows_are_not_merged_before_a_product(simplified):
    text = """
        graph g(%x: f64[2, 3, 4], param %w: f64[5, 4]):
          %0: f64[2, 3, 5] = linear(%x, %w)
          %1: f64[6, 5] = reshape(%0, shape=[6, 5])
          %2: f64[6, 5] = relu(%1)
          return %2
        """
    simplified(text, text)


def test_a_transpose_moves_behind_what_can_be_the_epilogue_of_a_product(simplified):
    simplified(
        """
        graph g(%x: f64[2, 6, 4], param %w: f64[5, 4], param %s: f64[5, 1], %r: f64[2, 6, 5]):
          %0: f64[2, 6, 5] = linear(%x, %w)
          %1: f64[2, 5, 6] = transpose(%0, perm=[0, 2, 1])
          %2: f64[2, 5, 6] = mul(%s, %1)
          %3: f64[2, 5, 6] = transpose(%r, perm=[0, 2, 1])
          %4: f64[2, 5, 6] = add(%2, %3)
          %5: f64[2, 5, 6] = exp(%4)
          return %5
        """,
        """
        graph g(%x: f64[2, 6, 4], param %w: f64[5, 4], param %s: f64[5, 1], %r: f64[2, 6, 5]):
          %0: f64[2, 6, 5] = linear(%x, %w)
          %1: f64[1, 1, 5] = reshape(%s, shape=[1, 1, 5])
          %2: f64[2, 6, 5] = mul(%1, %0)
          %3: f64[2, 6, 5] = add(%2, %r)
          %4: f64[2, 5, 6] = transpose(%3, perm=[0, 2, 1])
          %5: f64[2, 5, 6] = exp(%4)
          return %5
        """,
    )


@pytest.mark.parametrize("result", ["%2", "%3", "%2, %1"], ids=["returned", "returned as a view", "read by others"])
def test_a_transpose_stays_where_others_see_it(simplified, result):
    text = f"""
        graph g(%x: f64[2, 6, 4], param %w: f64[5, 4], %r: f64[2, 5, 6]):
          %0: f64[2, 6, 5] = linear(%x, %w)
          %1: f64[2, 5, 6] = transpose(%0, perm=[0, 2, 1])
          %2: f64[2, 5, 6] = add(%1, %r)
          %3: f64[2, 30] = reshape(%2, shape=[2, 30])
          return {result}
        """
    simplified(text, text)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_many_tensors_are_joined_some_at_a_time(name):
    operators = {spec.name: spec for spec in all_operators()}
    builder = GraphBuilder(operators)
    x = builder.input(TensorType(dtypes.f32, (2, 3)))
    rows = [builder.emit("add", x, builder.constant(np.float32(n))) for n in range(300)]
    graph = builder.build([builder.emit(name, *rows, axis=1)])
    simpler = Simplify().run(graph, SimpleNamespace(registry=SimpleNamespace(operators=operators)))
    joins = [len(node.values) for node in simpler.nodes if node.op.name in ("concat", "stack")]
    assert max(joins) <= 32 and len(joins) == 20
    data = np.ones((2, 3), np.float32)
    assert np.array_equal(interpret(simpler, [data])[0], interpret(graph, [data])[0])
