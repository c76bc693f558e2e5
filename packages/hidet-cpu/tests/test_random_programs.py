"""Compiled random programs leave in memory what the interpreter leaves there."""

import ctypes
from dataclasses import replace
from itertools import count

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.cpu.pool import shared_pool
from hidet.cpu.target import CpuTarget
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.target import CompileJob
from hidet.testing.program_strategies import arguments, modules

TARGET = CpuTarget()
SYMBOLS = count()
SCALARS = {dtypes.i64: (ctypes.c_int64, int), dtypes.f32: (ctypes.c_float, float)}


def run_compiled(module, values):
    """Run the entry function as machine code; arrays are written in place."""
    kernel, entry = module.functions
    symbol = f"random_program_{next(SYMBOLS)}"
    named = Module((kernel, replace(entry, name=symbol)), symbol)
    code = TARGET.load(TARGET.compile([CompileJob(symbol, named, effort=1)]))
    types, passed = [ctypes.c_void_p], [shared_pool(1).address]
    for var, value in zip(entry.params, values, strict=True):
        ctype, convert = (
            (ctypes.c_void_p, lambda a: a.ctypes.data) if isinstance(var.type, PointerType) else SCALARS[var.type]
        )
        types.append(ctype)
        passed.append(convert(value))
    ctypes.CFUNCTYPE(None, *types)(code.address(symbol))(*passed)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(modules(), st.integers(0, 3))
def test_compiled_programs_compute_what_the_interpreter_computes(module, seed):
    expected, actual = arguments(seed), arguments(seed)
    run_module(module, expected)
    run_compiled(module, actual)
    for one, other in zip(expected[:4], actual[:4], strict=True):
        # A target may fuse a product and a sum, which rounds once where the interpreter rounds twice.
        tolerance = 64 * np.finfo(one.dtype).eps if one.dtype.kind == "f" else 0
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
