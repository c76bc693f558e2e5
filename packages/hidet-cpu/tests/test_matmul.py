"""Matrix products on packed panels: edges of tiles, operands of any stride, fused operators, element types."""

from __future__ import annotations

import itertools
import textwrap

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.cpu.schedules.gemm_blocking import Extents, Item, blocking_of, choose_item
from hidet.cpu.schedules.gemm_choice import GemmParams
from hidet.cpu.schedules.gemm_tile import tile_shape
from hidet.cpu.schedules.gemv import MOST_ROWS
from hidet.cpu.schedules.pack import Order
from hidet.cpu.testing import assert_compiles_right, build, context, random_array
from hidet.fusion.fuse import fuse
from hidet.graph import TensorType
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.schedule.select import ScheduledTask, select_schedules
from hidet.testing import check_rule
from hidet.testing.interpret import interpret

SIZES = [(1, 1, 1), (2, 17, 5), (5, 64, 8), (7, 48, 33), (13, 100, 64), (131, 70, 12)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_linear_with_a_packed_weight_is_right_at_every_edge(m: int, n: int, k: int) -> None:
    arrays = random_array(m, k), random_array(n, k), random_array(n)
    assert_compiles_right(lambda g, x, w, b: g.emit("linear", x, w, b), *arrays, parameters=(1, 2))


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_product_of_two_activations_packs_the_right_one(m: int, n: int, k: int) -> None:
    assert_compiles_right(lambda g, a, b: g.emit("matmul", a, b), random_array(m, k), random_array(k, n))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_transposed_operands_are_read_in_place_or_copied(trans_a: bool, trans_b: bool) -> None:
    a = random_array(*((20, 9) if trans_a else (9, 20)))
    b = random_array(*((37, 20) if trans_b else (20, 37)))
    assert_compiles_right(lambda g, x, y: g.emit("matmul", x, y, trans_a=trans_a, trans_b=trans_b), a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize("steps", [3, 20, 40])
def test_a_transposed_factor_of_every_type_is_turned_on_the_way(dtype: str, steps: int) -> None:
    a, b = random_array(5, steps, dtype=dtype), random_array(37, steps, dtype=dtype)
    assert_compiles_right(lambda g, x, y: g.emit("matmul", x, y, trans_b=True), a, b, terms=steps)


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3, 7, 8), (2, 3, 8, 5)), ((2, 3, 7, 8), (2, 1, 8, 5)), ((3, 7, 8), (2, 3, 8, 5)), ((2, 1, 7, 8), (8, 5))],
)
def test_batches_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert_compiles_right(lambda g, x, y: g.emit("matmul", x, y), random_array(*a), random_array(*b))


