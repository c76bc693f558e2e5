"""What HIDET_DUMP writes of kernels for a GPU; nothing here needs one."""

from __future__ import annotations

from pathlib import Path

import hidet
from hidet.context import make_context
from hidet.graph.parser import parse_graph

LAYER = """
graph layer(%x: f16[64, 64]@cuda, %w: f16[64, 64]@cuda):
  %0: f16[64, 64]@cuda = matmul(%x, %w)
  %1: f16[64, 64]@cuda = relu(%0)
  return %1
"""


def dumped(target: str, folder: Path) -> Path:
    graph = parse_graph(LAYER, make_context(target).registry.operators)
    hidet.compile(graph, target=target, options={"dump": folder, "cache": False, "verify": True})
    (own,) = folder.iterdir()
    return own


def test_a_dump_has_cuda_cpp_ptx_and_host_code_of_every_module(tmp_path: Path) -> None:
    folder = dumped("cuda:sm_80", tmp_path)
    (program,) = folder.glob("program_*.hir")
    endings = {".cu": "__global__", ".ptx": ".target sm_80", ".host.ll": "define", ".host.s": ".text"}
    for ending, expected in endings.items():
        assert expected in program.with_suffix(ending).read_text()
