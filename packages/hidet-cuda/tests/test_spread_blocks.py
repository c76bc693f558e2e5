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


def launch_and_list_shared(given: Module, arch: str = "sm_90a") -> list[int]:
    """Dynamic shared memory of each launch of a module that went through all passes."""
    fake = FakeDriver()
    compiled_entry(given, arch, fake)(4096, 9)
    return [launch.shared for launch in fake.launches]


def count_fitting(nbytes: int) -> int:
    """How many blocks of so much shared memory a multiprocessor has room for."""
    return SHARED // (-(-nbytes // 128) * 128 + BLOCK_RESERVED_SHARED)


@pytest.mark.parametrize("blocks", [1, 131, 132, 133, 264, 265, 384, 528, 1000, 1320])
def test_a_multiprocessor_has_room_for_its_share_of_the_blocks_and_no_more(blocks: int) -> None:
    elements = 2048
    first, _ = launch_and_list_shared(module(blocks, elements))
    assert count_fitting(4 * elements + first) == -(-blocks // MULTIPROCESSORS)


def test_blocks_of_any_memory_have_room_for_their_share_where_they_have_it_at_all() -> None:
    for blocks, elements in ((132 * 40, 2048), (1, 11 * 1024)):
        first, _ = launch_and_list_shared(module(blocks, elements))
        assert count_fitting(4 * elements + first) == min(count_fitting(4 * elements), -(-blocks // MULTIPROCESSORS))


def test_blocks_of_which_there_is_no_room_for_more_ask_for_nothing_besides() -> None:
    assert launch_and_list_shared(module(132 * 40)) == [0, 0]
    # Arrays beyond 48 KiB are dynamic shared memory.
    assert launch_and_list_shared(module(1, 32 * 1024)) == [128 * 1024] * 2


def test_a_kernel_beside_others_leaves_them_room() -> None:
    first, beside = launch_and_list_shared(module(1))
    assert first > 100_000 and beside == 0
    assert launch_and_list_shared(module(1, options=", shared_bytes=512"))[1] == 512


def test_what_a_launch_asks_for_itself_is_the_least() -> None:
    first, _ = launch_and_list_shared(module(1, options=", shared_bytes=512"))
    assert first == launch_and_list_shared(module(1))[0]
    assert launch_and_list_shared(module(1, options=", shared_bytes=150000")) == [150000, 150000]


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
    assert launch_and_list_shared(module(1, elements, options), arch) == [0, 0]


def test_the_same_module_comes_back_where_no_kernel_starts_early() -> None:
    given = module()
    assert spread_blocks(given, CudaTarget("sm_90a")) is given


def test_what_launches_ask_for_is_read_back_from_text() -> None:
    text = print_module(spread_blocks(module(attributes="(overlapped=True)"), CudaTarget("sm_90a")))
    assert "shared_bytes" in text
    assert print_module(parse_module(text, INTRINSICS)) == text
