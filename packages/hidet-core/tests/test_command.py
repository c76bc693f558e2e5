"""The command where another package has the name `hidet`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import hidet_command
import pytest


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m hidet_command` with a folder before all others."""
    command = [sys.executable, "-m", "hidet_command", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def install(folder: Path, name: str, files: dict[str, str]) -> None:
    """What an installer writes of a distribution. files: their digests by their paths."""
    info = folder / f"{name}-0.6.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0.6.1\n")
    (info / "RECORD").write_text("".join(f"{path},{digest},1\n" for path, digest in files.items()))


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """hidet-core, and in place of its package a file that it has not installed."""
    (tmp_path / "hidet").mkdir()
    (tmp_path / "hidet" / "__init__.py").write_text("import tomlkit_of_the_other\n")
    shutil.copy(hidet_command.__file__, tmp_path)
    install(tmp_path, "hidet_core", {"hidet/__init__.py": f"sha256={'A' * 43}", "hidet_command.py": ""})
    return tmp_path


@pytest.fixture
def mixed(core: Path) -> Path:
    """hidet-core, and the distribution hidet installed over it."""
    install(core, "hidet", {"hidet/__init__.py": f"sha256={'B' * 43}"})
    return core


def test_the_command_runs_where_the_package_is_ours(tmp_path) -> None:
    shown = run(tmp_path, "--version")
    assert shown.returncode == 0 and shown.stdout.startswith("hidet, version ")


def test_a_folder_with_the_name_of_the_package_is_named(tmp_path) -> None:
    (tmp_path / "hidet").mkdir()
    (tmp_path / "hidet" / "__init__.py").touch()
    shown = run(tmp_path, "doctor")
    assert shown.returncode == 1
    assert f"`import hidet` finds {tmp_path}/hidet/__init__.py, before " in shown.stderr
    assert "rename that folder" in shown.stderr


def test_a_distribution_whose_files_are_mixed_with_ours_is_named(mixed) -> None:
    shown = run(mixed, "doctor")
    assert shown.returncode == 1 and "Traceback" not in shown.stderr
    assert f"the files of distribution 'hidet' 0.6.1 are mixed with ours in {mixed}/hidet" in shown.stderr
    assert "pip uninstall hidet, then pip install --force-reinstall --no-deps hidet-core" in shown.stderr


def test_a_file_that_somebody_has_written_over_ours_is_named(core) -> None:
    shown = run(core, "doctor")
    assert shown.returncode == 1
    assert f"{core}/hidet/__init__.py is not the file that hidet-core 0.6.1 installed" in shown.stderr


def test_what_is_wrong_with_the_name_is_printed_as_json(mixed) -> None:
    (check,) = json.loads(run(mixed, "doctor", "--json").stdout)
    assert (check["name"], check["status"]) == ("import name", "fail")
    assert check["hint"].startswith("pip uninstall hidet, then")
