"""Blocks of kernels that start early: shared memory that they ask for, so that each multiprocessor has its share."""

from __future__ import annotations

import textwrap

import pytest

from hidet.cuda.arch import BLOCK_RESERVED_SHARED
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.passes.spread_blocks import spread_blocks
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.entries import compiled_entry
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.ir.func import Module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module

TEXT = """
module(entry="main")

@kernel{attributes}
def k(x: ~f32):
    i = grid()
    tile: f32[{elements}] @ shared
    tile[0] = 1.0
    x[i] = tile[0]

@host
def f(x: ~f32, n: i64):
    launch("k", [n], [x], block=[32]{options})

@host
def main(x: ~f32):
    invoke("f", [x, {blocks}])
    invoke("f", [x, {blocks}], is_independent=True)
"""
MULTIPROCESSORS, SHARED = 132, 228 * 1024


def module(blocks: int = 1, elements: int = 2048, options: str = "", attributes: str = "") -> Module:
    text = textwrap.dedent(TEXT).format(blocks=blocks, elements=elements, options=options, attributes=attributes)
    return parse_module(text, INTRINSICS)


def asked(given: Module, arch: str = "sm_90a") -> list[int]:
    """Dynamic shared memory of each launch of a module that went through all passes."""
    fake = FakeDriver()
    compiled_entry(given, arch, fake)(4096, 9)
    return [launch.shared for launch in fake.launches]


def fitting(nbytes: int) -> int:
    """How many blocks of so much shared memory a multiprocessor has room for."""
    return SHARED // (-(-nbytes // 128) * 128 + BLOCK_RESERVED_SHARED)


@pytest.mark.parametrize("blocks", [1, 131, 132, 133, 264, 265, 384, 528, 1000, 1320])
def test_a_multiprocessor_has_room_for_its_share_of_the_blocks_and_no_more(blocks: int) -> None:
    elements = 2048
    first, _ = asked(module(blocks, elements))
    assert fitting(4 * elements + first) == -(-blocks // MULTIPROCESSORS)


def test_blocks_that_are_few_enough_anyway_ask_for_nothing() -> None:
    for blocks, elements in ((132 * 40, 2048), (1, 11 * 1024)):
        first, _ = asked(module(blocks, elements))
        assert fitting(4 * elements + first) == min(fitting(4 * elements), -(-blocks // MULTIPROCESSORS))
    assert asked(module(132 * 40)) == [0, 0]


def test_a_kernel_beside_others_leaves_them_room() -> None:
    first, beside = asked(module(1))
    assert first > 100_000 and beside == 0
    assert asked(module(1, options=", shared_bytes=512"))[1] == 512


def test_what_a_launch_asks_for_itself_is_the_least() -> None:
    first, _ = asked(module(1, options=", shared_bytes=512"))
    assert first == asked(module(1))[0]
    assert asked(module(1, options=", shared_bytes=150000")) == [150000, 150000]


@pytest.mark.parametrize(
    ("arch", "elements", "options"),
    [
        ("sm_80", 2048, ""),  # kernels are launched in order
        ("sm_90a", 1023, ""),  # without tiles
        ("sm_90a", 2048, ", cluster=[1]"),
        ("sm_90a", 2048, ", is_cooperative=True"),
    ],
)
def test_other_blocks_are_placed_as_the_device_likes(arch: str, elements: int, options: str) -> None:
    assert asked(module(1, elements, options), arch) == [0, 0]


def test_the_pass_changes_nothing_twice_and_nothing_where_no_kernel_starts_early() -> None:
    target = CudaTarget("sm_90a")
    assert spread_blocks(module(), target) is not None
    assert print_module(spread_blocks(module(), target)) == print_module(module())
    early = module(attributes="(overlapped=True)")
    once = spread_blocks(early, target)
    assert "shared_bytes" in print_module(once)
    assert print_module(parse_module(print_module(once), INTRINSICS)) == print_module(once)
