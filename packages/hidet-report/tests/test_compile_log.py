"""`hidet cache log`, and `hidet completion`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import hidet
from hidet.cli import main
from hidet.report import compile_log
from hidet.report.compile_log import log_path, read_log


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compile_relu(size: int, **options: object) -> None:
    x = hidet.symbol([size], dtype="float32")
    hidet.compile(hidet.trace_from(hidet.ops.relu(x)), options=options)


def test_a_compilation_is_a_line_and_what_was_found_is_counted() -> None:
    compile_relu(7)
    compile_relu(7)
    first, second = read_log()
    assert (first.target, first.nodes, first.cached) == ("cpu", 1, 0)
    assert second.cached == second.modules > 0
    assert 0 < first.seconds < 60 and first.when <= second.when


def test_a_compilation_without_the_cache_leaves_no_line() -> None:
    compile_relu(7, cache=False)
    assert not list(read_log()) and not log_path().exists()


def test_the_command_shows_the_newest_lines() -> None:
    assert "nothing was compiled yet" in CliRunner().invoke(main, ["cache", "log"]).stdout
    for size in (3, 4, 5):
        compile_relu(size)
    shown = CliRunner().invoke(main, ["cache", "log", "-n", "2"]).stdout.splitlines()
    assert len(shown) == 3 and shown[0].split()[:3] == ["when", "seconds", "target"]
    assert len(json.loads(CliRunner().invoke(main, ["cache", "log", "--json"]).stdout)) == 3


def test_damaged_lines_are_left_out_and_a_long_log_loses_its_older_half(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_relu(3)
    with log_path().open("a") as file:
        file.write('{\n[1]\n{"when": 1}\n')
    assert len(list(read_log())) == 1
    monkeypatch.setattr(compile_log, "_MOST_BYTES", 600)
    for _ in range(12):
        compile_relu(3)
    assert 1 <= len(list(read_log())) < 8
    assert log_path().stat().st_size < 900


def test_a_log_that_cannot_be_written_stops_no_compilation(own_cache: Path) -> None:
    (own_cache / "compiled.jsonl").mkdir(parents=True)
    own_cache.chmod(0o700)
    compile_relu(3)
    assert not list(read_log())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    assert "_HIDET_COMPLETE" in CliRunner().invoke(main, ["completion", shell]).stdout


def test_commands_of_plugins_are_completed() -> None:
    environment = {**os.environ, "COMP_WORDS": "hidet cache l", "COMP_CWORD": "2", "_HIDET_COMPLETE": "bash_complete"}
    program = "from hidet.cli import main; main(prog_name='hidet')"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["plain,log"]
