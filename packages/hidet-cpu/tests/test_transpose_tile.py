"""Squares of vectors transposed in registers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hidet import dtypes
from hidet.cpu.arch import host_arch
from hidet.cpu.codegen import emit_module
from hidet.cpu.loader import load_objects
from hidet.cpu.pool import pool_symbols
from hidet.cpu.schedules.transpose_tile import reduce_lanes, sum_lanes, transpose_tile
from hidet.cpu.toolchain import compile_assembly, compile_object
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType


def transposing_module(dtype: DType, n: int) -> Module:
    """A host function of (source, target) that transposes an n x n matrix."""
    source, target = Var("source", PointerType(dtype)), Var("target", PointerType(dtype))
    k = IRBuilder()
    columns = transpose_tile(k, [build.load(source, row * n, lanes=n) for row in range(n)])
    for i, column in enumerate(columns):
        k.store(target, n * i, column)
    return Module((Function("entry", (source, target), k.body, kind="host"),), "entry")


@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.bf16, dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_the_interpreter_transposes_squares_of_every_size_and_element(dtype: DType, n: int) -> None:
    matrix = np.arange(n * n).reshape(n, n).astype(dtype.numpy())
    result = np.zeros_like(matrix)
    run_module(transposing_module(dtype, n), [matrix, result])
    assert np.array_equal(result, matrix.T)


@pytest.mark.parametrize(
    ("dtype", "n"), [(dtypes.u8, 16), (dtypes.i16, 16), (dtypes.f32, 16), (dtypes.f64, 8)], ids=str
)
def test_compiled_code_transposes(dtype: DType, n: int) -> None:
    arch = host_arch()
    code = load_objects([compile_object(emit_module(transposing_module(dtype, n), arch), arch, 2)], pool_symbols())
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(code.address("entry"))
    matrix = np.random.default_rng(0).integers(0, 200, (n, n)).astype(dtype.numpy())
    result = np.zeros_like(matrix)
    run(None, matrix.ctypes.data, result.ctypes.data)
    assert np.array_equal(result, matrix.T)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_lanes_of_vectors_are_summed_each_and_all(dtype: DType, n: int) -> None:
    """The sum of each of n vectors in one vector, and the largest lane of the first."""
    source, target = Var("source", PointerType(dtype)), Var("target", PointerType(dtype))
    rows = [build.load(source, row * n, lanes=n) for row in range(n)]
    k = IRBuilder()
    sums, largest = sum_lanes(k, rows), reduce_lanes(k, rows[0], build.maximum)
    k.store(target, 0, sums)
    k.store(target, n, largest)
    entry = Function("entry", (source, target), k.body, kind="host")
    matrix = np.random.default_rng(n).integers(-50, 50, (n, n)).astype(dtype.numpy())
    result = np.zeros(n + 1, dtype.numpy())
    run_module(Module((entry,), "entry"), [matrix, result])
    assert np.array_equal(result, [*matrix.sum(axis=1), matrix[0].max()])


def test_every_step_is_one_instruction_with_avx512() -> None:
    from hidet.cpu.arch import arch_from_text

    arch = arch_from_text("znver5")
    assembly = compile_assembly(emit_module(transposing_module(dtypes.f32, 16), arch), arch, 2)
    exchanging = ("vunpck", "vshuf", "vperm", "vinsert", "vblend", "vmov", "vbroadcast")
    lines = [line.split()[0] for line in assembly.splitlines() if line.startswith("\tv")]
    moves = [line for line in lines if line.startswith("vmovup")]
    shuffles = [line for line in lines if line.startswith(exchanging) and line not in moves]
    assert len(moves) <= 32 and len(shuffles) <= 64
