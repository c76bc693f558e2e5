"""The third-party examples: built, installed beside this environment, and used from a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

EXAMPLES = sorted(path.parent for path in Path(__file__).parents[1].glob("examples/*/pyproject.toml"))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_wheel_passes_its_own_tests_once_installed(example: Path, tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(example)).build(directory=str(tmp_path), versions=["standard"])
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.startswith("hidet/")]
        archive.extractall(site)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(example / "tests")]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
