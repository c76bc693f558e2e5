"""Compiled reductions against their definitions in f64: shapes, axes, element types, layouts, fused operators."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.cpu.testing import build, random_array
from hidet.graph import GraphBuilder, TensorType
from hidet.testing.interpret import interpret

CONTEXT = make_context("cpu", {"cache": False})
CASES = {
    "along rows": ((7, 33), (1,)),
    "across rows": ((7, 33), (0,)),
    "everything": ((5, 4, 3), None),
    "outer and inner axis": ((3, 5, 17), (0, 2)),
    "middle axis": ((3, 5, 17), (1,)),
    "tiny rows": ((40, 3), (1,)),
    "several blocks": ((3, 5000), (1,)),
    "long row in parts": ((2, 140001), (1,)),
    "long columns in parts": ((100003, 5), (0,)),
    "wide and long": ((5000, 33), (0,)),
    "many columns": ((9, 700), (0,)),
    "one element": ((1, 1), (1,)),
    "no rows": ((0, 5), (1,)),
}
FEW_CASES = ("along rows", "across rows", "several blocks", "no rows")
FEW_OPERATORS = ("mean", "any", "all", "count_nonzero", "norm", "logsumexp")
REDUCTIONS = (
    *((op, case) for op in ("sum", "amax", "var_mean") for case in CASES),
    *((op, case) for op in (*FEW_OPERATORS, "std", "moments") for case in FEW_CASES),
)


def graph_of(op, x, *, type_=None, before=None, after=None, registry=None, **attributes):
    builder = GraphBuilder(CONTEXT.registry.operators)
    value = builder.input(type_ or TensorType(dtypes.from_numpy(x.dtype), x.shape), "x")
    value = value if before is None else before(builder, value)
    results = builder.emit_all(op, [value], attributes)
    return builder.build(results if after is None else [after(builder, results[0])])


def run(graph, *inputs):
    compiled = compile_graph(graph, CONTEXT)
    results = compiled(*inputs)
    return compiled, results if isinstance(results, tuple) else (results,)


def check(graph, x, exact_graph=None):
    """Every result within a few roundings of the f64 one, on a schedule."""
    compiled, results = run(graph, x)
    assert compiled.report().nodes.fallback == 0
    exact = interpret(exact_graph or graph, [x.astype(np.float64) if exact_graph else x])
    for got, expected in zip(results, exact, strict=True):
        assert got.shape == expected.shape
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, expected)
            continue
        epsilon = dtypes.from_numpy(got.dtype).epsilon
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=4 * epsilon, atol=4 * epsilon * scale)
    return compiled


@pytest.fixture(autouse=True)
def quiet_numpy():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(("op", "case"), REDUCTIONS)
@pytest.mark.thorough(every=4)
def test_reductions_are_as_exact_as_their_type(op, case):
    shape, axes = CASES[case]
    if op in ("amax", "amin") and 0 in shape:
        pytest.skip("there is no extreme of nothing")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(graph_of(op, x, axes=axes), x, graph_of(op, x.astype(np.float64), axes=axes))


@pytest.mark.parametrize("case", [name for name, (shape, _) in CASES.items() if 0 not in shape])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.thorough(every=3)
def test_positions_are_those_of_the_first_extreme(op, case):
    shape, axes = CASES[case]
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(np.float32)
    check(graph_of(op, x, axes=axes), x)


@pytest.mark.parametrize("op", ["argmax", "amax", "sum", "max_with_index"])
@pytest.mark.parametrize("shape", [(4, 1000), (1000, 40)])
def test_nan_and_infinities_go_to_the_result(op, shape):
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(np.float32)
    x[1, 3], x[2, 5], x[3, 7], x[3, 9], x[1, 30] = np.nan, np.inf, -np.inf, np.inf, np.nan
    attributes = {"axis": 1} if op.endswith("index") else {"axes": (1,)}
    _, results = run(graph_of(op, x, **attributes), x)
    for got, expected in zip(results, interpret(graph_of(op, x, **attributes), [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("op", ["sum", "prod", "amax", "any", "argmax", "count_nonzero"])
@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "i32", "i64"])
@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.thorough(every=4)
def test_integers_and_truth_values_are_exact(op, dtype, axes):
    x = np.random.default_rng(0).integers(0, 3, (37, 50)).astype(dtypes.dtype(dtype).numpy())
    check(graph_of(op, x, axes=axes), x)


@pytest.mark.parametrize("op", ["sum", "mean", "amax", "var", "logsumexp"])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16, dtypes.f64], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.thorough(every=3)
def test_other_floats_are_reduced_wider_and_rounded_once(op, dtype, axes):
    x = np.random.default_rng(0).standard_normal((300, 40)).astype(dtype.numpy())
    check(graph_of(op, x, axes=axes), x, graph_of(op, x.astype(np.float64), axes=axes))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize("axes", [(2, 3), (1,), (0, 2, 3), (0,)])
def test_any_layout_of_the_input_is_read_in_place(order, axes):
    x = np.random.default_rng(0).standard_normal((2, 6, 5, 7)).astype(np.float32)

    def transposed(builder, value):
        return builder.emit("transpose", value, perm=tuple(int(n) for n in np.argsort(order)))

    flat = np.ascontiguousarray(x.transpose(order))
    graph = graph_of("mean", flat, before=transposed, axes=axes)
    compiled, (got,) = run(graph, flat)
    np.testing.assert_allclose(got, x.astype(np.float64).mean(axes), rtol=1e-5, atol=1e-6)
    assert compiled.report().nodes.fallback == 0


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_operators_before_and_after_are_part_of_the_kernel(axes):
    x = np.random.default_rng(0).standard_normal((50, 60)).astype(np.float32)

    def before(builder, value):
        return builder.emit("relu", builder.emit("mul", value, value))

    def after(builder, value):
        return builder.emit("sqrt", builder.emit("relu", value))

    compiled = check(graph_of("sum", x, before=before, after=after, axes=axes), x)
    assert compiled.report().nodes.scheduled == 5
    assert compiled.report().kernels == 1


@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_sizes_may_be_known_only_when_called(axes):
    rows = dims.symbol("rows", 1, 4096)
    x = np.random.default_rng(0).standard_normal((13, 21)).astype(np.float32)
    graph = graph_of("mean", x, type_=TensorType(dtypes.f32, (rows, 21)), axes=axes)
    compiled = compile_graph(graph, CONTEXT)
    for count in (1, 2, 13):
        part = np.ascontiguousarray(x[:count])
        np.testing.assert_allclose(compiled(part), part.astype(np.float64).mean(axes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 400000), (400000, 3), (64, 5000)])
def test_the_result_does_not_depend_on_the_number_of_threads(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    graph = graph_of("sum", x, axes=(int(np.argmax(shape)),))
    results = [compile_graph(graph, make_context("cpu", {"cache": False, "threads": threads}))(x) for threads in (1, 2)]
    np.testing.assert_array_equal(results[0], results[1])


def test_long_sums_keep_their_digits():
    """A sum of a million f32 numbers in f32 would be wrong in the fourth digit."""
    x = np.random.default_rng(0).random((2, 1 << 20)).astype(np.float32)
    _, (got,) = run(graph_of("sum", x, axes=(1,)), x)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(1), rtol=1e-7)
    _, (across,) = run(graph_of("sum", np.ascontiguousarray(x.T), axes=(0,)), np.ascontiguousarray(x.T))
    np.testing.assert_allclose(across, x.astype(np.float64).sum(1), rtol=2e-7)


@pytest.mark.parametrize(
    ("shape", "axes"), [((100, 40), (0,)), ((64, 40), (0,)), ((1000, 5), (0,)), ((50, 100, 7), (1,))]
)
def test_sums_across_rows_are_about_as_exact_as_sums_of_parts(shape, axes):
    """Added up one after the other, a hundred numbers lose three times as much as eager mode's sums of parts."""
    x = np.random.default_rng(0).random(shape).astype(np.float32)
    _, (got,) = run(graph_of("sum", x, axes=axes), x)
    wide = x.astype(np.float64).sum(axes)
    assert np.sqrt(np.mean(((got - wide) / wide) ** 2)) < 1.2e-7


