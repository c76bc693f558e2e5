"""Measuring what cost models know of a GPU; the loops themselves need one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hidet.context import make_context
from hidet.cuda.constants import published_constants
from hidet.cuda.measure import (
    BLOCKS_OF_ONE,
    CHAINS,
    DEPTH,
    MANY_BLOCKS,
    READ_BYTES,
    STEPS,
    THREADS,
    Timings,
    constants_from,
    loops,
    product_program,
)
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import compile_cubins
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.passes.manager import run_program_passes
from hidet.schedule.device_constants import known_constants, measure_constants

PUBLISHED = published_constants(90, 132, 228 << 10)
CYCLE = 0.5e-9
OF_ONE = BLOCKS_OF_ONE * THREADS * CHAINS * STEPS
TIMINGS = Timings(
    fma={"float32": OF_ONE / 128 * CYCLE, "float64": OF_ONE / 64 * CYCLE},
    chain=4 * STEPS * CYCLE,
    chase=400e-9,
    launch=2e-6,
    launches=2e-6 + 1e-3,
    reads={"L2": (12 << 20, 1e-4, 3e-6), "memory": (200 << 20, 4e-3, 1e-4)},
    product=2e-4,
)


def test_rates_are_those_of_one_multiprocessor() -> None:
    found = constants_from(TIMINGS, "G", PUBLISHED, 50 << 20, 2e-4)
    assert found.fma["float32"] * CYCLE == pytest.approx(128) and found.fma["float64"] * CYCLE == pytest.approx(64)
    assert found.cycle == pytest.approx(CYCLE) and found.memory_latency == 400e-9
    assert (found.device, found.cores, found.is_measured) == ("G", 132, True)


def test_levels_have_what_one_block_and_all_of_them_read() -> None:
    found = constants_from(TIMINGS, "G", PUBLISHED, 50 << 20, 2e-4)
    assert [level.name for level in found.levels] == ["shared", "L2", "memory"]
    assert found.level("L2").device_bandwidth == pytest.approx((12 << 20) / 3e-6)
    assert found.level("L2").nbytes == 50 << 20 and found.memory.nbytes == 0
    assert found.memory.core_bandwidth == pytest.approx((200 << 20) / 4e-3)


def test_a_block_costs_its_part_of_a_launch_of_many() -> None:
    found = constants_from(TIMINGS, "G", PUBLISHED, 50 << 20, 2e-4)
    assert found.item == pytest.approx(1e-3 * 132 / MANY_BLOCKS)
    assert constants_from(replace(TIMINGS, launches=1e-6), "G", PUBLISHED, 1, 2e-4).item == 0


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_matrix_units_are_as_much_faster_as_the_product_is_than_the_model_expects(factor) -> None:
    found = constants_from(TIMINGS, "G", PUBLISHED, 50 << 20, factor * TIMINGS.product)
    for name, rate in PUBLISHED.matrix.items():
        assert found.matrix[name] == pytest.approx(factor * rate)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_loops_compile_without_spills(arch) -> None:
    ctx = make_context(f"cuda:{arch}")
    target = ctx.target
    assert isinstance(target, CudaTarget)
    verify_module(loops())
    cubins = list(compile_cubins(target.sources(run_program_passes(loops(), ctx)), arch))
    assert len(cubins) == 6
    assert all(usage.spill_bytes == 0 for cubin in cubins for usage in cubin.usage.values())


def test_a_block_reads_its_part_and_in_the_next_turn_another_ones() -> None:
    part = THREADS * READ_BYTES // 4
    x, out = np.ones(2 * part, np.float32), np.zeros(1, np.float32)
    # A thread writes where it finds a sum below zero: the first one of block 1 does, in the second turn.
    x[0], x[part] = -3.0, 5.0
    for turns, found in ((1, -3.0), (2, 0.0)):
        out[0] = 0.0
        run_module(replace(loops(), entry="read"), [x, out, part, 2, turns])
        assert out[0] == found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_product_that_is_measured_takes_longer_for_more_steps(arch) -> None:
    ctx = make_context(f"cuda:{arch}")
    (short, counted), (long, more) = (product_program(depth, ctx) for depth in (DEPTH, 2 * DEPTH))
    assert 1.5 * counted < more < 2 * counted
    assert len(short.arguments) == len(long.arguments)


@pytest.mark.gpu
def test_a_device_is_measured_and_its_numbers_are_near_those_of_its_data_sheet(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    ctx = make_context("cuda")
    found = measure_constants(ctx)
    assert known_constants(ctx) == found
    published = ctx.target.published_constants()  # type: ignore[attr-defined]  # of CudaTarget
    for name, rate in published.fma.items():
        assert 0.5 * rate < found.fma[name] < 1.5 * rate
    assert 0.5 * published.cycle < found.cycle < 2 * published.cycle
    assert 0.4 * published.memory.device_bandwidth < found.memory.device_bandwidth
    assert 0.4 < found.matrix["float16"] / published.matrix["float16"] < 1.6
