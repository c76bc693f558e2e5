"""Programs in files of `torch.export.save`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import hidet
from hidet.cli import main
from hidet.errors import ImportFailed


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear layer on any number of rows."""
    torch.manual_seed(0)
    rows = torch.export.Dim("rows")
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.randn(2, 4),), dynamic_shapes=({0: rows},))
    path = tmp_path_factory.mktemp("programs") / "linear.pt2"
    torch.export.save(program, path)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_path_stands_for_its_program(file: Path) -> None:
    """user-walk.md section 3."""
    x = torch.randn(5, 4)
    expected = torch.export.load(file).module()(x)
    torch.testing.assert_close(hidet.compile(str(file))(x), expected)
    torch.testing.assert_close(hidet.compile(file)(x), expected)


def test_the_command_line_compiles_runs_and_measures_programs(file: Path, tmp_path: Path) -> None:
    """user-walk.md section 3."""
    saved = tmp_path / "m.hidet"
    result = run("compile", file, "-o", saved)
    assert result.exit_code == 0, result.output
    for model in (file, saved):
        result = run("run", model, "-i", "5x4", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["outputs"][0]["shape"] == [5, 3]
    result = run("bench", file, "-i", "5x4", "--against", "eager", "--seconds", "0.01", "--json")
    assert result.exit_code == 0, result.output
    seconds = json.loads(result.stdout)["seconds"]
    assert set(seconds) == {"hidet", "eager"} and seconds["eager"]["difference"] < 1e-6


def test_values_are_for_other_front_ends(file: Path) -> None:
    with pytest.raises(ImportFailed, match="values are given, which front-end torch does not take"):
        hidet.compile(str(file), values={"x": 1})


@pytest.mark.parametrize("content", (b"", b"PK\x03\x04 no archive", b"text"))
def test_a_damaged_program_is_an_error_of_hidet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(content)
    with pytest.raises(ImportFailed, match=r"bad\.pt2 is damaged, or no program"):
        hidet.compile(str(path))
    with pytest.raises(ImportFailed, match=r"absent\.pt2 cannot be read"):
        hidet.compile(str(tmp_path / "absent.pt2"))
