"""`hidet compile` and `hidet run` on a graph in a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hidet.cli import main

TEXT = """
symbol s0: 1..64
graph scaled(%x: f32[s0, 4], %y: f32[4]):
  %0: f32[s0, 4] = mul(%x, %y)
  return %0
"""


@pytest.fixture(autouse=True)
def own_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.hir"
    file.write_text(TEXT)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_compile_reports_inputs_and_what_became_of_the_nodes(model: Path) -> None:
    result = run("compile", model)
    assert result.exit_code == 0, result.output
    assert "input    x: f32[s0, 4]\n" in result.output
    assert "1 scheduled, 0 on the fallback nest" in result.output


def test_what_compile_saves_runs_on_files(model: Path, tmp_path: Path) -> None:
    x, y = np.arange(8, dtype=np.float32).reshape(2, 4), np.full(4, 3, np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    saved = tmp_path / "model.hidet"
    assert run("compile", model, "-o", saved, "--option", "threads=1").exit_code == 0
    given = ("-i", f"y={tmp_path / 'y.npy'}", "-i", tmp_path / "x.npy")
    result = run("run", saved, *given, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "output 0  float32[2, 4]: least 0, mean 10.5, greatest 21" in result.output
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "output0.npy"), x * y)


def test_random_inputs_need_a_shape_where_the_model_leaves_it_open(model: Path) -> None:
    refused = run("run", model)
    assert refused.exit_code == 2
    assert "input x is f32[s0, 4]: give its shape" in refused.output
    result = run("run", model, "-i", "x=3x4", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outputs"][0]["shape"] == [3, 4]
    assert run("run", model, "-i", "x=3x4", "--json").stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "z=3x4"], "no such input; the model takes x, y"),
        (["-i", "x=3x4", "-i", "x=3x4"], "input x is given twice"),
        (["-i", "x=three"], "'three' is neither a .npy file, a shape"),
        (["-i", "x=missing.npy"], "missing.npy is no readable .npy file"),
        (["-i", "x=3x5"], "x"),
        (["--option", "threds=2"], "option 'threds' is unknown"),
        (["--option", "threads"], "expected NAME=VALUE"),
    ],
)
def test_what_does_not_fit_is_named(model: Path, arguments: list[str], message: str) -> None:
    result = run("run", model, *arguments)
    assert result.exit_code in (1, 2), result.output
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_saved_model_takes_no_options_of_the_compiler(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model.hidet"
    run("compile", model, "-o", saved)
    result = run("run", saved, "-i", "x=1x4", "--option", "threads=1")
    assert result.exit_code == 2
    assert "is compiled already" in result.output


def test_a_damaged_file_gives_a_message(tmp_path: Path) -> None:
    file = tmp_path / "bad.hir"
    file.write_bytes(b"\xff\xfe")
    result = run("compile", file)
    assert result.exit_code == 1
    assert "cannot be read" in result.output
