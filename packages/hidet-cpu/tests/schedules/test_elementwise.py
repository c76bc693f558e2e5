"""Element-wise tasks: regions without conditions, squares of transposed inputs, merged and unrolled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.cpu.schedules.elementwise import ElementwiseRule, whole_region
from hidet.cpu.schedules.elementwise_access import RegionAccess
from hidet.cpu.schedules.elementwise_region import Region, cut_regions
from hidet.cpu.schedules.transpose_nest import turned_axis
from hidet.cpu.testing import Array, assert_close, assert_compiles_right, build, context, random_array
from hidet.dtypes import from_numpy
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.graph import Value
from hidet.graph.parser import parse_graph
from hidet.ir.expr import Access, Binary, Select
from hidet.ir.visit import walk
from hidet.runtime.adapter import NumpyAdapter
from hidet.testing.interpret import interpret

Make = Callable[..., Value]


def regions_of(make: Make, *arrays: Array, types: Sequence[TensorType | None] = ()) -> list[Region]:
    """The regions of a graph of one element-wise task."""
    (task,) = fuse(build(make, arrays, types), context()).tasks
    return cut_regions(whole_region(task.epilogues[0], task.outputs[0].type))


def count(region: Region, *kinds: type) -> int:
    """Nodes of these classes in a region's formula."""
    return sum(isinstance(node, kinds) for node in walk(region.value))


def divisions(region: Region) -> int:
    """Divisions and remainders in a region's formula."""
    return sum(isinstance(node, Binary) and node.op in ("floordiv", "mod") for node in walk(region.value))


# --- regions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_a_join_is_one_copy_for_each_part(axis: int) -> None:
    parts = [random_array(*((n, 20) if axis == 0 else (20, n)), seed=n) for n in (9, 30, 16)]
    found = regions_of(lambda g, *x: g.emit("concat", *x, axis=axis), *parts)
    assert [count(region, Access) for region in found] == [1, 1, 1]
    assert not any(count(region, Select) for region in found)


def test_borders_are_filled_apart_from_the_inside() -> None:
    found = regions_of(lambda g, x: g.emit("pad", x, pads=((2, 1), (0, 0))), random_array(5, 40))
    assert [count(region, Access) for region in found] == [0, 1, 0]


def test_narrow_borders_along_the_innermost_axis_stay_conditions() -> None:
    (region,) = regions_of(lambda g, x: g.emit("pad", x, pads=((0, 0), (1, 1))), random_array(5, 40))
    assert count(region, Select) == 1


def test_a_rotation_has_a_part_before_and_one_after_the_turn() -> None:
    found = regions_of(lambda g, x: g.emit("roll", x, shifts=(3,), axes=(1,)), random_array(5, 40))
    assert len(found) == 2
    assert not any(map(divisions, found))


@pytest.mark.parametrize(
    "make",
    [
        lambda g, x: g.emit("tile", x, repeats=(2, 50)),
        lambda g, x: g.emit("repeat_interleave", x, repeats=3, axis=0),
        lambda g, x: g.emit("reshape", g.emit("transpose", x, perm=(1, 0)), shape=(9 * 12,)),
    ],
    ids=["tile", "repeat_interleave", "reshape"],
)
def test_divisions_of_an_axis_become_axes(make: Make) -> None:
    assert not any(map(divisions, regions_of(make, random_array(9, 12))))


def test_thresholds_of_symbolic_sizes_are_held_inside_the_axis() -> None:
    s, t = dims.symbol("s", 1, 100), dims.symbol("t", 1, 100)
    types = [TensorType(dtypes.f32, (n, 4)) for n in (s, t)]
    arrays = random_array(7, 4), random_array(9, 4)
    make: Make = lambda g, *x: g.emit("concat", *x, axis=0)  # noqa: E731
    found = regions_of(make, *arrays, types=types)
    assert [dims.evaluate(region.extents[0], {"s": 7, "t": 9}) for region in found] == [7, 9]
    assert_compiles_right(make, *arrays, types=types)


def test_what_is_left_beyond_the_most_regions_keeps_its_conditions() -> None:
    parts = [random_array(1, 2, seed=n) for n in range(9)]
    (task,) = fuse(build(lambda g, *x: g.emit("concat", *x, axis=0), parts), context()).tasks
    found = cut_regions(whole_region(task.epilogues[0], task.outputs[0].type), most=4)
    assert [count(region, Select) for region in found] == [2, 1, 3]


