"""What `hidet doctor` says of CUDA on machines that are not this one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hidet.cuda import checks, nvrtc
from hidet.cuda.testing.fake_driver import FakeDriver


@pytest.fixture
def anew() -> Iterator[None]:
    """NVRTC is looked for again."""
    for known in (nvrtc._nvrtc, nvrtc.toolchain_version):
        known.cache_clear()
    yield
    for known in (nvrtc._nvrtc, nvrtc.toolchain_version):
        known.cache_clear()


def driver_of(monkeypatch: pytest.MonkeyPatch, version: int | None) -> None:
    """A machine with a driver of this version; None for no driver."""
    monkeypatch.setattr(checks, "driver_library", lambda: None if version is None else object())
    monkeypatch.setattr(checks, "driver_version_of", lambda library: version)


def test_without_a_driver_nothing_is_wrong_and_no_device_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, None)
    (check,) = checks.check_driver()
    assert check.status == "none" and "sm_90a" in str(check.hint)
    assert checks.list_devices() == []


def test_an_old_driver_is_to_be_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, 12040)
    (check,) = checks.check_driver()
    assert (check.status, check.detail) == ("fail", "CUDA 12.4, expected 13.0 or newer")
    assert check.hint == "update NVIDIA's driver to 580 or newer"


def test_devices_are_listed_with_their_capability(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, 13000)
    assert [check.detail for check in checks.check_driver()] == ["CUDA 13.0"]
    first, second = checks.list_devices()
    assert first.startswith("cuda:0: ") and second.startswith("cuda:1: ") and "compute capability 8.0" in first


def test_a_device_of_an_old_generation_is_named(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, 13000)
    monkeypatch.setattr(checks, "OLDEST", 100)
    _, *old = checks.check_driver()
    assert [check.status for check in old] == ["warn", "warn"]
    assert "cuda:0 has compute capability 8.0, expected 10.0 or newer" in old[0].detail


def test_a_broken_nvrtc_is_told_with_what_to_install(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    (check,) = checks.check_nvrtc()
    assert check.status == "fail" and "cannot be loaded" in check.detail
    assert "nvidia-cuda-nvrtc" in str(check.hint) and "LD_LIBRARY_PATH" in str(check.hint)


def test_an_nvrtc_newer_than_the_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, 13020)
    monkeypatch.setattr(checks, "toolchain_version", lambda: "NVRTC 14.1")
    monkeypatch.setattr(checks, "compile_cubin", lambda source, arch: None)
    compiled, clash = checks.check_nvrtc()
    assert compiled.status == "ok" and compiled.detail.startswith("NVRTC 14.1, a kernel compiled for sm_80")
    assert clash.status == "fail" and "CUDA 13.2" in clash.detail


def test_nvrtc_of_this_machine_compiles_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of(monkeypatch, None)
    (check,) = checks.check_nvrtc()
    assert check.status == "ok"
