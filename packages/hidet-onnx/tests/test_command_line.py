"""The command line on ONNX models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

import hidet
from hidet.cli import main
from hidet.errors import ImportFailed, ValueNeeded
from hidet.onnx import OnnxRunner, from_onnx
from hidet.plugins import use, without

Make = Callable[..., onnx.ModelProto]
F32 = np.float32


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [helper.make_empty_tensor_value_info("r")])


@pytest.fixture
def by_rate(make_model: Make, tmp_path: Path) -> Path:
    """Branches whose results differ in rank, chosen by sr; the one of 8000 takes 256 samples alone, and whether the
    other one adds an axis depends on a size."""
    inner = helper.make_node(
        "If",
        ["is_one"],
        ["r"],
        then_branch=branch(helper.make_node("Squeeze", ["x", "axis"], ["r"])),
        else_branch=branch(helper.make_node("Identity", ["x"], ["r"])),
    )
    slow = branch(helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Squeeze", ["m"], ["r"]))
    fast = branch(
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Equal", ["shape", "one"], ["is_one"]),
        inner,
    )
    nodes = [
        helper.make_node("Equal", ["sr", "slow"], ["is_slow"]),
        helper.make_node("If", ["is_slow"], ["y"], then_branch=slow, else_branch=fast),
    ]
    held = {"slow": np.array(8000), "one": np.array([1]), "axis": np.array([0]), "w": np.ones((256, 1), F32)}
    inputs = {"x": (F32, ["batch", "n"]), "sr": (np.int64, [])}
    path = tmp_path / "by_rate.onnx"
    onnx.save(make_model(nodes, inputs, ["y"], held), path)
    return path


def shape_of(result: Result) -> list[int]:
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["outputs"][0]["shape"])


def test_run_takes_a_number_for_an_input_that_branches_depend_on(by_rate: Path) -> None:
    """user-walk.md bug 1."""
    assert shape_of(run("run", by_rate, "-i", "x=1x512", "-i", "sr=16000", "--json")) == [512]
    assert shape_of(run("run", by_rate, "-i", "x=3x512", "-i", "sr=16000", "--json")) == [3, 512]
    assert shape_of(run("run", by_rate, "-i", "x=3x256", "-i", "sr=8000", "--json")) == [3]
    assert shape_of(run("run", by_rate, "-i", "sr=16000", "--shape", "x=1x512", "--json")) == [512]


def test_run_takes_a_number_from_a_file(by_rate: Path, tmp_path: Path) -> None:
    """user-walk.md section 3."""
    np.save(tmp_path / "sr.npy", np.array(16000))
    assert shape_of(run("run", by_rate, "-i", "x=1x512", "-i", f"sr={tmp_path / 'sr.npy'}", "--json")) == [512]


def test_what_is_not_given_is_named_with_the_way_to_give_it(by_rate: Path) -> None:
    """user-walk.md bug 1: the message dropped the input's name."""
    result = run("compile", by_rate)
    assert result.exit_code == 1
    assert "input 'sr'" in result.output and "--value sr=" in result.output and "values={'sr'" in result.output
    result = run("compile", by_rate, "--value", "sr=16000")
    assert result.exit_code == 1
    assert "the sizes of input 'x'" in result.output and "--shape x=" in result.output


def test_a_model_is_compiled_for_a_value_and_a_shape_and_saved(by_rate: Path, tmp_path: Path) -> None:
    """user-walk.md bug 1."""
    saved = tmp_path / "m.hidet"
    result = run("compile", by_rate, "--value", "sr=16000", "--shape", "x=1x4", "-o", saved)
    assert result.exit_code == 0, result.output
    assert "input    x: f32[1, 4]\nbuilt in sr\n" in result.output
    x = np.arange(4, dtype=F32)[None]
    np.testing.assert_array_equal(hidet.load(saved)(x), x[0])
    again = run("compile", saved, "--value", "sr=8000")
    assert again.exit_code == 2 and "--value do not apply" in again.output


def test_values_are_given_to_from_onnx_and_compile_as_numbers(by_rate: Path) -> None:
    with pytest.raises(ValueNeeded) as caught:
        from_onnx(by_rate)
    assert caught.value.deciding == ("sr",) and caught.value.shapes == ("x",)
    x = np.ones((3, 256), F32)
    np.testing.assert_array_equal(
        hidet.compile(str(by_rate), values={"sr": 8000}, shapes={"x": (3, 256)})(x), [256] * 3
    )
    with pytest.raises(ImportFailed, match=r"input 'sr' is 0\.5, which i64 cannot hold"):
        from_onnx(by_rate, values={"sr": 0.5})
    with pytest.raises(ImportFailed, match="a value is given for 'rate', which is no input: x, sr"):
        from_onnx(by_rate, values={"rate": 8000})


def test_a_front_end_without_values_says_so() -> None:
    graph = hidet.compile  # a graph's inputs say what they are
    b = hidet.graph.GraphBuilder({})
    with pytest.raises(ImportFailed, match="values are given for a graph"):
        graph(b.build([]), values={"x": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "x=1x4", "-i", "sr=1.5"], "input 'sr' is 1.5, which i64 cannot hold"),
        (["-i", "x=1x4", "-i", "sr=[1,2]"], "input 'sr' is [2], the model declares []"),
        (["-i", "x=1x4", "-i", "sr=16k"], "'16k' is neither a .npy file, a shape"),
        (["--shape", "x=[1]"], "--shape x=[1]: expected a shape"),
        (["--value", "sr=1x4"], "--value sr=1x4: expected a .npy file, a number"),
        (["--value", "sr"], "--value sr: expected NAME=VALUE"),
        (["--value", "sr=1", "--value", "sr=2"], "input sr is given twice"),
        (["--value", "q=1"], "a value is given for 'q', which is no input"),
    ],
)
def test_what_does_not_fit_is_named(by_rate: Path, arguments: list[str], message: str) -> None:
    result = run("run", by_rate, *arguments)
    assert result.exit_code in (1, 2), result.output
    assert message in result.output
    assert "Traceback" not in result.output