def test_parts_that_differ_in_size_alone_share_a_kernel() -> None:
    graph = build(lambda g, *x: g.emit("concat", *x, axis=0), [random_array(n, 6) for n in (2, 3, 5)])
    (task,) = fuse(graph, context()).tasks

    rule, ctx = ElementwiseRule(), context()
    match = rule.match(task, ctx)
    assert match is not None
    functions = rule.build(match, rule.default(match, ctx), ctx).module.functions
    assert [function.kind for function in functions] == ["kernel", "host"]


# --- results ---------------------------------------------------------------------------------------------------------

MOVES: dict[str, Make] = {
    "pad": lambda g, x: g.emit("pad", x, pads=((1, 2), (0, 3), (9, 1)), value=7.0),
    "crop": lambda g, x: g.emit("pad", x, pads=((-1, 0), (2, -2), (1, 0))),
    "reflect": lambda g, x: g.emit("pad", x, pads=((0, 0), (2, 3), (4, 1)), mode="reflect"),
    "replicate": lambda g, x: g.emit("pad", x, pads=((1, 0), (2, 3), (4, 1)), mode="replicate"),
    "circular": lambda g, x: g.emit("pad", x, pads=((0, 0), (2, 3), (4, 1)), mode="circular"),
    "roll": lambda g, x: g.emit("roll", x, shifts=(2, -5), axes=(1, 2)),
    "flip": lambda g, x: g.emit("flip", x, axes=(0, 2)),
    "tile": lambda g, x: g.emit("tile", x, repeats=(2, 1, 3)),
    "repeat": lambda g, x: g.emit("repeat_interleave", x, repeats=2, axis=-1),
    "stack": lambda g, x: g.emit("stack", x, g.emit("neg", x), axis=-1),
    "join": lambda g, x: g.emit("concat", g.emit("relu", x), x, axis=1),
    "triangle": lambda g, x: g.emit("tril", x, offset=1),
    "windows": lambda g, x: g.emit(
        "reshape",
        g.emit("transpose", g.emit("reshape", x, shape=(3, 2, 5, 17)), perm=(0, 2, 1, 3)),
        shape=(15, 34),
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_movement_of_data_is_right(name: str) -> None:
    assert_compiles_right(MOVES[name], random_array(3, 10, 17))


TURNED_SHAPES = [(16, 16), (17, 64), (64, 17), (100, 83), (3, 50), (50, 3), (200, 1100)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int64"])
def test_copies_of_every_shape_and_element_are_transposed(dtype: str) -> None:
    arrays = [random_array(*shape, dtype=dtype) for shape in TURNED_SHAPES]
    builder = GraphBuilder(context().registry.operators)
    inputs = [builder.input(TensorType(from_numpy(x.dtype), x.shape), f"x{n}") for n, x in enumerate(arrays)]
    graph = builder.build([builder.emit("copy", builder.emit("transpose", x, perm=(1, 0))) for x in inputs])
    for actual, x in zip(compile_graph(graph, context())(*arrays), arrays, strict=True):
        assert np.array_equal(actual, x.T)


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2)], ids=str)
def test_axes_around_a_transposed_pair_are_kept_in_order(perm: tuple[int, ...]) -> None:
    assert_compiles_right(lambda g, x: g.emit("copy", g.emit("transpose", x, perm=perm)), random_array(3, 20, 19, 18))


@pytest.mark.parametrize("shape", [(64, 64), (70, 21), (33, 130)], ids=str)
def test_formulas_of_transposed_and_straight_inputs_are_right(shape: tuple[int, int]) -> None:
    rows, columns = shape

    def make(g: GraphBuilder, straight: Value, turned: Value, mask: Value, bias: Value) -> Value:
        first = g.emit(
            "where", g.emit("transpose", mask, perm=(1, 0)), straight, g.emit("transpose", turned, perm=(1, 0))
        )
        return g.emit("add", g.emit("exp", first), bias)

    arrays = random_array(rows, columns), random_array(columns, rows, seed=1), random_array(columns, rows, seed=2) > 0
    assert_compiles_right(make, *arrays, random_array(columns))


def test_what_a_condition_guards_is_not_read_by_squares() -> None:
    """Narrow borders stay conditions: a square at the edge would reach outside the operand."""
    guarded: Make = lambda g, x: g.emit("pad", g.emit("transpose", x, perm=(1, 0)), pads=((0, 0), (1, 1)))  # noqa: E731
    chosen: Make = lambda g, x: g.emit(  # noqa: E731
        "where", g.emit("greater", x, g.emit("neg", x)), g.emit("transpose", x, perm=(1, 0)), x
    )
    square = random_array(40, 40)
    for make, is_turned in ((guarded, False), (chosen, True)):
        (task,) = fuse(build(make, [square]), context()).tasks
        strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        (region,) = cut_regions(whole_region(task.epilogues[0], task.outputs[0].type))
        access = RegionAccess(region, strides, task.outputs[0].operand.dtype)
        assert (turned_axis(access) is not None) == is_turned
        assert_compiles_right(make, square)


