"""The steps of docs/tile-kernels.md, at their real sizes, as CUDA's compiler takes them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hidet.cache import open_cache
from hidet.compiler.modules import compile_module
from hidet.context import CompileContext, Options
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.cuda.tile.lowering import LOWERINGS
from hidet.gpu.testing.tile_ladder import (
    LadderTiles,
    attention,
    naive_product,
    pipelined_product,
    product_with_epilogue,
)
from hidet.lang import bf16, f16
from hidet.plugins.host import load_registry
from hidet.runtime.adapter import NumpyAdapter

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
@pytest.mark.thorough(every=3)
def test_products_of_warps_compile_without_spills(make, tiles, arch, dtype):
    found = cubins(make(dtype, tiles), arch)
    assert len(found) == 2
    (aligned, *_) = (cubin.usage[name] for name, cubin in found.items())
    assert aligned.spill_bytes == 0


@pytest.mark.parametrize(("dtype", "lowering"), [(f16, "tma"), (bf16, "wgmma")])
@pytest.mark.thorough(every=2)
def test_products_of_warp_groups_compile_without_spills_and_are_not_serialised(dtype, lowering):
    found = cubins(pipelined_product(dtype, GROUPS, lowering), "sm_90a")
    assert [cubin.remarks for cubin in found.values()] == [(), ()]
    assert [cubin.usage[name].spill_bytes for name, cubin in found.items()] == [0, 0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("arch", "tiles"), [("sm_80", HEADS_OF_WARPS), ("sm_90a", HEADS_OF_WARPS), ("sm_90a", HEADS)])
@pytest.mark.thorough(every=3)
def test_attention_compiles_without_spills_and_is_not_serialised(arch, tiles, is_causal):
    found = cubins(attention(f16, 64, tiles, is_causal=is_causal), arch)
    assert [cubin.remarks for cubin in found.values()] == [(), ()]
    assert [cubin.usage[name].spill_bytes for name, cubin in found.items()] == [0, 0]


def test_a_kernel_is_compiled_once_for_a_target(tmp_path):
    script = naive_product(f16, NARROW)
    built = script.build("cuda:sm_80")
    assert script.build("cuda:sm_80") is built and script.build("cuda:sm_90a") is not built
    assert list(built.kernels) == ["product", "product_unaligned"]
    assert "mma.sync" in script.source("target", "cuda:sm_80")
    assert script.build("cuda:sm_80", {"dump": tmp_path}) is not built
    assert (tmp_path / "product.tile").read_text() == script.source("tile")
    assert (tmp_path / "product_unaligned.tile").exists()


def test_the_page_names_every_lowering():
    page = (Path(__file__).parents[3] / "docs" / "tile-kernels.md").read_text()
    assert re.findall(r'^\| `"([\w-]+)"` \|', page, re.MULTILINE) == [row.name for row in LOWERINGS]


class DeviceTensors(NumpyAdapter):
    """Arrays that stand for memory of a device, used in stream 7."""

    is_host = False

    def describe(self, tensor):
        return replace(super().describe(tensor), device="cuda:0")

    def stream_of(self, tensor):
        return 7


def aligned(rows, columns, *, shift=0):
    """A matrix of f16 that starts `shift` elements behind a multiple of 16 bytes."""
    memory = np.zeros(rows * columns + 16, np.float16)
    start = -memory.ctypes.data % 16 // 2 + shift
    return memory[start : start + rows * columns].reshape(rows, columns)


def test_a_call_launches_the_kernel_that_its_tensors_are_aligned_for(monkeypatch):
    monkeypatch.setattr("hidet.runtime.module.adapter_for", lambda kind, memory: DeviceTensors())
    fake, target = FakeDriver(), CudaTarget("sm_90a")
    target.__dict__["memory"] = fake.memory()
    ctx = CompileContext(target=target, registry=load_registry(), options=Options(), cache=open_cache(enabled=False))
    product = compile_module(pipelined_product(f16, LadderTiles(64, 32, 64, 4, (4, 1))).ir_module("cuda:sm_90a"), ctx)

    def launched(m, n, k, shift=0):
        fake.launches.clear()
        product(aligned(m, k, shift=shift), aligned(k, n), aligned(m, n))
        return [(launch.kernel, launch.grid, launch.block, launch.stream) for launch in fake.launches]

    # 16 tiles are walked over by as many blocks, 20000 by those that the device holds.
    assert launched(200, 104, 72) == [("product", (16, 1, 1), (160, 1, 1), 7)]
    assert launched(6400, 6400, 72) == [("product", (132 * 4, 1, 1), (160, 1, 1), 7)]
    assert [encoded.sizes for encoded in fake.maps[-2:]] == [(72, 6400), (6400, 72)]
    assert launched(200, 104, 72, shift=1) == [("product_unaligned", (16, 1, 1), (128, 1, 1), 7)]
    assert launched(200, 104, 71) == [("product_unaligned", (16, 1, 1), (128, 1, 1), 7)]
    assert launched(200, 104, 0) == [("product_unaligned", (16, 1, 1), (128, 1, 1), 7)]
    assert launched(0, 104, 72) == []