@pytest.mark.parametrize("kept", [slice(0, None, 2), slice(0, -1)], ids=["every-other", "all-but-one"])
@pytest.mark.parametrize("shape", [(40, 400), (40, 25, 17), (40, 100, 6), (40, 9, 9, 9)])
def test_sums_of_strided_and_nested_axes_are_about_as_exact_as_sums_of_parts(shape, kept):
    """Lanes are added for themselves where the innermost elements lie side by side; what comes of the passes around
    that loop, and elements that lie apart, would be added one after the other."""
    x = np.random.default_rng(0).random(shape).astype(np.float32)[..., kept]
    axes = tuple(range(1, x.ndim))
    type_ = TensorType(dtypes.f32, x.shape).with_strides([stride // x.itemsize for stride in x.strides])
    _, (got,) = run(graph_of("sum", x, type_=type_, axes=axes), x)
    wide = x.astype(np.float64).sum(axes)
    assert np.sqrt(np.mean(((got - wide) / wide) ** 2)) < 1.2e-7


@pytest.mark.parametrize("ratio", [1e1, 1e3, 1e5, 1e6, -1e6])
@pytest.mark.parametrize("shape", [(5, 1000), (7, 13), (100, 300), (2, 200_000)])
@pytest.mark.thorough(every=4)
def test_variances_keep_their_digits_where_the_mean_is_large(ratio: float, shape: tuple[int, ...]) -> None:
    """red-team.md finding 7: along rows, along columns, and of rows that are cut into parts."""
    x = (random_array(*shape).astype(np.float64) + ratio).astype(np.float32)
    graph = build(
        lambda g, a: (
            *(v for axis in (0, 1) for v in g.emit_all("var_mean", [a], {"axes": (axis,), "correction": 1})),
            g.emit("std", a, axes=(1,), correction=0),
            g.emit("var", a, axes=(0, 1), correction=1),
        ),
        [x],
    )
    compiled = compile_graph(graph, CONTEXT)
    assert compiled.report().nodes.fallback == 0
    wide = x.astype(np.float64)
    wanted = [wide.var(0, ddof=1), wide.mean(0), wide.var(1, ddof=1), wide.mean(1), wide.std(1), wide.var(ddof=1)]
    # The reference adds up long rows in f32.
    for results in (compiled(x), *([interpret(graph, [x])] if x.size < 100_000 else [])):
        for found, right in zip(results, wanted, strict=True):
            np.testing.assert_allclose(found.astype(np.float64), right, rtol=1e-6)