def test_a_transposed_bool_stays_true_or_false() -> None:
    x = random_array(40, 50) > 0
    assert_compiles_right(lambda g, x: g.emit("copy", g.emit("transpose", x, perm=(1, 0))), x)
    assert_compiles_right(lambda g, x: g.emit("cast", g.emit("transpose", x, perm=(1, 0)), dtype=dtypes.f32), x)


def test_one_kernel_transposes_whatever_the_sizes() -> None:
    types = [TensorType(dtypes.f32, (dims.symbol("s", 0, 1000), dims.symbol("t", 0, 1000)))]
    graph = build(lambda g, x: g.emit("neg", g.emit("transpose", x, perm=(1, 0))), [random_array(1, 1)], types)
    compiled = compile_graph(graph, context())
    for shape in ((1, 1), (7, 40), (40, 7), (16, 16), (33, 129), (0, 5)):
        x = random_array(*shape)
        assert np.array_equal(compiled(x), -x.T)


@pytest.mark.parametrize("least", [0, 2])
@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.parametrize("result", ["{32*s*t, 1, 32*t, 32}", ""])
@pytest.mark.parametrize("given", ["{32*s*t, 1, 32*t, 32}", ""])
def test_channels_that_are_neighbours_are_copied_whatever_the_size_of_the_image(
    given: str, result: str, dtype: str, least: int
) -> None:
    type_ = f"{dtype}[2, 32, s, t]"
    symbols = "".join(f"symbol {name}: {least}..1000\n" for name in "st")
    text = f"{symbols}graph g(%x: {type_}{given}):\n  %0: {type_}{result} = copy(%x)\n  return %0\n"
    compiled = compile_graph(parse_graph(text, context().registry.operators), context())
    for height, width in ((2, 3), (16, 17), (40, 33)):
        x = (random_array(2, 32, height, width) * 100).astype(dtypes.dtype(dtype).numpy())
        assert np.array_equal(compiled(x), x)


def test_a_result_that_replaces_its_input_is_computed_once() -> None:
    """x += y.T at the edges of tiles, where squares overlap."""
    builder = GraphBuilder(context().registry.operators)
    x, y = (builder.input(TensorType(dtypes.f32, shape), name) for name, shape in (("x", (37, 41)), ("y", (41, 37))))
    graph = builder.build([builder.emit("add", x, builder.emit("transpose", y, perm=(1, 0)))], mutates=[(0, 0)])
    a, b = random_array(37, 41), random_array(41, 37)
    expected = a + b.T
    compile_graph(graph, context()).run([a, b], NumpyAdapter())
    assert_close(a, expected)


@pytest.mark.parametrize("shape", [(1000, 3), (2000, 1), (1, 2000), (30, 3, 5, 4)], ids=str)
def test_short_innermost_axes_are_right(shape: tuple[int, ...]) -> None:
    scale = random_array(*(1,) * (len(shape) - 1), shape[-1])
    assert_compiles_right(lambda g, x, s: g.emit("mul", x, s), random_array(*shape), scale)


def test_gathered_rows_and_elements_are_right() -> None:
    table, rows = random_array(50, 33), np.array([[3, 49, -1], [0, 0, 7]])
    assert_compiles_right(lambda g, w, i: g.emit("embedding", w, i), table, rows)
    assert_compiles_right(lambda g, w, i: g.emit("index_select", w, i, axis=1), table, np.array([4, -2, 32], np.int32))
    assert_compiles_right(lambda g, w, i: g.emit("gather", w, i, axis=0), table, rows[:, :2] % 50)
    assert_compiles_right(lambda g, w, i: g.emit("relu", g.emit("index", w, i, i)), table, rows % 33)


def test_several_results_of_one_task_are_all_written() -> None:
    builder = GraphBuilder(context().registry.operators)
    x = builder.input(TensorType(dtypes.f32, (20, 30)), "x")
    turned = builder.emit("transpose", x, perm=(1, 0))
    graph = builder.build([builder.emit("exp", x), builder.emit("copy", turned), builder.emit("neg", turned)])
    array = random_array(20, 30)
    for actual, expected in zip(compile_graph(graph, context())(array), interpret(graph, [array]), strict=True):
        assert_close(actual, expected)
