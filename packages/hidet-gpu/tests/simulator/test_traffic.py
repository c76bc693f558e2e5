"""Counting how warps use the banks of shared memory and the sectors of global memory."""

import numpy as np
import pytest

from hidet.gpu.simulator.traffic import Traffic
from hidet.gpu.testing.launches import kernel_module
from hidet.ir.interpret import run_module


def counted(body, count=4096):
    traffic = Traffic()
    run_module(kernel_module(body, "p: ~f32"), [np.zeros(count, np.float32)], traffic=traffic)
    return traffic


@pytest.mark.parametrize(
    ("shape", "index", "passes"),
    [
        ("32, 32", "0, t", 1),
        ("32, 32", "t, 0", 32),
        ("32, 33", "t, 0", 1),
        ("32, 32", "t // 2, 0", 16),
        ("32, 32", "t % 8, 4", 8),
        ("32, 32", "3, 3", 1),
        ("32, 32", "0, t * 2 % 32", 1),
        ("32, 34", "t, 0", 2),
    ],
)
def test_banks_of_shared_memory(shape, index, passes):
    traffic = counted(f"s: f32[{shape}] @ shared\ns[{index}] = 1.0")
    (use,) = traffic.shared.values()
    assert (use.needed, use.least) == (passes, 1)
    assert bool(traffic.conflicts()) == (passes > 1)


@pytest.mark.parametrize(("pitch", "passes"), [(4, 4), (8, 8), (16, 16), (20, 4), (64, 32)])
def test_wide_accesses_are_served_by_eight_lanes_at_a_time(pitch, passes):
    body = f"s: f32[2048] @ shared\nstore(s, [t * {pitch}], f32x4(1.0))"
    (use,) = counted(body).shared.values()
    assert (use.needed, use.least) == (passes, 4)


@pytest.mark.parametrize(
    ("body", "sectors", "least"),
    [
        ("p[t] = 1.0", 4, 4),
        ("p[t * 2] = 1.0", 8, 4),
        ("p[t * 8] = 1.0", 32, 4),
        ("store(p, [t * 4], f32x4(1.0))", 16, 16),
        ("store(p, [t * 8], f32x4(1.0))", 32, 16),
        ("p[0] = 1.0", 1, 1),
    ],
)
def test_sectors_of_global_memory(body, sectors, least):
    traffic = counted(body)
    (use,) = traffic.outside.values()
    assert (use.needed, use.least) == (sectors, least)
    assert bool(traffic.scattered()) == (sectors > least)
