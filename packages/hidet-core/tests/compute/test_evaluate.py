"""The numpy reference of compute definitions against numpy itself."""

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.compute import evaluate as evaluate_module
from hidet.compute.definition import (
    COMBINERS,
    Combiner,
    Definition,
    Operand,
    Scan,
    Scatter,
    compute,
    fresh_axes,
    reduce,
    single,
)
from hidet.compute.evaluate import evaluate
from hidet.errors import DTypeError, ShapeError, UnsupportedOp, VerifyError
from hidet.ir import build

f32, i64 = dtypes.f32, dtypes.i64
SUM = COMBINERS["sum"]


def operand(name, *shape, dtype=f32):
    return Operand(name, dtype, shape)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matmul(m, k, n):
    a, b = operand("a", m, k), operand("b", k, n)
    return single([a, b], compute("c", (m, n), lambda i, j: reduce(SUM, [k], lambda r: a[i, r] * b[r, j])))


def test_an_elementwise_chain_is_computed_over_the_whole_array():
    x, y = operand("x", 3, 4), operand("y", 4)
    definition = single([x, y], compute("z", (3, 4), lambda i, j: build.unary("exp", x[i, j]) * 2.0 + y[j]))
    a, b = random(3, 4), random(4)
    assert np.allclose(evaluate(definition, [a, b])[0], np.exp(a) * 2 + b)


def test_symbolic_sizes_are_learnt_from_the_inputs():
    s = dims.symbol("s")
    a, b = random(5, 7), random(7, 3)
    assert np.allclose(evaluate(matmul(s, 7, 3), [a, b])[0], a @ b, atol=1e-5)


def test_a_size_used_as_a_value_takes_its_binding():
    s = dims.symbol("s")
    x = operand("x", s, dtype=i64)
    definition = single([x], compute("y", (s,), lambda i: x[i] * build.index(2 * s + 1)))
    assert evaluate(definition, [np.arange(3)])[0].tolist() == [0, 7, 14]


