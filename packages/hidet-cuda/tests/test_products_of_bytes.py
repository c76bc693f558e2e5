"""Products of 8-bit floats and integers by matrix units, and what is done to matrices that these do not take."""

from __future__ import annotations

import re
import textwrap

import numpy as np
import pytest

from hidet.context import make_context
from hidet.cuda.passes.rows_along_k import RowsAlongK
from hidet.cuda.schedules.matmul import MatmulRule
from hidet.cuda.testing.schedules import assert_compiles, assert_right, context_for, rules_of
from hidet.cuda.testing.tasks import scheduled_task
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.parser import parse_graph
from hidet.ir.printer import print_module
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret
from hidet.testing.scheduled import run_scheduled, scheduled_graph


def scaled(m: int | str, n: int, k: int, dtype: str = "f8e4m3", *, fast: bool = False, bias: bool = False) -> str:
    """What `_scaled_mm` becomes: a product with a scale of each row and of each column."""
    added = f"\n  %4: f32[{m}, {n}] = add(%2, %bias)" if bias else ""
    return f"""graph g(%a: {dtype}[{m}, {k}], %b: {dtype}[{n}, {k}], %s: f32[{m}, 1], %t: f32[1, {n}], %bias: f32[{n}]):
  %0: f32[{m}, {n}] = matmul(%a, %b, trans_b=True, dtype=f32, fast_accum={fast})
  %1: f32[{m}, {n}] = mul(%0, %s)
  %2: f32[{m}, {n}] = mul(%1, %t){added}
  %3: bf16[{m}, {n}] = cast({"%4" if bias else "%2"}, dtype=bf16)
  return %3
"""


def of_integers(m: int | str, n: int, k: int) -> str:
    return f"""graph g(%a: i8[{m}, {k}], %b: i8[{n}, {k}]):
  %0: i32[{m}, {n}] = matmul(%a, %b, trans_b=True, dtype=i32)
  return %0
"""


