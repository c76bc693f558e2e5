"""What the CUDA target states of its device, and that schedules follow it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import pytest

from hidet import dims
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.arch_checks import launches_of
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.cuda.testing.tasks import scheduled_task
from hidet.fusion.fuse import fuse
from hidet.graph.parser import parse_graph
from hidet.ir.expr import Const
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledTask, select_schedules
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


def test_a_target_in_another_process_knows_its_device_without_opening_it(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = CudaTarget("1")
    sent = pickle.dumps(target)
    monkeypatch.setattr(CudaTarget, "memory", None)
    received = pickle.loads(sent)
    assert (received.device, received.arch) == ("cuda:1", target.arch)
    assert received.facts == target.facts


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


SORT = """
graph g(%x: f32[4, 512]):
  %0: f32[4, 512], %1: i64[4, 512] = sort(%x, axis=1)
  return %0, %1
"""
UPDATES = """
graph g(%x: f32[64], %i: i64[512], %u: f32[512]):
  %0: f32[64] = scatter(%x, %i, %u, axis=0, reduce='sum')
  return %0
"""


class _WideWarps(CudaTarget):
    """A GPU of which 64 threads execute together."""

    warp_size = 64


class _SmallBlocks(CudaTarget):
    """A GPU with blocks of 256 threads."""

    block_threads = 256


@pytest.mark.parametrize("text", [SORT, UPDATES], ids=["sort", "ordered updates"])
def test_what_orders_records_by_large_blocks_is_not_made_for_small_ones(text: str) -> None:
    assert _rules(text, _SmallBlocks("sm_90a")) == {"fallback"}


def test_rows_are_shared_by_no_more_threads_than_a_block_has() -> None:
    text = "graph g(%x: f32[512, 16384]):\n  %0: f32[512, 16384] = softmax(%x, axis=1)\n  return %0\n"
    large, small = (_largest_block(text, target("sm_90a")) for target in (CudaTarget, _SmallBlocks))
    assert (large > 256, small) == (True, 256)


@pytest.mark.parametrize("text", [SUM, SCAN, SORT, UPDATES], ids=["sum", "scan", "sort", "ordered updates"])
def test_kernels_for_warps_of_32_threads_are_not_made_for_others(text: str) -> None:
    assert _rules(text, CudaTarget("sm_90a")) != {"fallback"}
    assert _rules(text, _WideWarps("sm_90a")) == {"fallback"}


def _rules(text: str, target: CudaTarget) -> set[str]:
    return {step.rule_name for step in _tasks(text, target)}


def _largest_block(text: str, target: CudaTarget) -> int:
    launches = [launch for step in _tasks(text, target) for launch in launches_of(step.program.module)]
    return max(int(size.value) for launch in launches for size in launch.block if isinstance(size, Const))


def _tasks(text: str, target: CudaTarget) -> list[ScheduledTask]:
    registry = load_registry()
    ctx = CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))
    steps = select_schedules(fuse(parse_graph(textwrap.dedent(text), registry.operators), ctx), ctx).steps
    return [step for step in steps if isinstance(step, ScheduledTask)]


def _number(size: dims.Dim) -> int:
    assert isinstance(size, int)
    return size


def test_code_that_was_compiled_before_is_loaded_without_what_compiles_it() -> None:
    program = "import sys, hidet.cuda.target; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "hidet.cuda.loader" in loaded
    compiling = ("hidet.cuda.compiling", "hidet.cuda.codegen", "hidet.cuda.tile", "hidet.gpu.codegen", "hidet.gpu.tile")
    assert not [name for name in loaded if name.startswith(compiling)]