INDEX_FORMS = {
    "transposed": (lambda i, j: (j, i), lambda a, r, c: a[c, r]),
    "strided": (lambda i, j: (i * 2 + 1, j), lambda a, r, c: a[r * 2 + 1, c]),
    "reversed": (lambda i, j: (build.index(3) - i, j), lambda a, r, c: a[3 - r, c]),
    "constant": (lambda i, j: (i, build.index(2)), lambda a, r, c: a[r, 2]),
    "quotient": (lambda i, j: ((i + 1) // 2, (j + 3) % 4), lambda a, r, c: a[(r + 1) // 2, (c + 3) % 4]),
    "exact quotient": (lambda i, j: ((i * 4 + 2) // 2, (j * 4 + 6) % 4), lambda a, r, c: a[r * 2 + 1, 2]),
    "diagonal": (lambda i, j: (i + j, j), lambda a, r, c: a[r + c, c]),
}


@pytest.mark.parametrize("form", INDEX_FORMS)
def test_index_expressions_read_the_elements_they_name(form):
    indices, expected = INDEX_FORMS[form]
    x, array = operand("x", 8, 8), random(8, 8)
    definition = single([x], compute("y", (3, 4), lambda i, j: x[indices(i, j)]))
    assert np.array_equal(evaluate(definition, [array])[0], expected(array, *np.indices((3, 4))))


def test_an_embedding_gathers_rows():
    table, ids = operand("table", 10, 4), operand("ids", 2, 3, dtype=i64)
    definition = single([table, ids], compute("y", (2, 3, 4), lambda b, t, c: table[ids[b, t], c]))
    array, index = random(10, 4), np.array([[1, 9, 0], [3, 3, 2]])
    assert np.array_equal(evaluate(definition, [array, index])[0], array[index])


def test_a_gather_along_an_axis_pairs_the_indices():
    x, ids = operand("x", 3, 5), operand("ids", 3, 2, dtype=i64)
    definition = single([x, ids], compute("y", (3, 2), lambda i, j: x[i, ids[i, j]]))
    array, index = random(3, 5), np.array([[4, 0], [1, 1], [2, 3]])
    assert np.array_equal(evaluate(definition, [array, index])[0], np.take_along_axis(array, index, 1))


def test_the_untaken_side_of_a_select_may_lie_outside_the_operand():
    x = operand("x", 4)
    inside = lambda i: build.logical_and(i >= 2, i < 6)  # noqa: E731
    definition = single([x], compute("y", (9,), lambda i: build.select(inside(i), x[i - 2], 0.0)))
    array = random(4)
    assert np.array_equal(evaluate(definition, [array])[0], np.pad(array, (2, 3)))


def test_a_select_over_an_empty_operand_reads_nothing():
    x = operand("x", 0)
    definition = single([x], compute("y", (2,), lambda i: build.select(i < 0, x[i], 7.0)))
    assert evaluate(definition, [np.zeros(0, np.float32)])[0].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("index", [lambda i: i + 1, lambda i: i - 1, lambda i: (i * i) % 7])
def test_reading_out_of_range_outside_a_select_is_an_error(index):
    x = operand("x", 4)
    definition = single([x], compute("y", (4,), lambda i: x[index(i)]))
    with pytest.raises(ShapeError, match=r"operand x is read at .* axis 0, which has 4 elements"):
        evaluate(definition, [random(4)])


def test_a_padded_convolution_matches_a_direct_sum():
    x, w = operand("x", 1, 3, 6, 6), operand("w", 4, 3, 3, 3)

    def element(n, o, i, j):
        def term(c, r, s):
            inside = build.logical_and(i + r >= 1, i + r < 7, j + s >= 1, j + s < 7)
            return build.select(inside, x[n, c, i + r - 1, j + s - 1], 0.0) * w[o, c, r, s]

        return reduce(SUM, [3, 3, 3], term)

    image, kernel = random(1, 3, 6, 6), random(4, 3, 3, 3, seed=1)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, r : r + 6, s : s + 6], kernel[:, :, r, s])
        for r in range(3)
        for s in range(3)
    )
    result = evaluate(single([x, w], compute("y", (1, 4, 6, 6), element)), [image, kernel])[0]
    assert np.allclose(result, expected, atol=1e-5)


def test_blocked_evaluation_gives_the_same_result(monkeypatch):
    x = operand("x", 13, 11)
    definition = single(
        [x], compute("y", (13, 11), lambda i, j: reduce(COMBINERS["max"], [11], lambda r: x[i, r] * x[i, j]))
    )
    array = random(13, 11)
    whole = evaluate(definition, [array])[0]
    monkeypatch.setattr(evaluate_module, "BLOCK_ELEMENTS", 50)
    assert np.array_equal(evaluate(definition, [array])[0], whole)
    assert np.array_equal(whole, (array[:, :, None] * array[:, None, :]).max(axis=2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)],
)
def test_reductions_with_a_ufunc_reduce_all_their_axes(name, expected):
    x = operand("x", 2, 3, 4)
    definition = single([x], compute("y", (3,), lambda j: reduce(COMBINERS[name], [2, 4], lambda i, k: x[i, j, k])))
    array = random(2, 3, 4)
    assert np.allclose(evaluate(definition, [array])[0], expected(array, axis=(0, 2)))


def test_a_reduction_whose_value_ignores_an_axis_counts_its_extent():
    x = operand("x", 3)
    definition = single([x], compute("y", (3,), lambda i: reduce(SUM, [5], lambda r: x[i] * x[i])))
    array = random(3)
    assert np.allclose(evaluate(definition, [array])[0], 5 * array * array)


@pytest.mark.parametrize(("name", "neutral"), [("sum", 0.0), ("prod", 1.0), ("max", -np.inf), ("min", np.inf)])
def test_an_empty_reduction_gives_the_identity(name, neutral):
    x = operand("x", 2, 0)
    definition = single([x], compute("y", (2,), lambda i: reduce(COMBINERS[name], [0], lambda r: x[i, r])))
    assert evaluate(definition, [np.zeros((2, 0), np.float32)])[0].tolist() == [neutral, neutral]


def test_arg_max_takes_the_first_of_equals_and_nan_above_all():
    x = operand("x", 3, 5)
    definition = single(
        [x], compute("y", (3,), lambda i: reduce(COMBINERS["argmax"], [5], lambda r: (x[i, r], r), result=1))
    )
    array = np.array([[1, 3, 3, 0, 3], [1, np.nan, 9, np.nan, 2], [-np.inf] * 5], np.float32)
    assert evaluate(definition, [array])[0].tolist() == [1, 1, 0]


