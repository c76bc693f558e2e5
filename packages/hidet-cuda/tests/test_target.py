"""What the CUDA target states of its device, and that schedules follow it."""

from __future__ import annotations

import pytest

from hidet import dims
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.cuda.testing.tasks import scheduled_task
from hidet.target import gpu_target


def test_the_facts_are_those_of_a_usual_device_of_the_architecture() -> None:
    h100, jetson = gpu_target(CudaTarget("sm_90a")), gpu_target(CudaTarget("sm_87"))
    assert (h100.warp_size, h100.block_threads, h100.multiprocessor_registers) == (32, 1024, 65536)
    assert (h100.multiprocessors, h100.block_shared_memory, h100.multiprocessor_shared_memory) == (
        132,
        227 << 10,
        228 << 10,
    )
    assert (jetson.multiprocessors, jetson.multiprocessor_threads, jetson.block_shared_memory) == (16, 1536, 163 << 10)


def test_the_facts_of_a_device_are_what_its_driver_says(fake: FakeDriver) -> None:
    target = CudaTarget("1")
    assert (target.multiprocessors, target.multiprocessor_threads) == (108, 2048)
    assert (target.block_shared_memory, target.multiprocessor_shared_memory) == (163 << 10, 164 << 10)


@pytest.mark.parametrize(
    ("arch", "has"), [("sm_80", ""), ("sm_90", "clusters stmatrix"), ("sm_90a", "clusters stmatrix wgmma")]
)
def test_features_are_those_of_the_architecture(arch: str, has: str) -> None:
    asked = ("clusters", "stmatrix", "wgmma", "matrix cores of another vendor")
    assert [feature for feature in asked if CudaTarget(arch).has(feature)] == has.split()


SUM = """
graph g(%x: f32[4, 4194304]):
  %0: f32[4] = sum(%x, axes=[1])
  return %0
"""
SCAN = """
graph g(%x: f32[4, 4194304]):
  %0: f32[4, 4194304] = cumsum(%x, axis=1)
  return %0
"""
TOP = """
graph g(%x: f32[4, 4194304]):
  %0: f32[4, 8], %1: i64[4, 8] = topk(%x, k=8, axis=1)
  return %0, %1
"""


@pytest.mark.parametrize("text", [SUM, SCAN, TOP], ids=["sum", "scan", "top-k"])
def test_long_rows_are_cut_into_more_parts_for_more_multiprocessors(text: str) -> None:
    few, many = (sum(map(_number, scheduled_task(text, arch).program.scratch)) for arch in ("sm_87", "sm_90a"))
    assert 4 * few < many


def _number(size: dims.Dim) -> int:
    assert isinstance(size, int)
    return size
