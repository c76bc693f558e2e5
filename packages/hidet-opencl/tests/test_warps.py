"""Each kind of device has every function that kernels ask of its warps."""

import re

import pytest

from hidet.opencl.codegen import intrinsics
from hidet.opencl.codegen.warps import NONE, NVIDIA, SUB_GROUPS, Warps

DEFINED = re.compile(r"(?:#define|overloadable\)\)) (?:\w+ )?(\w+)\(")


@pytest.mark.parametrize("warps", [SUB_GROUPS, NVIDIA])
def test_what_kernels_call_is_defined(warps: Warps) -> None:
    page = intrinsics.__file__
    with open(page, encoding="utf-8") as file:
        called = set(re.findall(r"\b((?:warp|block)_\w+)\(", file.read()))
    assert called == {"warp_lane", "warp_active", "warp_ballot", "warp_barrier", "warp_shuffle"} | {
        "block_count",
        "block_all",
        "block_any",
    }
    assert set(DEFINED.findall(warps.text + warps.block)) == called


def test_ptx_moves_every_type_of_numbers_by_words() -> None:
    types = re.findall(r"(\w+) warp_shuffle\(uint mask, \1 a, int from\)", NVIDIA.text)
    assert sorted(types) == sorted(
        ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double"]
    )


def test_a_device_without_warps_has_blocks() -> None:
    assert NONE.text == "" and set(DEFINED.findall(NONE.block)) == {"block_count", "block_all", "block_any"}