@pytest.mark.parametrize("trans_b", [False, True])
def test_matmul_by_a_parameter_is_packed_once(trans_b: bool) -> None:
    x, w = random_array(7, 20), random_array(*((33, 20) if trans_b else (20, 33)))
    graph = build(lambda g, a, b: g.emit("matmul", a, b, trans_b=trans_b), (x, w), parameters=(1,))
    compiled = compile_graph(graph, context())
    assert compiled.report().kernels == 1
    np.testing.assert_allclose(compiled(x, w), interpret(graph, [x, w])[0], rtol=1e-5, atol=1e-5)
    changed = w + 1
    np.testing.assert_allclose(compiled(x, changed), interpret(graph, [x, changed])[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_activations_are_fused(name: str) -> None:
    arrays = random_array(2, 5, 64), random_array(33, 64), random_array(33)
    assert_compiles_right(lambda g, x, w, b: g.emit(name, g.emit("linear", x, w, b)), *arrays, parameters=(1, 2))


def test_a_residual_and_a_broadcast_factor_are_fused() -> None:
    arrays = random_array(2, 5, 64), random_array(33, 64), random_array(2, 5, 33), random_array(2, 1, 33)
    assert_compiles_right(
        lambda g, x, w, r, s: g.emit("mul", g.emit("add", g.emit("linear", x, w), r), s), *arrays, parameters=(1,)
    )


def test_an_operand_strided_along_columns_is_fused_element_by_element() -> None:
    arrays = random_array(2, 5, 64), random_array(33, 64), random_array(2, 33, 5)
    assert_compiles_right(
        lambda g, x, w, r: g.emit("add", g.emit("linear", x, w), g.emit("transpose", r, perm=(0, 2, 1))),
        *arrays,
        parameters=(1,),
    )


def test_rows_that_do_not_merge_into_one_axis_are_counted_through_several() -> None:
    arrays = random_array(4, 3, 16), random_array(33, 16), random_array(33)
    assert_compiles_right(
        lambda g, x, w, b: g.emit("linear", g.emit("transpose", x, perm=(1, 0, 2)), w, b), *arrays, parameters=(1, 2)
    )


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32", "int64", "int8"])
def test_every_element_type_accumulates_as_defined(dtype: str) -> None:
    x, w, b = (random_array(*shape, dtype=dtype) for shape in ((7, 40), (50, 40), (50,)))
    assert_compiles_right(lambda g, x, w, b: g.emit("relu", g.emit("linear", x, w, b)), x, w, b, parameters=(1, 2))


def test_infinities_and_nan_stay_in_their_rows() -> None:
    x, w = random_array(9, 20), random_array(40, 20)
    x[2, 3], x[5, 7] = np.inf, np.nan
    assert_compiles_right(lambda g, x, w: g.emit("linear", x, w), x, w, parameters=(1,))


@pytest.mark.parametrize("rows", [1, 2, 9, 200])
def test_one_kernel_serves_every_number_of_rows(rows: int) -> None:
    types = [TensorType(dtypes.f32, (dims.symbol("s0", 0, 1024), 40))]
    arrays = random_array(rows, 40), random_array(50, 40)
    assert_compiles_right(lambda g, x, w: g.emit("linear", x, w), *arrays, types=types, parameters=(1,))


@pytest.mark.parametrize(("x", "w"), [((0, 5), (7, 5)), ((3, 0), (7, 0)), ((3, 5), (0, 5))])
def test_empty_products_are_empty_or_zero(x: tuple[int, int], w: tuple[int, int]) -> None:
    assert_compiles_right(lambda g, a, b: g.emit("linear", a, b), random_array(*x), random_array(*w))


def test_a_long_sum_is_added_in_chunks() -> None:
    arrays = random_array(20, 9000), random_array(70, 9000)
    assert_compiles_right(lambda g, x, w: g.emit("linear", x, w), *arrays, parameters=(1,), terms=9000)


def test_sizes_are_not_compiled_in() -> None:
    """Sizes of one divisibility class share a kernel, where one register tile suits them all, as on this processor."""

    def chain(g, x, *weights):  # type: ignore[no-untyped-def]  # a graph in the making
        for weight in weights:
            x = g.emit("relu", g.emit("linear", x, weight))
        return x

    arrays = random_array(5, 64), random_array(128, 64), random_array(256, 128), random_array(64, 256)
    compiled = compile_graph(build(chain, arrays, parameters=(1, 2, 3)), make_context("cpu:haswell"))
    assert compiled.report().kernels == 1


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_gemv_of_as_many_rows_as_vectors_have_lanes_is_valid(rows: int) -> None:
    """Four lanes, as f32 has in 128 bits."""
    graph = f"""
    graph g(%x: f32[{rows}, 512], %y: f32[70, 512]):
      %0: f32[{rows}, 70] = linear(%x, %y)
      return %0
    """
    check_rule(make_context("cpu").registry.schedules["cpu.matmul"], graph, "cpu:x86-64-v2", points=0, seeds=1)


@pytest.mark.parametrize("size", [(1, 768, 768), (128, 3072, 768), (128, 768, 3072), (12544, 64, 147)])
def test_work_items_are_neither_few_nor_tiny(size: tuple[int, int, int]) -> None:
    m, n, k = size
    shape = tile_shape(context().target, dtypes.f32)  # type: ignore[arg-type]  # the CPU target
    extents = Extents(1, m, n, 1, k, 132)
    blocking = blocking_of(shape, extents, choose_item(shape, 48 << 10, extents))
    items = -(-m // blocking.rows) * -(-n // (blocking.groups * shape.columns))
    assert blocking.rows % shape.rows == 0
    assert items >= 4
    assert 4_000 <= blocking.nanoseconds <= 400_000


ANY_ROWS = """
symbol m: 1.. hint {hint}
graph g(%x: f32[m, 300], %y: f32[70, 300], %b: f32[70]):
  %0: f32[m, 70] = linear(%x, %y, %b)
  %1: f32[m, 70] = relu(%0)
  return %1
"""


def any_rows(hint: int) -> Graph:
    return parse_graph(textwrap.dedent(ANY_ROWS.format(hint=hint)), context().registry.operators)


def test_few_rows_are_a_gemv_and_more_are_tiles_where_a_call_tells_how_many_there_are() -> None:
    compiled = compile_graph(any_rows(1000), context())
    weight, bias = random_array(70, 300), random_array(70)
    for rows in (1, 3, MOST_ROWS, MOST_ROWS + 1, 200):
        x = random_array(rows, 300)
        right = np.maximum(x.astype(np.float64) @ weight.T.astype(np.float64) + bias, 0)
        np.testing.assert_allclose(compiled(x, weight, bias), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("machine", ["cpu:znver5", "cpu:haswell"])
@pytest.mark.parametrize("hint", [2, 40, 500, 100_000])
def test_any_number_of_rows_has_kernels_for_few_and_many_whatever_the_first_one_is(machine: str, hint: int) -> None:
    ctx = make_context(machine)
    (step,) = select_schedules(fuse(any_rows(hint), ctx), ctx).steps
    assert isinstance(step, ScheduledTask) and isinstance(step.decision.params, GemmParams)
    assert step.decision.params.is_gemv and step.decision.params.item.tiles > 6, "columns are packed for many rows"


@pytest.mark.parametrize("machine", ["cpu:znver5", "cpu:haswell", "cpu:x86-64-v2"])
@pytest.mark.parametrize("order", [None, "steps", "columns", "taps"])
def test_no_chunk_has_more_steps_than_work_items_have_room_for(machine: str, order: Order | None) -> None:
    """What a work item packs is written to a buffer of `most_steps` steps."""
    target = make_context(machine).target
    shape = tile_shape(target, dtypes.f32)  # type: ignore[arg-type]  # the CPU target
    for taps, run, columns in itertools.product((1, 3, 9, 49), (*range(1, 129, 3), 512), (16, 63, 256)):
        extents = Extents(1, 98, columns, taps, run, max(shape.rows, 132), order)
        for item in (choose_item(shape, 32 << 10, extents), Item(1, 1, 64), Item(4, 1, 81)):
            blocking = blocking_of(shape, extents, item)
            assert isinstance(blocking.taps, int) and isinstance(blocking.steps, int)
            assert blocking.taps * blocking.steps <= blocking.most_steps, (taps, run, columns, item)


@pytest.mark.parametrize(("channels", "filters", "size"), [(48, 33, 4), (64, 48, 8)])
@pytest.mark.thorough(every=2)
def test_taps_of_few_channels_that_work_items_pack_are_convolved_right(channels: int, filters: int, size: int) -> None:
    """Nine taps of 64 channels in chunks of 80 steps: two taps of a chunk would not fit."""
    image = f"f32[2, {channels}, {size}, {size}]{{{channels * size * size}, 1, {channels * size}, {channels}}}"
    result = f"f32[2, {filters}, {size}, {size}]{{{filters * size * size}, 1, {filters * size}, {filters}}}"
    text = f"""
    graph g(%x: {image}, %w: f32[{filters}, {channels}, 3, 3]{{{9 * channels}, 1, {3 * channels}, {channels}}}):
      %0: {result} = conv(%x, %w, padding=[1, 1])
      return %0
    """
    check_rule(make_context("cpu").registry.schedules["cpu.conv"], text, "cpu", points=0, seeds=1)
