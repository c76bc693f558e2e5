"""`hidet bench` on a model in a file."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from hidet.cli import main


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    x = helper.make_tensor_value_info("x.1", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Exp", ["x.1"], ["y"])], "g", [x], [y])
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), file)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments), "--seconds", "0.01"])


def test_latencies_stand_in_a_table(model: Path) -> None:
    result = run(model, "-i", "x.1=2x4")
    assert result.exit_code == 0, result.output
    assert "median ms" in result.output
    assert "hidet" in result.output


def test_a_peer_is_measured_and_compared_in_the_same_run(model: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = run(model, "-i", "2x4", "--against", "onnxruntime", "--json")
    assert result.exit_code == 0, result.output
    seconds = json.loads(result.stdout)["seconds"]
    assert set(seconds) == {"hidet", "onnxruntime"}
    assert seconds["onnxruntime"]["difference"] < 1e-6
    assert all(row["calls"] >= 9 and row["median"] > 0 for row in seconds.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "input x_1 is f32[n, 4]: give its shape"),
        (["-i", "z=2x4"], "no such input; the model takes x_1"),
        (["--against", "magic"], "--against magic: unknown for this kind of model; known: onnxruntime"),
        (["--threads", "0"], "0 is not in the range"),
    ],
)
def test_what_does_not_fit_is_named(model: Path, arguments: list[str], message: str) -> None:
    result = run(model, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_what_was_compiled_is_measured(model: Path, tmp_path: Path) -> None:
    """user-walk.md bug 6."""
    saved = tmp_path / "m.hidet"
    assert CliRunner().invoke(main, ["compile", str(model), "-o", str(saved)]).exit_code == 0
    result = run(saved, "-i", "2x4", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["seconds"]["hidet"]["median"] > 0
    for option, message in (
        ("--against=onnxruntime", "nothing else runs"),
        ("--threads=2", "--threads does not apply"),
    ):
        refused = run(saved, "-i", "2x4", option)
        assert refused.exit_code == 2 and message in refused.output


def test_a_text_graph_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "m.hir"
    file.write_text("graph g(%x: f32[4]):\n  %0: f32[4] = exp(%x)\n  return %0\n")
    assert run(file).exit_code == 0
    refused = run(file, "--against", "onnxruntime")
    assert refused.exit_code == 2 and "known: none" in refused.output


def test_a_peer_gets_inputs_that_are_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    x = helper.make_tensor_value_info("x.1", TensorProto.FLOAT, [2, 3])
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Unsqueeze", ["x.1", "axes"], ["y"])], "g", [x, axes], [y])
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), file)
    result = run(file, "-i", "axes=[1]", "--against", "onnxruntime", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["seconds"]["onnxruntime"]["difference"] == 0
