"""Symbols of extents in the body of a script: numbers that calls tell."""

import numpy as np
import pytest

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import f32, i32, script
from hidet.lang.module import module_of

m, n = hidet.dims.symbol("m"), hidet.dims.symbol("n")


@script
def compare(x: f32[m], y: f32[n], out: i32[6]):
    out[0] = m == n
    out[1] = 1 if m != n else 0
    out[2] = n == 3
    out[3] = m < n <= 4
    out[4] = m + 1 == n
    if m == n and n == 3:
        out[5] = 1


@pytest.mark.parametrize(
    ("extents", "expected"),
    [((3, 3), [1, 0, 1, 0, 0, 1]), ((3, 4), [0, 1, 0, 1, 1, 0]), ((4, 4), [1, 0, 0, 0, 0, 0])],
)
def test_symbols_are_compared_when_the_program_runs(extents, expected):
    out = np.zeros(6, np.int32)
    run_module(module_of([compare]), [*(np.zeros(extent, np.float32) for extent in extents), out, *extents])
    assert out.tolist() == expected


def among_numbers(x: f32[n]):
    x[0] = 1.0 if n in (3, 4) else 0.0


def test_symbols_are_looked_for_nowhere(refused):
    refused(among_numbers, "`in` looks among values known at build time", 1, 19, "compare with each of them")
