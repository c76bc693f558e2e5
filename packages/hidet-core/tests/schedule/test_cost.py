"""Estimates of arithmetic: what decides between quick and thorough compilation."""

import pytest

from hidet import dims, dtypes
from hidet.context import CompileContext, make_context
from hidet.dims import Dim
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.schedule.cost import UNKNOWN_EXTENT, is_below, task_flops


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False})


def _flops(ctx: CompileContext, op: str, *shapes: tuple[Dim, ...], **attrs: object) -> int:
    builder = GraphBuilder(ctx.registry.operators)
    inputs = [builder.input(TensorType(dtypes.f32, shape)) for shape in shapes]
    outputs: tuple[Value, ...] = builder.emit_all(op, inputs, attrs)
    tasks = fuse(builder.build(outputs), ctx).tasks
    total = sum(map(task_flops, tasks))
    assert is_below(tasks, total + 1) and not is_below(tasks, total)
    return total


def test_a_matrix_product_counts_two_for_each_multiply_add(ctx: CompileContext) -> None:
    assert _flops(ctx, "matmul", (5, 7), (7, 11)) == 2 * 5 * 7 * 11


def test_a_convolution_counts_no_padding_and_no_indices(ctx: CompileContext) -> None:
    counted = _flops(ctx, "conv", (1, 3, 8, 8), (4, 3, 3, 3), padding=(1, 1))
    assert counted == 2 * (4 * 8 * 8) * (3 * 3 * 3)


def test_attention_counts_both_products_and_its_softmax(ctx: CompileContext) -> None:
    rows, keys, width = 16, 32, 8
    counted = _flops(ctx, "attention", (2, rows, width), (2, keys, width), (2, keys, width))
    products = 2 * (2 * rows * keys * (width + width))
    assert products < counted < 2 * products


def test_packed_sequences_count_as_if_all_were_the_longest(ctx: CompileContext) -> None:
    builder = GraphBuilder(ctx.registry.operators)
    q, k = (builder.input(TensorType(dtypes.f32, (rows, heads, 8))) for rows, heads in ((40, 4), (60, 2)))
    ends = builder.input(TensorType(dtypes.i32, (5,)))
    outputs = builder.emit_all("varlen_attention", (q, k, k, ends, ends), {"max_q": 16, "max_k": 32})
    counted = sum(map(task_flops, fuse(builder.build(outputs), ctx).tasks))
    products = 2 * (4 * 40 * 32 * (8 + 8))
    assert products < counted < 2 * products


def test_an_element_that_is_only_moved_counts_as_one(ctx: CompileContext) -> None:
    assert _flops(ctx, "copy", (10, 20)) == 200
    assert _flops(ctx, "add", (10, 20), (10, 20)) == 200


def test_a_symbolic_size_counts_as_its_hint_says(ctx: CompileContext) -> None:
    hinted, unknown = dims.symbol("hinted", hint=100), dims.symbol("unknown")
    assert _flops(ctx, "add", (hinted, 3), (hinted, 3)) == 300
    assert _flops(ctx, "add", (unknown, 3), (unknown, 3)) == 3 * UNKNOWN_EXTENT


def test_an_empty_tensor_counts_nothing(ctx: CompileContext) -> None:
    assert _flops(ctx, "add", (5, 0), (5, 0)) == 0