def test_welford_gives_mean_and_deviation_of_odd_counts():
    x = operand("x", 2, 7)
    one, zero = build.const(1, f32), build.const(0, f32)
    parts = [
        compute(n, (2,), lambda i, n=n: reduce(COMBINERS["welford"], [7], lambda r: (x[i, r], zero, one), result=n))
        for n in range(2)
    ]
    definition = Definition((x,), tuple(parts), tuple(part.result for part in parts))
    array = random(2, 7)
    mean, deviation = evaluate(definition, [array])
    assert np.allclose(mean, array.mean(1), atol=1e-6)
    assert np.allclose(deviation, array.var(1) * 7, atol=1e-5)


def test_an_extent_may_depend_on_outer_axes():
    x = operand("x", 6)
    definition = single([x], compute("y", (6,), lambda i: reduce(SUM, [1], lambda r: x[r])))
    stage = definition.stages[0]
    prefix = type(stage.value)(SUM, stage.value.axes, (stage.axes[0] + 1,), stage.value.values, 0, f32)
    ragged = single([x], type(stage)(stage.result, stage.axes, prefix))
    array = random(6)
    assert np.allclose(evaluate(ragged, [array])[0], np.cumsum(array), atol=1e-6)


def test_later_stages_read_earlier_results():
    x = operand("x", 2, 5)
    total = compute("t", (2,), lambda i: reduce(SUM, [5], lambda r: x[i, r]))
    share = compute("y", (2, 5), lambda i, j: x[i, j] / total.result[i])
    array = np.abs(random(2, 5)) + 1
    result = evaluate(Definition((x,), (total, share), (share.result,)), [array])[0]
    assert np.allclose(result, array / array.sum(1, keepdims=True))


def scan(shape, axis, combiner, values=None, **options):
    x = operand("x", *shape)
    axes = fresh_axes(len(shape))
    read = (x[axes],) if values is None else values(x, axes)
    results = tuple(Operand(f"r{n}", v.dtype, shape) for n, v in enumerate(read))
    stage = Scan(results, axes, read, axis, combiner, **options)
    return Definition((x,), (stage,), results)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_go_either_way_with_or_without_the_element_itself(reverse, exclusive):
    array = random(3, 4)
    turned = array[::-1] if reverse else array
    expected = np.cumsum(turned, 0)
    if exclusive:
        expected = np.concatenate([np.zeros((1, 4)), expected[:-1]])
    expected = expected[::-1] if reverse else expected
    definition = scan((3, 4), 0, SUM, reverse=reverse, exclusive=exclusive)
    assert np.allclose(evaluate(definition, [array])[0], expected, atol=1e-6)


def test_an_arg_max_scan_keeps_value_and_index():
    definition = scan((6,), 0, COMBINERS["argmax"], values=lambda x, axes: (x[axes], axes[0]))
    values, indices = evaluate(definition, [np.array([1, 5, 2, 5, 7, 0], np.float32)])
    assert values.tolist() == [1, 5, 5, 5, 7, 7]
    assert indices.tolist() == [0, 1, 1, 1, 4, 4]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_left_operand_of_a_scan_comes_earlier_along_the_axis(reverse):
    # Composition of x -> scale * x + shift, which does not commute.
    compose = Combiner(
        "compose",
        lambda t: (build.const(1, t[0]), build.const(0, t[1])),
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]),
    )
    definition = scan((3,), 0, compose, lambda x, axes: (x[axes], x[axes] + 1.0), reverse=reverse)
    scales, shifts = evaluate(definition, [np.array([2, 3, 5], np.float32)])
    assert scales.tolist() == ([30, 15, 5] if reverse else [2, 6, 30])
    assert shifts.tolist() == ([71, 26, 6] if reverse else [3, 13, 71])


def scatter(size, count, combiner, dtype=f32, condition=None):
    base, places = Operand("base", dtype, (size,)), operand("places", count, dtype=i64)
    updates = Operand("updates", dtype, (count,))
    (i,), (u,) = fresh_axes(1), fresh_axes(1, "u")
    keep = None if condition is None else condition(places[u])
    result = Operand("result", dtype, (size,))
    stage = Scatter(result, base[i], (i,), (u,), (count,), (places[u],), updates[u], combiner, keep)
    return Definition((base, places, updates), (stage,), (result,))


