"""Wheels that tests build and install into a folder."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"

[project.entry-points."hidet.plugins"]
{package} = "{package}._plugin"
"""


def _install(project: Path, folder: Path) -> Path:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def install_wheel(tmp_path: Path) -> Callable[[Path], Path]:
    """Builds the wheel of a project and unpacks it. Gives the folder for PYTHONPATH."""
    return lambda project: _install(project, tmp_path / "installed")


@pytest.fixture
def wheel_of(tmp_path: Path, install_wheel: Callable[[Path], Path]) -> Callable[[str, Mapping[str, str]], Path]:
    """Makes a project of a plug-in, by its name and the text of each file, and does as `install_wheel`."""

    def make(name: str, files: Mapping[str, str]) -> Path:
        project, package = tmp_path / "project", name.replace("-", "_")
        (project / package).mkdir(parents=True)
        (project / "pyproject.toml").write_text(PYPROJECT.format(name=name, package=package))
        for file, text in {"__init__.py": "", **files}.items():
            (project / package / file).write_text(text)
        return install_wheel(project)

    return make
