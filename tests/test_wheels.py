"""The built wheels: disjoint, complete, with the metadata that makes them find each other.

`nox -s build` checks what it put into dist/ (HIDET_DIST); elsewhere the wheels are built into a temporary folder.
"""

from __future__ import annotations

import configparser
import email
import os
import zipfile
from collections import Counter
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(path.parent.name for path in sorted(ROOT.glob("packages/*/pyproject.toml")))
SATELLITES = tuple(package for package in PACKAGES if package != "hidet-core")
PARTS = {
    **{package: (f"hidet/{package.removeprefix('hidet-')}/",) for package in SATELLITES},
    "hidet-compat": (
        *("hidet/compat/", "hidet/nn/", "hidet/backend.py", "hidet/logging.py", "hidet/distributed.py", "hidet/hip.py"),
        *("hidet/graph", "hidet/ir", "hidet/testing", "hidet/utils"),
    ),
    "hidet-gpu": ("hidet/gpu/", "hidet/tile.py"),
    "hidet-script": ("hidet/lang/", "hidet/script_operator/", "hidet/utils/"),
    "hidet-stablehlo": ("hidet/jax/", "hidet/stablehlo/"),
    "hidet-tune": ("hidet/tuning/",),
}
"""What each satellite owns of the package; names without a slash are packages of others that it continues."""
PLUGINS = tuple(package for package in SATELLITES if package != "hidet-testing")


class Wheel:
    """One wheel file: its paths, its metadata and its entry points."""

    def __init__(self, file: Path) -> None:
        with zipfile.ZipFile(file) as archive:
            self.paths = set(archive.namelist())
            (info,) = {path.split("/")[0] for path in self.paths if ".dist-info/" in path}
            self.metadata: Message = email.message_from_bytes(archive.read(f"{info}/METADATA"))
            self.entry_points = configparser.ConfigParser()
            if f"{info}/entry_points.txt" in self.paths:
                self.entry_points.read_string(archive.read(f"{info}/entry_points.txt").decode())
            self.license = archive.read(f"{info}/licenses/LICENSE").decode()
        self.sources = {path for path in self.paths if not path.startswith(info)}


def source_files(package: str) -> set[str]:
    """What the wheel has to contain: everything under src/ that is no by-product of Python or a tool."""
    root = ROOT / "packages" / package / "src"
    files = {file.relative_to(root) for file in root.rglob("*") if file.is_file()}
    return {
        file.as_posix() for file in files if not any(part[0] == "." or part == "__pycache__" for part in file.parts)
    }


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    given = os.environ.get("HIDET_DIST")
    folder = Path(given) if given else tmp_path_factory.mktemp("dist")
    if not given:
        from hatchling.builders.wheel import WheelBuilder

        for package in PACKAGES:
            list(WheelBuilder(str(ROOT / "packages" / package)).build(directory=str(folder), versions=["standard"]))
    found = {package: list(folder.glob(f"{package.replace('-', '_')}-*.whl")) for package in PACKAGES}
    assert {package: len(files) for package, files in found.items()} == dict.fromkeys(PACKAGES, 1)
    return {package: Wheel(files[0]) for package, files in found.items()}


def test_no_path_is_in_two_wheels(wheels) -> None:
    count = Counter(path for wheel in wheels.values() for path in wheel.paths)
    assert [path for path, times in count.items() if times > 1] == []


def test_only_core_owns_the_package_itself(wheels) -> None:
    assert {"hidet/__init__.py", "hidet/py.typed"} <= wheels["hidet-core"].sources
    for package in SATELLITES:
        assert {path for path in wheels[package].sources if not path.startswith(PARTS[package])} == set()
        folders = [part for part in PARTS[package] if part.endswith("/")]
        assert {folder + name for folder in folders for name in ("__init__.py", "py.typed")} <= wheels[package].sources
        has_hooks = any(folder + "_plugin.py" in wheels[package].sources for folder in folders)
        assert has_hooks == (package in PLUGINS)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_contains_its_sources_and_nothing_else(wheels, package) -> None:
    assert wheels[package].sources == source_files(package)


@pytest.mark.parametrize("package", PLUGINS)
def test_a_plugin_is_found(wheels, package) -> None:
    (module,) = [path for path in wheels[package].sources if path.endswith("/_plugin.py")]
    entries = dict(wheels[package].entry_points["hidet.plugins"])
    assert entries == {package.removeprefix("hidet-"): module.removesuffix(".py").replace("/", ".")}


@pytest.mark.parametrize("package", SATELLITES)
def test_a_satellite_is_bound_to_the_minor_version_of_core(wheels, package) -> None:
    (bound,) = [r for r in wheels[package].metadata.get_all("Requires-Dist") if r.startswith("hidet-core")]
    major, minor, *_ = (int(part) for part in wheels["hidet-core"].metadata["Version"].split("."))
    assert bound == f"hidet-core<{major}.{minor + 1},>={major}.{minor}"


def test_torch_finds_the_backend_by_entry_point(wheels) -> None:
    assert wheels["hidet-torch"].entry_points["torch_dynamo_backends"]["hidet"] == "hidet.torch.backend:compile_fx"


@pytest.mark.parametrize(("platform", "is_there"), [("linux", True), ("win32", True), ("darwin", False)])
def test_the_cuda_target_comes_with_torch_where_nvidia_has_drivers(wheels, platform, is_there) -> None:
    required = [Requirement(text) for text in wheels["hidet-torch"].metadata.get_all("Requires-Dist")]
    (cuda,) = [requirement for requirement in required if requirement.name == "hidet-cuda"]
    assert cuda.marker is not None and cuda.marker.evaluate({"sys_platform": platform}) == is_there


def test_no_wheel_asks_for_libraries_of_torchs_cuda_builds(wheels) -> None:
    names = {Requirement(text).name for wheel in wheels.values() for text in wheel.metadata.get_all("Requires-Dist")}
    assert {name for name in names if name.startswith(("nvidia-", "triton"))} == {"nvidia-cuda-nvrtc"}


def test_core_installs_the_command(wheels) -> None:
    assert wheels["hidet-core"].entry_points["console_scripts"]["hidet"] == "hidet_command:main"


@pytest.mark.parametrize("package", PACKAGES)
def test_metadata_is_complete(wheels, package) -> None:
    metadata = wheels[package].metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"] and metadata.get_payload().startswith(f"# {package}")
    assert "Apache License" in wheels[package].license


@pytest.mark.parametrize("package", PACKAGES)
def test_the_changelog_has_a_section_for_the_version(wheels, package) -> None:
    changelog = (ROOT / "packages" / package / "CHANGELOG.md").read_text()
    assert f"\n## {wheels[package].metadata['Version']}" in changelog


def test_every_wheel_is_used_from_an_environment_that_has_it_alone() -> None:
    assert {path.stem for path in (ROOT / "tests" / "wheel_use").glob("*.py")} == set(PACKAGES)