def test_numbers_and_lists_are_inputs(make_model: Make, tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["a"]), helper.make_node("Mul", ["a", "s"], ["y"])]
    inputs = {"x": (F32, [3]), "i": (np.int64, ["n"]), "s": (F32, [1])}
    onnx.save(make_model(nodes, inputs, ["y"]), tmp_path / "m.onnx")
    result = run("run", tmp_path / "m.onnx", "-i", "x=[5,6,7]", "-i", "i=[2,0]", "-i", "s=-2", "--json")
    facts = json.loads(result.stdout)["outputs"][0]
    assert (facts["shape"], facts["least"], facts["greatest"]) == ([2], -14, -10)
    # A number is a shape where there is an axis for it, and names may be written as the model has them.
    assert shape_of(run("run", tmp_path / "m.onnx", "-i", "i=4", "-i", "s=4", "--json")) == [4]


def test_check_says_how_much_is_supported(make_model: Make, tmp_path: Path) -> None:
    """user-walk.md section 3."""
    body = helper.make_graph(
        [helper.make_node("Odd", ["x"], ["r"])], "b", [], [helper.make_empty_tensor_value_info("r")]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body),
    ]
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    inputs = {"x": (F32, [2]), "p": (np.bool_, [])}
    onnx.save(make_model(nodes[:2], inputs, ["b"], opset=17), good)
    onnx.save(make_model(nodes, inputs, ["y"], opset=17), bad)
    result = run("check", good)
    assert result.exit_code == 0
    assert "opset      ai.onnx 17\nnodes      2, 2 of them supported (100 %)" in result.output
    result = run("check", bad)
    assert result.exit_code == 1
    assert "nodes      5, 3 of them supported (60 %)" in result.output
    assert "not supported: Odd (opset 17)" in result.output
    told = json.loads(run("check", bad, "--json").stdout)
    assert told["operators"] == {"Relu": 2, "If": 1, "Odd": 2}
    assert told["supported_percent"] == 60 and told["unsupported"][0]["operator"] == "Odd"


def test_the_runner_takes_arrays_in_order_by_keyword_and_numbers(make_model: Make) -> None:
    """user-walk.md section 6, rows 7 and 8."""
    nodes = [helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["x", "f"], ["y"])]
    runner = OnnxRunner(make_model(nodes, {"x": (F32, ["n"]), "k": (np.int64, [])}, ["y"]))
    x = np.ones(3, F32)
    calls: list[Callable[[], Any]] = [
        lambda: runner({"x": x, "k": np.array(4)}),
        lambda: runner({"x": x, "k": 4}),
        lambda: runner(x, 4),
        lambda: runner(x, k=4),
        lambda: runner(k=np.int64(4), x=x),
        lambda: runner.run([x, 4]),
    ]
    for call in calls:
        np.testing.assert_array_equal(call()[0], [4, 4, 4])


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((np.ones(3, F32),), {}, "the model takes inputs x, k, got x"),
        ((np.ones(3, F32), 1, 2), {}, "the model takes 2 inputs, got 3"),
        ((np.ones(3, F32), 1), {"k": 1}, "input 'k' is given twice"),
        ((np.ones(3, F32), 1.5), {}, r"input 'k' is 1\.5, which i64 cannot hold"),
        ((np.ones(3, F32), 2**70), {}, "input 'k' is"),
    ],
)
def test_calls_that_do_not_fit_say_how_to_call(make_model: Make, given: Any, named: Any, message: str) -> None:
    """user-walk.md section 6, rows 7 and 8."""
    nodes = [helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["x", "f"], ["y"])]
    runner = OnnxRunner(make_model(nodes, {"x": (F32, ["n"]), "k": (np.int64, [])}, ["y"]))
    with pytest.raises(ImportFailed, match=message):
        runner(*given, **named)


def test_an_imported_graph_is_optimized(make_model: Make) -> None:
    """user-walk.md section 6, row 6."""
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Exp", ["x"], ["b"])]
    nodes.append(helper.make_node("Add", ["a", "b"], ["y"]))
    found = hidet.graph.optimize(from_onnx(make_model(nodes, {"x": (F32, [3])}, ["y"])))
    assert [node.op.name for node in found.nodes] == ["exp", "add"]


def test_check_accuracy_is_the_command_of_another_wheel() -> None:
    class Other:
        HIDET_API = 1

        def hidet_commands(self, cli: Any) -> None:
            cli.add("accuracy", load="hidet.cli.verify:verify", doc="", replaces="accuracy")

    with use(Other()) as registry:
        asked = run("check", "--accuracy", "--help").output
    assert registry.commands["accuracy"].load == "hidet.cli.verify:verify"
    assert "accuracy [OPTIONS] ARTIFACT" in asked and "Check the digests and the program of ARTIFACT" in asked
    with without("report"):
        told = run("check", "--accuracy", "model.onnx")
    assert told.exit_code == 2 and "hidet-report" in told.output