def of_blocks(m: int | str, n: int, k: int) -> str:
    blocks, columns = -(-k // 128), -(-n // 128)
    scales = f"%s: f32[{m}, {blocks}]{{1, {m}}}, %t: f32[{blocks}, {columns}]"
    return f"""graph g(%a: f8e4m3[{m}, {k}], %b: f8e4m3[{n}, {k}], {scales}):
  %0: bf16[{m}, {n}] = block_scaled_matmul(%a, %b, %s, %t, trans_b=True)
  return %0
"""


SYMBOLIC = {
    "scales of rows": scaled("m", 256, 384),
    "fast sums": scaled("m", 256, 384, fast=True),
    "scales of blocks": of_blocks("m", 256, 384),
    "integers": of_integers("m", 256, 384),
}


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("fast", [False, True], ids=["sums of f32", "fast sums"])
def test_products_of_f8_with_scales_are_right(arch, fast):
    assert_right(scaled(70, 48, 160, fast=fast, bias=True), "cuda.matmul", 3e-2, arch=arch)


def test_products_of_f8e5m2_are_right():
    assert_right(scaled(40, 80, 144, "f8e5m2"), "cuda.matmul", 3e-2, arch="sm_90a")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_of_integers_are_exact(arch):
    random = np.random.default_rng(1)
    arrays = {name: random.integers(-128, 128, (rows, 160)).astype(np.int8) for name, rows in (("a", 70), ("b", 48))}
    assert_right(of_integers(70, 48, 160), "cuda.matmul", 0, arrays, arch=arch)


@pytest.mark.parametrize("m", [1, 16, 100, 777, 4096])
@pytest.mark.parametrize("text", [scaled, of_integers], ids=["f8", "i8"])
@pytest.mark.thorough(every=3)
def test_kernels_of_any_number_of_rows_compile_without_spills(m, text):
    assert_compiles(text(m, 4096, 2048), "sm_90a")


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_kernels_of_both_kinds_of_sums_compile_without_spills(arch):
    for fast in (False, True):
        assert_compiles(scaled(4096, 7168, 2048, fast=fast), arch)


@pytest.mark.parametrize("name", ["scales of rows", "scales of blocks"])
@pytest.mark.thorough(every=2)
def test_kernels_of_all_numbers_of_rows_compile_without_spills(name):
    assert_compiles(f"symbol m: 1.. hint 300\n{SYMBOLIC[name]}", "sm_90a")


def test_other_products_of_integers_are_not_taken():
    text = "graph g(%a: i8[256, 256], %b: i8[256, 256]):\n  %0: i8[256, 256] = matmul(%a, %b)\n  return %0\n"
    assert rules_of(text, "sm_90a") != ["cuda.matmul"]


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_scales_of_blocks_are_applied_to_each_step(arch):
    assert_right(of_blocks(70, 144, 304), "cuda.matmul", 3e-2, arch=arch)


WHOLE = """graph g(%a: f8e4m3[{m}, 384], %b: f8e4m3[256, 384], %s: f32[1, 1], %t: f32[1, 1]):
  %0: f32[{m}, 256] = matmul(%a, %b, trans_b=True, dtype=f32, fast_accum=True)
  %1: f32[{m}, 256] = mul(%0, %s)
  %2: f32[{m}, 256] = mul(%1, %t)
  %3: bf16[{m}, 256] = cast(%2, dtype=bf16)
  return %3
"""
"""A scale of each matrix."""


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("text", [WHOLE.format(m=300), scaled(300, 256, 384)], ids=["matrices", "rows and columns"])
def test_scales_are_read_once_for_a_tile_and_not_for_each_element(text, arch):
    """An element takes two multiplications then; with a read under a condition for each, six times as many."""
    kernel = scheduled_task(text, arch).program.lowered_from[0].text()
    assert kernel.count("fetch(") == 2
    (finish,) = re.findall(r"result_1 = map.*", kernel)
    assert "load(" not in finish and "select(" not in finish


def test_scales_may_lie_anywhere():
    """Those that have no neighbours are read by themselves."""
    module = print_module(scheduled_task(WHOLE.format(m=300), "sm_90a", is_aligned=False).program.module)
    (asked,) = re.findall(r"if .*& 15 == 0:", module)
    assert re.findall(r"bitcast\((\w+)", asked) == ["x0", "x1", "y0"]


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_scales_of_matrices_of_a_batch_are_their_own(arch):
    text = """graph g(%a: f16[3, 70, 32], %b: f16[3, 48, 32], %s: f16[3, 70, 1], %t: f16[3, 1, 1], %u: f16[1]):
      %0: f16[3, 70, 48] = matmul(%a, %b, trans_b=True)
      %1: f16[3, 70, 48] = mul(%0, %s)
      %2: f16[3, 70, 48] = mul(%1, %t)
      %3: f16[3, 70, 48] = add(%2, %u)
      return %3
    """
    assert_right(textwrap.dedent(text), "cuda.matmul", 2e-2, arch=arch)


@pytest.mark.parametrize("m", [16, 777, 4096])
def test_kernels_with_scales_of_blocks_compile_without_spills(m):
    assert_compiles(of_blocks(m, 4096, 2048), "sm_90a")


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.thorough(every=2)
def test_any_number_of_rows_is_multiplied(name, arch):
    sizes, arrays = {"m": 37}, None
    if name == "integers":
        random = np.random.default_rng(1)
        drawn = {"a": 37, "b": 256}
        arrays = {name: random.integers(-128, 128, (rows, 384)).astype(np.int8) for name, rows in drawn.items()}
    assert_right(
        f"symbol m: 1.. hint 40\n{SYMBOLIC[name]}", "cuda.matmul", 0 if arrays else 3e-2, arrays, sizes, arch=arch
    )


@pytest.mark.parametrize("text", [scaled(300, 256, 384), of_blocks(300, 256, 384)], ids=["rows", "blocks"])
def test_all_tiles_that_may_be_tuned_hold_the_scales_they_are_for(text):
    task = scheduled_task(text, "sm_90a").task
    ctx = context_for("sm_90a")
    match = MatmulRule().match(task, ctx)
    space = MatmulRule().space(match, ctx)
    tiles = next(knob for knob in space.knobs if knob.name == "tile").values
    scales = match.data.scales
    assert tiles
    for each in (tile.tiles for tile in tiles):
        assert each.per_thread <= 96
        assert scales is None or (scales.size % each.k == 0 and scales.columns % each.n == 0)


def after_pass(text: str, arch: str) -> str:
    return str(RowsAlongK().run(parse_graph(text, load_registry().operators), context_for(arch)))


def test_rows_across_k_are_copied():
    text = """graph g(%a: f8e4m3[64, 100], %b: f8e4m3[100, 48]):
  %0: f32[64, 48] = matmul(%a, %b, dtype=f32)
  return %0
"""
    done = after_pass(text, "sm_90a")
    assert "f8e4m3[64, 100]{112, 1} = copy(%a)" in done
    assert "f8e4m3[100, 48]{1, 112} = copy(%b)" in done


def test_rows_along_k_are_left_alone():
    assert "copy" not in after_pass(scaled(64, 48, 128), "sm_90a")


@pytest.mark.parametrize(("other", "arch"), [("f8e5m2", "sm_90a"), ("f8e4m3", "sm_80")], ids=["mixed", "sm_80"])
def test_floats_without_matrix_units_become_f16(other, arch):
    text = f"""graph g(%a: f8e4m3[64, 128], %b: {other}[48, 128]):
  %0: f32[64, 48] = matmul(%a, %b, trans_b=True, dtype=f32)
  return %0
"""
    assert after_pass(text, arch).count("f16[") == 2


WITHOUT_UNITS = {
    "integers": of_integers(70, 48, 160),
    "many integers": of_integers(300, 256, 160),
    "floats": scaled(200, 144, 160),
    "scales of blocks": of_blocks(70, 144, 304),
}


@pytest.mark.parametrize("name", WITHOUT_UNITS)
@pytest.mark.thorough(every=2)
def test_products_without_matrix_units_are_right(name):
    ctx = make_context(target="cuda:sm_80", options={"cuda.matrix_units": False})
    graph = parse_graph(WITHOUT_UNITS[name], load_registry().operators)
    random = np.random.default_rng(0)
    arrays = []
    for value in graph.inputs:
        shape, dtype = value.tensor.shape, value.tensor.dtype
        drawn = random.integers(-128, 128, shape) if dtype.is_int else random.standard_normal(shape)
        arrays.append(drawn.astype(dtype.numpy()))
    (found,) = run_scheduled(scheduled_graph(graph, ctx), arrays, block_launches)
    (right,) = (np.asarray(array).astype(np.float64) for array in interpret(graph, arrays))
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=1e-2, atol=1e-2)
