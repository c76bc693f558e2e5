"""What `hidet doctor` says of processors."""

from __future__ import annotations

import pytest

from hidet.cpu import checks
from hidet.cpu.arch import arch_from_text


def said_of(cpu: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    arch = arch_from_text(cpu)
    monkeypatch.setattr(checks, "host_arch", lambda: arch)
    return {check.name: (check.status, check.detail) for check in checks.check_processor()}


def test_simd_and_the_width_of_vectors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    status, detail = said_of("znver4", monkeypatch)["cpu"]
    assert status == "ok" and detail.startswith("znver4, vectors of 512 bits: sse4.2 avx2 fma f16c avx512f")


def test_matrix_units_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_of("znver4", monkeypatch)["cpu matrix units"][0] == "none"
    with_units = said_of("sapphirerapids,+amx-tile,+amx-bf16", monkeypatch)
    assert with_units["cpu matrix units"] == ("ok", "amx-tile amx-bf16")


def test_a_processor_without_avx2_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_of("x86-64-v2", monkeypatch)["cpu"][0] == "warn"
