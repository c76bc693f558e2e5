"""Branches, loops, and results whose number depends on data."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from hidet.errors import ImportFailed, ShapeError
from hidet.onnx.runner import OnnxRunner

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def tensors(**shapes):
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in shapes.items()]


def graph(nodes, inputs, outputs, **held):
    made = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    return helper.make_graph(nodes, "sub", inputs, results, made)


def doubled_or_summed():
    """If x's sum is positive 2 * x * w, else x with its rows twice; both read x and w from around them."""
    then = graph([node("Mul", "x w", "a"), node("Add", "a a", "b")], [], "b")
    otherwise = graph([node("Concat", "x x", "c", axis=0)], [], "c")
    return [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "positive"),
        node("If", "positive", "y", then_branch=then, else_branch=otherwise),
        node("Exp", "y", "z"),
    ]


def test_a_branch_is_chosen_by_data(make_model, run):
    model = make_model(
        doubled_or_summed(), {"x": (np.float32, ["n", 2])}, ["z"], {"w": np.float32([2, 3]), "zero": np.float32(0)}
    )
    runner = OnnxRunner(model)
    for x in (np.float32([[1, 2]]), np.float32([[-1, -2], [0, 1]])):
        expected = np.exp(2 * x * np.float32([2, 3]) if x.sum() > 0 else np.concatenate([x, x]))
        np.testing.assert_allclose(runner({"x": x})[0], expected, rtol=1e-5)
    assert len(runner.compiled) == 1


def test_a_branch_chosen_by_a_size_may_have_another_rank(make_model):
    then = graph([node("Squeeze", "x", "a")], [], "a")
    otherwise = graph([node("Identity", "x", "b")], [], "b")
    nodes = [
        node("Shape", "x", "shape"),
        node("Equal", "shape one", "is_one"),
        node("If", "is_one", "y", then_branch=then, else_branch=otherwise),
    ]
    runner = OnnxRunner(make_model(nodes, {"x": (np.float32, ["n"])}, ["y"], {"one": np.array([1])}))
    assert runner({"x": np.float32([5])})[0].shape == ()
    assert runner({"x": np.float32([5, 6])})[0].tolist() == [5, 6]


def counting(condition="more"):
    """x = x + step, stacked, until it reaches `stop` or for `trips` iterations."""
    body = graph(
        [node("Add", "before step", "after"), node("Less", "after stop", "more"), node("Identity", "after", "row")],
        tensors(i=(INT, []), goes_on=(BOOL, []), before=(FLOAT, [])),
        f"{condition} after row",
    )
    return [node("Loop", "trips start x", "last rows", body=body)]


@pytest.mark.parametrize(("trips", "stop", "count"), [(10, 3.5, 4), (2, 3.5, 2), (0, 3.5, 0)])
def test_a_loop_ends_by_its_condition_or_its_count(make_model, run, trips, stop, count):
    inputs = {"trips": (np.int64, []), "start": (np.bool_, []), "x": (np.float32, []), "stop": (np.float32, [])}
    model = make_model(counting(), inputs, ["last", "rows"], {"step": np.float32(1)})
    last, rows = run(
        model, trips=np.array(trips), start=np.array(True), x=np.float32(0).reshape(()), stop=np.array(stop, np.float32)
    )
    assert last == count and rows.tolist() == list(range(1, count + 1))


def test_a_loop_may_carry_a_value_that_grows(make_model, run):
    body = graph(
        [node("Concat", "before x", "after", axis=0), node("Identity", "goes_on", "more")],
        tensors(i=(INT, []), goes_on=(BOOL, []), before=(FLOAT, ["m"])),
        "more after",
    )
    nodes = [node("Loop", "trips", "y", body=body)]
    nodes[0].input.extend(["", "x"])
    model = make_model(nodes, {"trips": (np.int64, []), "x": (np.float32, ["n"])}, ["y"])
    x = np.float32([1, 2])
    assert run(model, trips=np.array(3), x=x).tolist() == [1, 2] * 4


def test_a_scan_may_run_backwards_along_any_axis(make_model, run):
    body = graph(
        [node("Add", "total row", "sum"), node("Identity", "sum", "out")],
        tensors(total=(FLOAT, [3]), row=(FLOAT, [3])),
        "sum out",
    )
    attributes = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [1]}
    nodes = [node("Scan", "start x", "last sums", body=body, **attributes)]
    model = make_model(nodes, {"start": (np.float32, [3]), "x": (np.float32, [3, "n"])}, ["last", "sums"])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    last, sums = run(model, start=np.zeros(3, np.float32), x=x)
    np.testing.assert_array_equal(last, x.sum(1))
    np.testing.assert_array_equal(sums, np.cumsum(x[:, ::-1], 1))


def test_what_depends_on_the_number_of_nonzeros_is_compiled_once(make_model):
    nodes = [node("NonZero", "x", "places"), node("Cast", "places", "y", to=FLOAT), node("Relu", "y", "z")]
    runner = OnnxRunner(make_model(nodes, {"x": (np.float32, ["n", 3])}, ["z"]))
    for x in (np.float32([[0, 1, 2]]), np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)):
        np.testing.assert_array_equal(runner({"x": x})[0], np.array(np.nonzero(x), np.float32))
    assert len(runner.compiled) == 1


def test_a_branch_that_reads_an_unknown_name_is_refused(make_model):
    then = graph([node("Relu", "nobody", "a")], [], "a")
    nodes = [node("If", "p", "y", then_branch=then, else_branch=then)]
    with pytest.raises(ImportFailed, match="'nobody', which no node before it computes"):
        OnnxRunner(make_model(nodes, {"p": (np.bool_, [])}, ["y"]))


def test_iterations_that_stack_different_shapes_are_refused(make_model, run):
    body = graph(
        [node("Concat", "before x", "after", axis=0), node("Identity", "goes_on", "more")],
        tensors(i=(INT, []), goes_on=(BOOL, []), before=(FLOAT, ["m"])),
        "more after after",
    )
    nodes = [node("Loop", "trips", "y rows", body=body)]
    nodes[0].input.extend(["", "x"])
    model = make_model(nodes, {"trips": (np.int64, []), "x": (np.float32, ["n"])}, ["rows"])
    with pytest.raises(ShapeError, match="cannot be stacked"):
        run(model, trips=np.array(3), x=np.float32([1]))


def test_models_with_control_flow_are_saved_and_loaded(make_model, tmp_path):
    import hidet
    from hidet.onnx import from_onnx

    model = make_model(
        doubled_or_summed(), {"x": (np.float32, ["n", 2])}, ["z"], {"w": np.float32([2, 3]), "zero": np.float32(0)}
    )
    hidet.compile(from_onnx(model), target="cpu").save(tmp_path / "model.hidet")
    x = np.float32([[-1, -2]])
    np.testing.assert_allclose(hidet.load(tmp_path / "model.hidet")(x), np.exp(np.concatenate([x, x])), rtol=1e-5)
