"""Operators of users: definitions, programs of their own, and what compiles them."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.compat.task_operator import with_formulas_in_place
from hidet.errors import DTypeError, ScheduleError, ShapeError, UnsupportedOp, VerifyError
from hidet.graph import Operator
from hidet.graph.ops.utils import input_like, normalize_padding, normalize_stride
from hidet.ir.compute import arg_reduce, compute, reduce, scalar_input, tensor_input
from hidet.ir.expr import if_then_else, logical_and
from hidet.ir.layout import column_major
from hidet.ir.library import tune
from hidet.ir.primitives import exp, pow
from hidet.ir.task import Task
from hidet.lang import f32, grid

# scripts read what is around them at once


def run(task, *inputs):
    (output,) = hidet.drivers.build_task(task, "cpu").run_async(inputs)
    return output.numpy()


@pytest.fixture
def x():
    np.random.seed(0)
    return hidet.randn([4, 6])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", lambda x: x.sum(1)),
        ("avg", lambda x: x.mean(1)),
        ("max", lambda x: x.max(1)),
        ("min", lambda x: x.min(1)),
        ("prod", lambda x: x.prod(1)),
    ],
)
def test_rows_are_reduced_as_their_kind_says(kind, expected, x) -> None:
    a = tensor_input("a", "float32", [4, 6])
    task = Task("rows", [a], [compute("c", [4], lambda i: reduce([6], lambda j: a[i, j], kind))])
    np.testing.assert_allclose(run(task, x), expected(x.numpy()), rtol=1e-5)


def test_conditions_are_reduced_to_whether_all_or_some_hold(x) -> None:
    a = tensor_input("a", "float32", [4, 6])
    for kind, expected in (("and", np.all), ("or", np.any)):
        task = Task("rows", [a], [compute("c", [4], lambda i, kind=kind: reduce([6], lambda j: a[i, j] > 0.5, kind))])
        assert (run(task, x) == expected(x.numpy() > 0.5, axis=1)).all()


def test_halves_are_summed_in_the_type_that_is_asked_for() -> None:
    a = tensor_input("a", "float16", [4096])
    ones = hidet.ones([4096], "float16")
    task = Task("total", [a], [compute("c", [], lambda: reduce([4096], lambda j: a[j], "sum"))])
    assert run(task, ones) == 4096.0  # a sum of halves stops at 2048


def test_places_of_extremes_are_those_of_the_first() -> None:
    a = tensor_input("a", "float32", [4])
    for kind, place in (("max", 1), ("min", 0)):
        task = Task("place", [a], [compute("c", [], lambda kind=kind: arg_reduce(4, lambda j: a[j], kind, "int32"))])
        found = run(task, hidet.asarray([0.0, 3.0, 3.0, 0.0]))
        assert found == place and found.dtype == np.int32


def test_formulas_compute_as_scripts_do(x) -> None:
    a, s = tensor_input("a", "float32", [4, 6]), scalar_input("s", "float32")
    inside = compute(
        "c",
        [4, 6],
        lambda i, j: if_then_else(logical_and(i > 0, j % 2 == 0), a[i][j] * i / 2 + pow(s[()], 2), -1),
    )
    row, column = np.meshgrid(np.arange(4), np.arange(6), indexing="ij")
    expected = np.where((row > 0) & (column % 2 == 0), x.numpy() * row / 2 + 9.0, -1)
    np.testing.assert_allclose(run(Task("mixed", [a, s], [inside]), x, hidet.asarray(3.0)), expected, rtol=1e-6)


def test_sizes_may_be_known_at_run_time_only() -> None:
    n = hidet.symbol_var("n")
    a = tensor_input("a", "float32", [n])
    task = Task("mean", [a], [compute("c", [n], lambda i: a[i] - reduce([n], lambda j: a[j], "avg"))])
    compiled = task.build("cpu")
    for size in (3, 5):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_allclose(compiled(hidet.asarray(x)).numpy(), x - x.mean())


def test_a_formula_that_one_stage_reads_once_takes_no_memory(x) -> None:
    a = tensor_input("a", "float32", [4, 6])
    powers = compute("powers", [4, 6], lambda i, j: exp(a[i, j]))
    sums = compute("sums", [4], lambda i: reduce([6], lambda j: powers[i, j], "sum"))
    task = Task("shares", [a], [compute("c", [4, 6], lambda i, j: powers[i, j] / sums[i])])
    assert len(task.definition.stages) == 3
    assert len(with_formulas_in_place(task.definition).stages) == 2
    expected = np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True)
    np.testing.assert_allclose(run(task, x), expected, rtol=1e-5)


def test_a_formula_that_a_product_reads_often_is_computed_once() -> None:
    a = tensor_input("a", "float32", [4, 6])
    powers = compute("powers", [4, 6], lambda i, j: exp(a[i, j]))
    product = compute("c", [4, 4], lambda i, j: reduce([6], lambda k: powers[i, k] * powers[j, k], "sum"))
    assert len(with_formulas_in_place(Task("gram", [a], [product]).definition).stages) == 2


def test_a_task_shows_what_it_means() -> None:
    a = tensor_input("a", "float32", [4])
    text = str(Task("twice", [a], [compute("c", [4], lambda i: a[i] * 2.0)], attributes={"factor": 2}))
    assert "twice(a: float32[4]) -> (c: float32[4])" in text
    assert "a[i0] * 2.0" in text and "factor = 2" in text


def test_a_task_takes_all_that_it_reads() -> None:
    a, b = (tensor_input(name, "float32", [4]) for name in "ab")
    with pytest.raises(VerifyError, match="reads b, which is none of its inputs"):
        Task("sum", [a], [compute("c", [4], lambda i: a[i] + b[i])])


def test_what_nobody_knows_is_refused_by_name() -> None:
    a = tensor_input("a", "float32", [4])
    with pytest.raises(UnsupportedOp, match="reduction 'mean' is unknown"):
        reduce([4], lambda i: a[i], "mean")
    with pytest.raises(UnsupportedOp, match="row-major"):
        tensor_input("a", "float32", [4, 4], layout=column_major(4, 4))


class Scaled(Operator):
    def __init__(self, x, factor=2.0, implement=None):
        a = input_like(x, "a")
        c = compute("c", a.shape, lambda i, j: a[i, j] * factor)
        task_class = type("Scale", (Task,), {} if implement is None else {"implement_cpu": implement})
        super().__init__([x], {"factor": factor}, task_class("scale", [a], [c], attributes={"factor": factor}))


def scale_module(columns=6, rows=4):
    with hidet.script_module() as module:

        @hidet.script
        def scale(x: f32[rows, columns], y: f32[rows, columns]):
            for i, j in grid(rows, columns):
                y[i, j] = x[i, j] * 3.0

    return module.ir_module()


def test_an_operator_of_a_user_fuses_with_what_is_around_it(x) -> None:
    symbol = hidet.symbol_like(x)
    graph = hidet.trace_from(hidet.ops.relu(Scaled(symbol).outputs[0] + 1.0))
    assert isinstance(graph.nodes[0], Scaled) and not isinstance(graph.nodes[1], Scaled)
    assert str(hidet.graph.optimize(graph)).count("fused_graph=") == 1
    np.testing.assert_allclose(graph(x).numpy(), np.maximum(x.numpy() * 2 + 1, 0))


def test_two_tasks_of_one_name_are_two_operators(x) -> None:
    symbol = hidet.symbol_like(x)
    both = hidet.trace_from(Scaled(symbol, 2.0).outputs[0] - Scaled(symbol, 3.0).outputs[0])
    np.testing.assert_allclose(both(x).numpy(), -x.numpy(), rtol=1e-6)
    np.testing.assert_allclose(Scaled(x, 5.0).outputs[0].numpy(), x.numpy() * 5)


def test_a_graph_with_an_operator_of_a_user_is_saved_as_code_alone(x, tmp_path) -> None:
    graph = hidet.trace_from(Scaled(hidet.symbol_like(x)).outputs[0])
    graph.build().save(tmp_path / "scaled.hidet")
    assert hidet.load(tmp_path / "scaled.hidet")(x.numpy()).tolist() == (2 * x.numpy()).tolist()
    with pytest.raises(UnsupportedOp, match="operators of one's own, task, is not saved"):
        hidet.save_graph(graph, tmp_path / "graph")


def test_sizes_of_a_graph_with_an_operator_of_a_user_may_change() -> None:
    symbol = hidet.symbol(["n", 3])
    graph = hidet.trace_from(hidet.ops.relu(Scaled(symbol).outputs[0]))
    for rows in (4, 2):
        assert graph(hidet.ones([rows, 3])).tolist() == [[2.0] * 3] * rows


def test_an_operator_on_tensors_is_computed_as_it_is_written(x) -> None:
    with hidet.graph.PassContext() as context:
        context.set_precision("float16")
        found = Scaled(x, 1.0 / 3.0).outputs[0].numpy()
    np.testing.assert_allclose(found, x.numpy() / 3, rtol=1e-6)


def test_a_program_of_the_task_takes_the_place_of_its_definition(x) -> None:
    operator = Scaled(x, implement=lambda task, working_dir: scale_module())
    np.testing.assert_allclose(operator.get_output(0).numpy(), x.numpy() * 3)
    undecided = Scaled(x, implement=lambda task, working_dir: (_ for _ in ()).throw(NotImplementedError))
    np.testing.assert_allclose(undecided.run()[0].numpy(), x.numpy() * 2)


def test_a_program_with_other_parameters_is_refused(x) -> None:
    with pytest.raises(ShapeError, match="parameter x of the program of scale"):
        Scaled(x, implement=lambda task, working_dir: scale_module(columns=5))
    with pytest.raises(DTypeError, match="no tensor of float64"):
        Scaled(x.astype("float64"), implement=lambda task, working_dir: scale_module())


@pytest.mark.parametrize(("level", "count"), [(0, 1), (1, 2), (2, 3)])
def test_a_space_has_as_many_programs_as_its_level_says(level, count, x) -> None:
    tried = []

    @tune.space(1, factor=[1, 2])
    @tune.space(2, **{"factor, rows": [(1, 4), (2, 4), (3, 4), (3, 5)]})
    def schedule(task, factor=1, rows=4):
        tune.check(rows == 4, "the tensor has 4 rows")
        tried.append(factor)
        return scale_module()

    with hidet.option.context():
        hidet.option.search_space(level)
        operator = Scaled(x, implement=lambda task, working_dir: tune.extract_ir_modules(schedule, task))
    assert len(tried) == count
    np.testing.assert_allclose(operator.outputs[0].numpy(), x.numpy() * 3)


def test_numbers_of_a_point_are_logged(caplog) -> None:
    with caplog.at_level("DEBUG", logger="hidet"):
        tune.metric("bytes", 4096)
    assert caplog.messages == ["test_numbers_of_a_point_are_logged: bytes = 4096"]


def test_a_space_without_a_possible_point_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="no point of the space of schedule"):
        tune.extract_ir_modules(schedule)


def test_programs_are_measured_as_often_as_is_said(x, monkeypatch) -> None:
    seen = []

    def profile(self, *tensors, warmup, number, repeat):
        seen.append((warmup, number, repeat))
        return [1.0]

    monkeypatch.setattr(hidet.runtime.CompiledModule, "profile", profile)
    with hidet.option.context():
        hidet.option.search_space(1)
        hidet.option.bench_config(2, 3, 4)
        Scaled(x, implement=lambda task, working_dir: [scale_module(), scale_module()])
        hidet.option.set_option("bench_config", (5, 6, 7))
        assert hidet.option.get_bench_config() == (5, 6, 7)
    assert seen == [(2, 3, 4)] * 2


def schedule():
    tune.check(False, "never")


def test_a_compiled_task_is_measured_and_makes_its_outputs(x) -> None:
    a = tensor_input("a", "float32", [4, 6])
    compiled = Task("twice", [a], [compute("c", [4, 6], lambda i, j: a[i, j] * 2.0)]).build("cpu")
    assert len(compiled.profile(x, number=1, repeat=3)) == 3
    assert compiled.create_outputs()[0].shape == (4, 6)


def test_numbers_of_axes_are_completed() -> None:
    assert normalize_stride(2) == [2, 2] and normalize_stride([1, 2]) == [1, 2]
    assert normalize_padding([1, 2]) == [1, 2, 1, 2] and normalize_padding([1, 2, 3, 4]) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="2 of them"):
        normalize_stride([1, 2, 3])
