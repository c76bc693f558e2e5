"""Which tiles products are cut into."""

from __future__ import annotations

import pytest

from hidet.cuda.arch import BLOCK_RESERVED_SHARED
from hidet.cuda.schedules.tiling import (
    TILES,
    TRANSPOSED_TILES,
    WARP_SPECIALIZED_TILES,
    choose_tiling,
    close_tilings,
    resident_blocks,
    saves_power,
    shares_copies,
    warp_specialized_bytes,
)
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_compiles
from hidet.cuda.testing.tasks import scheduled_task
from hidet.gpu.schedules.tiling import Extents
from hidet.gpu.tile.templates.matmul import MatmulTiles

H100 = CudaTarget("sm_90a")


def chosen(m: int, n: int, k: int, batch: int = 1) -> tuple[int, int]:
    """Rows and columns of tiles for warp-specialized kernels on an H100."""
    tiles = choose_tiling(Extents(batch, m, n, k, 2), WARP_SPECIALIZED_TILES, H100, is_warp_specialized=True).tiles
    return tiles.m, tiles.n


@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_large_products_have_the_tiles_that_use_the_matrix_unit_best(size: int) -> None:
    assert chosen(size, size, size) == (128, 256)


@pytest.mark.parametrize("n", [768, 2304, 3072])
def test_skinny_gemms_are_spread_over_the_device(n: int) -> None:
    rows, columns = chosen(128, n, 768)
    assert rows == 64
    assert 2 * -(-n // columns) >= 48


@pytest.mark.parametrize(("n", "k", "is_split"), [(4096, 14336, True), (4096, 4096, False), (768, 768, False)])
def test_few_rows_are_split_along_k_where_too_few_blocks_would_read_a_large_matrix(n, k, is_split) -> None:
    """A multiprocessor reads so fast from memory and no faster: 64 of 132 took 42 us for 117 MB, 128 of them 32."""
    choices = (*WARP_SPECIALIZED_TILES, *TRANSPOSED_TILES)
    found = close_tilings(Extents(1, 8, n, k, 2), choices, H100, is_warp_specialized=True)
    assert found[0].is_split == is_split
    assert not is_split or all(tiling.is_split for tiling in found), "nor to share a program with other layers"


@pytest.mark.parametrize(("m", "n", "tiles"), [(8192, 320, 128), (2048, 320, 128)])
def test_layers_of_320_channels_and_multiples_fill_the_device_at_once(m: int, n: int, tiles: int) -> None:
    rows, columns = chosen(m, n, 2880)
    assert m // rows * n // columns == tiles


@pytest.mark.parametrize(("m", "n", "k"), [(1000, 1000, 1000), (2747, 6872, 7832)])
def test_pairs_of_blocks_share_copies_of_rows_between_lines_and_of_no_others(m: int, n: int, k: int) -> None:
    between, at_lines = (Extents(1, m, n, k, 2, is_between_lines=is_between) for is_between in (True, False))
    large = [each for each in WARP_SPECIALIZED_TILES if each.m == 128]
    assert all(shares_copies(between, each) and not shares_copies(at_lines, each) for each in large)
    small = MatmulTiles(64, 64, 64, 6, (4, 1))
    assert not shares_copies(between, small), "blocks of one warp group"
    assert not shares_copies(Extents(1, m, n, 184, 2, is_between_lines=True), large[0]), "few steps"
    for rows, shares in ((128, False), (256, True), (300, False), (770, True)):
        assert shares_copies(Extents(1, rows, n, k, 2, is_between_lines=True), large[0]) == shares, (
            "a row of tiles alone"
        )


@pytest.mark.parametrize(
    ("m", "k", "saves"), [(2048, 4096, True), (777, 4096, False), (200, 512, True), (200, 256, False)]
)
def test_pairs_of_blocks_with_the_largest_tiles_share_copies_where_none_has_a_tile_of_nothing(m, k, saves) -> None:
    largest, smaller = WARP_SPECIALIZED_TILES[:2]
    assert saves_power(Extents(1, m, 4096, k, 2), largest) == saves
    assert not saves_power(Extents(1, m, 4096, k, 2), smaller)


@pytest.mark.parametrize(
    ("m", "n", "epilogue", "tiles"),
    [
        (1066, 4096, [], (192, 192)),
        (1066, 4096, ["add(%0, %r)"], (192, 192)),
        (1066, 4096, ["relu(%0)"], (192, 192)),
        (1066, 4096, ["add(%0, %b)", "add(%1, %r)"], None),
        (1066, 4096, ["silu(%0)", "mul(%1, %r)"], None),
        (1500, 2560, ["add(%0, %b)", "gelu(%1)", "add(%2, %r)"], (192, 160)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
@pytest.mark.thorough(every=2)
def test_threads_of_three_warp_groups_have_registers_for_what_follows_their_products(m, n, epilogue, tiles) -> None:
    """One wave of tiles is what 192 x 192 are for; with as many sums a thread has registers for little else."""
    lines = "".join(f"  %{number}: f16[{m}, {n}] = {text}\n" for number, text in enumerate(epilogue, 1))
    text = f"""
graph g(%x: f16[{m}, 4096], param %w: f16[{n}, 4096], param %b: f16[{n}], %r: f16[{m}, {n}]):
  %0: f16[{m}, {n}] = linear(%x, %w)
{lines}  return %{len(epilogue)}
"""
    found = scheduled_task(text, "sm_90a").decision.params.tiles
    assert (found.m, found.n) == tiles if tiles else (found.m, found.n) != (192, 192)
    assert_compiles(text, "sm_90a")


def test_a_batch_counts_as_more_tiles() -> None:
    assert chosen(512, 512, 512, batch=96) != chosen(512, 512, 512)


@pytest.mark.parametrize("tiles", WARP_SPECIALIZED_TILES, ids=str)
def test_warp_specialized_kernels_fit_into_shared_memory(tiles) -> None:
    assert warp_specialized_bytes(tiles) + BLOCK_RESERVED_SHARED <= H100.block_shared_memory
    assert resident_blocks(warp_specialized_bytes(tiles), 160, H100) in (1, 2)


def test_a_device_with_fewer_multiprocessors_takes_larger_tiles() -> None:
    few, many = (
        choose_tiling(Extents(1, 512, 512, 512, 2), TILES, CudaTarget(arch)).tiles for arch in ("sm_87", "sm_90")
    )
    assert few.m * few.n > many.m * many.n
