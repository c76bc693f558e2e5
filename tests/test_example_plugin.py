"""The third-party example: built, installed beside this environment, and used from a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin-schedule"


@pytest.mark.slow
def test_the_example_wheel_passes_its_own_tests_once_installed(tmp_path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(EXAMPLE)).build(directory=str(tmp_path), versions=["standard"])
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.startswith("hidet/")]
        archive.extractall(site)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
