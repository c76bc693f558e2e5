"""Parallel loops of scripts: turns on the thread pool of a CPU, and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hidet
from hidet.errors import ScriptError
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32, grid, i64, register_tensor
from hidet.lang.module import module_of

M, N = hidet.dims.symbol("M"), hidet.dims.symbol("N")


def test_parallel_loops_run_on_the_thread_pool():
    @hidet.script
    def outer(x: f32[M], y: f32[N], out: f32[M, N], scale: f32):
        for i, j in grid(M, N, attrs="p"):
            product = x[i] * y[j]
            out[i, j] = product * scale if i < M and j >= 0 else N

    x, y = torch.randn(300), torch.randn(70)
    out = torch.zeros(300, 70)
    outer(x, y, out, 2.0)
    torch.testing.assert_close(out, torch.outer(x, y) * 2)


def test_turns_of_a_parallel_loop_share_no_variable():
    with pytest.raises(ScriptError, match="a parallel loop changes total, which its turns share"):

        @hidet.script
        def total(x: f32[N], out: f32[1]):
            total = 0.0
            for i in grid(N, attrs="p"):
                total += x[i]
            out[0] = total

    with pytest.raises(ScriptError, match="parallel loops stand in functions of the host"):

        @hidet.script
        def kernel(x: f32[N]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 1
            for i in grid(N, attrs="p"):
                x[i] = 0.0


@hidet.script
def even_places(out: i64[64]):
    for i, j in grid(8, 8, attrs="pp"):
        for k in range(3):
            if k == 1:
                continue
            out[i * 8 + j] += k
        if (i * 8 + j) % 2 == 1:
            continue
        out[i * 8 + j] += 10


@hidet.script
def through_memory_of_the_host(out: i64[64]):
    table = register_tensor(i64, [64])
    for i in grid(64, attrs="p"):
        table[i] = 3 * i
    for i in range(64):
        out[i] = table[63 - i]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (even_places, [12 if i % 2 == 0 else 2 for i in range(64)]),
        (through_memory_of_the_host, [3 * (63 - i) for i in range(64)]),
    ],
    ids=["continue ends a turn", "turns share memory of the host"],
)
def test_turns_do_the_same_on_a_cpu_and_in_the_interpreter(function, expected):
    compiled, interpreted = np.zeros(64, np.int64), np.zeros(64, np.int64)
    function(compiled)
    run_module(module_of([function]), [interpreted])
    assert compiled.tolist() == interpreted.tolist() == expected


def test_break_of_a_parallel_loop_is_refused_where_it_stands():
    with pytest.raises(
        ScriptError, match="break stands in a parallel loop, whose turns run at the same time"
    ) as caught:

        @hidet.script
        def until(x: i64[64]):
            for i in grid(64, attrs="p"):
                if x[i] == 0:
                    break

    assert "                    break" in str(caught.value)
