"""The steps of docs/tile-kernels.md, at their real sizes, as CUDA's compiler takes them."""

import re
from pathlib import Path

import pytest

from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.tile.lowering import LOWERINGS
from hidet.gpu.testing.tile_ladder import (
    LadderTiles,
    attention,
    naive_product,
    pipelined_product,
    product_with_epilogue,
)
from hidet.lang import bf16, f16

NARROW, WIDE = LadderTiles(64, 64, 32, 3, (2, 2)), LadderTiles(128, 128, 32, 4, (2, 4))
GROUPS, HEADS = LadderTiles(128, 256, 64, 4, (8, 1)), LadderTiles(128, 64, 0, 2, (8, 1))
HEADS_OF_WARPS = LadderTiles(64, 64, 0, 2, (4, 1))


def cubins(script, arch):
    """By the name of the kernel."""
    sources = CudaTarget(arch).sources(script.ir_module(f"cuda:{arch}"))
    return {source.kernels[0].name: compile_cubin(source, arch) for source in sources}


@pytest.mark.parametrize(("arch", "dtype"), [("sm_80", f16), ("sm_90a", bf16)])
@pytest.mark.parametrize(
    ("make", "tiles"), [(naive_product, NARROW), (pipelined_product, NARROW), (product_with_epilogue, WIDE)]
)
def test_products_of_warps_compile_without_spills(make, tiles, arch, dtype):
    found = cubins(make(dtype, tiles), arch)
    assert len(found) == 2
    (aligned, *_) = (cubin.usage[name] for name, cubin in found.items())
    assert aligned.spill_bytes == 0


@pytest.mark.parametrize(("dtype", "lowering"), [(f16, "tma"), (bf16, "wgmma")])
def test_products_of_warp_groups_compile_without_spills_and_are_not_serialised(dtype, lowering):
    found = cubins(pipelined_product(dtype, GROUPS, lowering), "sm_90a")
    assert [cubin.remarks for cubin in found.values()] == [(), ()]
    assert [cubin.usage[name].spill_bytes for name, cubin in found.items()] == [0, 0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("arch", "tiles"), [("sm_80", HEADS_OF_WARPS), ("sm_90a", HEADS_OF_WARPS), ("sm_90a", HEADS)])
def test_attention_compiles_without_spills_and_is_not_serialised(arch, tiles, is_causal):
    found = cubins(attention(f16, 64, tiles, is_causal=is_causal), arch)
    assert [cubin.remarks for cubin in found.values()] == [(), ()]
    assert [cubin.usage[name].spill_bytes for name, cubin in found.items()] == [0, 0]


def test_a_kernel_is_compiled_once_for_a_target():
    script = naive_product(f16, NARROW)
    built = script.build("cuda:sm_80")
    assert script.build("cuda:sm_80") is built and script.build("cuda:sm_90a") is not built
    assert list(built.kernels) == ["product", "product_unaligned"]
    assert "mma.sync" in script.source("target", "cuda:sm_80")
    assert script.build("cuda:sm_80", {"check_bounds": False}) is not built


def test_the_page_names_every_lowering():
    page = (Path(__file__).parents[3] / "docs" / "tile-kernels.md").read_text()
    assert re.findall(r'^\| `"([\w-]+)"` \|', page, re.MULTILINE) == [row.name for row in LOWERINGS]
