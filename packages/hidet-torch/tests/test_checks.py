"""What `hidet doctor` says of torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hidet.plugins.specs import TargetSpec
from hidet.torch import checks


def version_file(folder: Path, *lines: str) -> Path:
    """A file as torch writes it when it is built."""
    path = folder / "version.py"
    path.write_text("\n".join(["__version__ = '2.13.0'", "debug = False", *lines, ""]))
    return path


def with_devices(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Devices of type "cuda" that a target lists."""
    spec = TargetSpec(name="cuda", load="a:b", devices=("cuda",), machines="lists:devices")
    monkeypatch.setattr(checks, "load_registry", lambda: SimpleNamespace(targets={"cuda": spec}))
    monkeypatch.setattr(TargetSpec, "list_machines", lambda self: list(lines))


def test_torch_of_this_environment_knows_the_backend() -> None:
    assert {check.status for check in checks.check_torch()} <= {"ok", "warn"}


def test_a_build_for_cuda_is_named(tmp_path: Path) -> None:
    found = checks._build(version_file(tmp_path, "cuda: Optional[str] = '13.0'", "hip: Optional[str] = None"))
    assert (found.status, found.detail) == ("ok", "for CUDA 13.0")


def test_a_cpu_build_is_right_on_a_machine_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch)
    assert checks._build(version_file(tmp_path, "cuda: Optional[str] = None")).status == "ok"


def test_a_cpu_build_beside_a_gpu_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, "cuda:0: a GPU")
    found = checks._build(version_file(tmp_path, "cuda: Optional[str] = None"))
    assert found.status == "warn" and "cuda:0: a GPU" in found.detail


def test_a_backend_that_torch_does_not_find_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.metadata, "entry_points", lambda **wanted: ())
    _, missing = checks.check_torch()
    assert missing.status == "fail" and "backend 'hidet'" in missing.detail
