"""What HIDET_DUMP writes of kernels for a GPU; nothing here needs one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hidet
from hidet.context import make_context
from hidet.cuda.schedules import product_launch
from hidet.errors import VerifyError
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.parser import parse_kernel
from hidet.gpu.tile.printer import print_kernel
from hidet.gpu.tile.templates.matmul import matmul_kernel
from hidet.gpu.tile.verify import verify_kernel
from hidet.graph.parser import parse_graph

LAYER = """
graph layer(%x: f16[64, 64]@cuda, %w: f16[64, 64]@cuda):
  %0: f16[64, 64]@cuda = matmul(%x, %w)
  %1: f16[64, 64]@cuda = relu(%0)
  return %1
"""


ATTENTION = """
symbol n: 1..4096
graph block(%q: f16[1, 4, n, 64]@cuda, %k: f16[1, 4, n, 64]@cuda, %v: f16[1, 4, n, 64]@cuda):
  %0: f16[1, 4, n, 64]@cuda = attention(%q, %k, %v, is_causal=True)
  return %0
"""

CONVOLUTION = """
graph conv(%x: f16[1, 16, 10, 10]@cuda, %w: f16[32, 16, 3, 3]@cuda):
  %0: f16[1, 32, 8, 8]@cuda = conv(%x, %w)
  %1: f16[1, 32, 8, 8]@cuda = silu(%0)
  return %1
"""


def dumped(target: str, folder: Path, text: str = LAYER) -> Path:
    graph = parse_graph(text, make_context(target).registry.operators)
    hidet.compile(graph, target=target, options={"dump": folder, "cache": False, "verify": True})
    (own,) = folder.iterdir()
    return own


def test_a_dump_has_cuda_cpp_ptx_and_host_code_of_every_module(tmp_path: Path) -> None:
    folder = dumped("cuda:sm_80", tmp_path)
    (program,) = folder.glob("program_*.hir")
    endings = {".cu": "__global__", ".ptx": ".target sm_80", ".host.ll": "define", ".host.s": ".text"}
    for ending, expected in endings.items():
        assert expected in program.with_suffix(ending).read_text()


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("text", [LAYER, ATTENTION, CONVOLUTION], ids=["product", "attention", "convolution"])
@pytest.mark.thorough(every=2)
def test_kernels_in_tiles_are_dumped_and_read_back(tmp_path: Path, target: str, text: str) -> None:
    folder = dumped(target, tmp_path, text)
    files = list(folder.glob("*.tile"))
    assert files
    for file in files:
        kernel = parse_kernel(file.read_text())
        verify_kernel(kernel)
        assert print_kernel(kernel) == file.read_text()


def test_a_kernel_in_tiles_that_breaks_a_rule_is_refused_where_ir_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template makes none, so its sum is not set to zero here."""

    def unset(*given: Any, **named: Any) -> TileKernel:
        made = matmul_kernel(*given, **named)
        return replace(made, body=made.body[1:])

    monkeypatch.setattr(product_launch, "matmul_kernel", unset)
    with pytest.raises(VerifyError, match=r"in total \+= mma\(.*\): tile total is read before it is written"):
        dumped("cuda:sm_80", tmp_path)
