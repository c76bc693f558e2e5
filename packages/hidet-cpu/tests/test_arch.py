"""Descriptions of CPUs: the one at hand and those that can be named."""

from __future__ import annotations

import pytest

from hidet.cpu.arch import arch_from_text, host_arch
from hidet.cpus import available_cpus
from hidet.errors import OptionError


def test_the_host_is_described() -> None:
    host = host_arch()
    assert host.name and host.triple
    assert host.vector_bits in (128, 256, 512)
    assert 8 << 10 <= host.l1_bytes <= 1 << 20
    assert host.l1_bytes < host.l2_bytes
    assert host is host_arch()
    assert arch_from_text("host") == host


@pytest.mark.parametrize(
    ("text", "vector_bits", "vector_registers", "isa"),
    [
        ("x86-64", 128, 16, "x86_64"),
        ("x86-64-v3", 256, 16, "x86_64"),
        ("haswell", 256, 16, "x86_64"),
        ("skylake-avx512", 512, 32, "x86_64"),
        ("skylake-avx512,+prefer-256-bit", 256, 32, "x86_64"),
        ("znver5", 512, 32, "x86_64"),
        ("aarch64-generic", 128, 32, "aarch64"),
        ("neoverse-n1", 128, 32, "aarch64"),
    ],
)
def test_vector_width_and_registers_follow_from_the_name(
    text: str, vector_bits: int, vector_registers: int, isa: str
) -> None:
    arch = arch_from_text(text)
    assert (arch.vector_bits, arch.vector_registers, arch.isa) == (vector_bits, vector_registers, isa)


def test_features_are_asked_by_name() -> None:
    haswell = arch_from_text("haswell")
    assert haswell.has("fma") and haswell.has("f16c") and not haswell.has("avx512f")
    assert arch_from_text("haswell,-fma").has("fma") is False
    assert arch_from_text("x86-64-v3,+avx512f").vector_bits == 512
    assert arch_from_text("aarch64-generic").has("neon")


def test_cpus_with_512_bit_vectors_are_not_tuned_for_256() -> None:
    assert "-prefer-256-bit" in arch_from_text("skylake-avx512").features.split(",")
    assert "prefer-256-bit" not in arch_from_text("haswell").features


def test_a_foreign_instruction_set_is_generated_for_linux() -> None:
    foreign = "aarch64-generic" if host_arch().isa == "x86_64" else "x86-64-v3"
    assert arch_from_text(foreign).operating_system == "linux"


def test_an_unknown_cpu_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match="did you mean 'haswell'"):
        arch_from_text("hazwell")


def test_a_feature_without_sign_is_refused() -> None:
    with pytest.raises(OptionError, match=r"write '\+avx512f'"):
        arch_from_text("x86-64-v3,avx512f")


def test_at_least_one_cpu_is_available() -> None:
    assert available_cpus() >= 1