def test_scattered_updates_replace_and_the_last_one_stays():
    result = evaluate(scatter(4, 3, None), [np.zeros(4, np.float32), np.array([1, 2, 1]), np.float32([5, 6, 7])])[0]
    assert result.tolist() == [0, 7, 6, 0]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16, dtypes.i32])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_colliding_updates_are_combined_in_order(name, dtype):
    places = np.array([0, 2, 0, 0, 2])
    updates, base = np.array([3, 4, 5, -1, 2]).astype(dtype.numpy()), np.array([1, 1, 2]).astype(dtype.numpy())
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    expected = base.astype(np.float64)
    for place, update in zip(places, updates.astype(np.float64), strict=True):
        expected[place] = ufunc(expected[place], update)
    result = evaluate(scatter(3, 5, COMBINERS[name], dtype), [base, places, updates])[0]
    assert result.dtype == dtype.numpy()
    assert result.astype(np.float64).tolist() == expected.tolist()


def test_updates_whose_condition_is_false_are_skipped():
    definition = scatter(3, 3, SUM, condition=lambda place: place >= 0)
    result = evaluate(definition, [np.zeros(3, np.float32), np.array([-1, 1, 1]), np.float32([1, 2, 3])])[0]
    assert result.tolist() == [0, 5, 0]


def test_a_scatter_outside_its_result_is_an_error():
    with pytest.raises(ShapeError, match=r"scatter into result writes at 3\.\.3 along axis 0, which has 3 elements"):
        evaluate(scatter(3, 1, None), [np.zeros(3, np.float32), np.array([3]), np.float32([1])])


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0)])
def test_scalars_and_empty_arrays_keep_their_shape(shape):
    x = operand("x", *shape)
    definition = single([x], compute("y", shape, lambda *i: x[i] * 2.0))
    result = evaluate(definition, [np.ones(shape, np.float32)])[0]
    assert result.shape == shape
    assert isinstance(result, np.ndarray)


def test_a_result_never_shares_memory_with_an_input():
    x = operand("x", 3)
    array = random(3)
    result = evaluate(single([x], compute("y", (3,), lambda i: x[i])), [array])[0]
    assert not np.shares_memory(result, array)


def test_arithmetic_stays_in_the_stated_type():
    x = Operand("x", dtypes.f16, (1,))
    definition = single([x], compute("y", (1,), lambda i: x[i] + x[i]))
    assert evaluate(definition, [np.array([40000], np.float16)])[0].tolist() == [np.inf]


def test_an_input_of_another_shape_or_type_is_refused_by_name():
    definition = matmul(2, 3, 4)
    with pytest.raises(ShapeError, match=r"input b has shape \(5, 4\), expected"):
        evaluate(definition, [random(2, 3), random(5, 4)])
    with pytest.raises(DTypeError, match="input a has dtype f64, expected f32"):
        evaluate(definition, [np.zeros((2, 3)), random(3, 4)])
    with pytest.raises(ShapeError, match=r"reads 2 arrays \(a, b\), got 1"):
        evaluate(definition, [random(2, 3)])


def test_contradicting_sizes_are_refused():
    s = dims.symbol("s")
    x, y = operand("x", s), operand("y", s)
    definition = single([x, y], compute("z", (s,), lambda i: x[i] + y[i]))
    with pytest.raises(ShapeError, match=r"input y has shape \(4,\), expected \(s\) = \(3,\) with s=3"):
        evaluate(definition, [random(3), random(4)])


def test_unbound_variables_and_program_nodes_are_refused():
    x = operand("x", 3)
    stray = build.size_var("stray")
    with pytest.raises(VerifyError, match="variable stray is bound by no axis"):
        evaluate(single([x], compute("y", (3,), lambda i: x[i] * build.cast(stray, f32))), [random(3)])
    with pytest.raises(UnsupportedOp, match="Call has no meaning in a compute definition"):
        evaluate(single([x], compute("y", (3,), lambda i: build.call("f", x[i], type=f32))), [random(3)])


@pytest.mark.parametrize("dtype", [dtypes.f8e5m2, dtypes.f8e4m3, dtypes.i4, dtypes.f4e2m1], ids=str)
def test_elements_of_types_that_numpy_does_not_know_are_moved_as_they_are(dtype):
    x = operand("x", 3, 4, dtype=dtype)
    definition = single([x], compute("y", (2, 4), lambda i, j: x[i + 1, build.index(3) - j]))
    array = np.arange(12).reshape(3, 4).astype(dtype.numpy())
    assert (evaluate(definition, [array])[0].view(np.uint8) == array[1:, ::-1].view(np.uint8)).all()
