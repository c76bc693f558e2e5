"""A second language: what the printer writes is the dialect's, down to a C without templates."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace

import pytest

from hidet.errors import CodegenError
from hidet.gpu.codegen.dialect import Dialect, SharedMemory
from hidet.gpu.codegen.source import KernelSource, emit_source
from hidet.gpu.codegen.spelling import C_FUNCTIONS
from hidet.gpu.intrinsics import INTRINSICS
from hidet.gpu.testing.opencl_c import OPENCL, SPELLING
from hidet.ir.parser import parse_module


def printed(text: str, dialect: Dialect = OPENCL) -> KernelSource:
    return emit_source(parse_module(textwrap.dedent(text), INTRINSICS), dialect)


KERNEL = """
module(entry="main")

@kernel
def norm(x: ~f32, y: ~f32, n: i64):
    i = grid()
    local: f32[64] @ shared
    place: i64 = i * 64 + cast(call("gpu.thread_idx.x", type=i32), i64)
    local[place % 64] = exp(x[place // n])
    call("gpu.syncthreads", type=None)
    for j in unroll(2):
        y[place * 4] = load(x, [place * 4 + j], f32x4) * f32x4(0.5)

@host
def main(x: ~f32, y: ~f32, n: i64):
    launch("norm", [n], [x, y, n], block=[64])
"""

KERNEL_IN_OPENCL = """
long floor_div_long(long a, long b);

typedef struct { float lane[4]; } float_4;

__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void norm(__global float* x, __global float* y, long n) {
  const long i = get_group_id(0);
  __local __attribute__((aligned(16))) float local_2[64];
  long place = i * 64 + (long)get_local_id(0);
  local_2[place % 64] = exp(x[floor_div_long(place, n)]);
  barrier(CLK_LOCAL_MEM_FENCE);
  /* unrolled */
  for (int j = 0; j < 2; ++j) {
    const float_4 t = *(__global float_4*)(x + (place * 4 + j));
    const float_4 t_2 = (float_4){{0.5f, 0.5f, 0.5f, 0.5f}};
    *(__global float_4*)(y + place * 4) = (float_4){{PRODUCTS}};
  }
}
"""


def test_a_kernel_is_printed_in_a_c_without_templates() -> None:
    source = printed(KERNEL)
    products = ", ".join(f"t.lane[{n}] * t_2.lane[{n}]" for n in range(4))
    assert source.text.strip() == KERNEL_IN_OPENCL.replace("PRODUCTS", products).strip()
    assert [(fact.name, fact.symbol, fact.shared_bytes) for fact in source.kernels] == [("norm", "norm", 0)]


def kernel_of(statement: str, name: str = "k") -> str:
    return f"""
module(entry="main")

@kernel
def {name}(x: ~f32, n: i64):
    i = grid()
    {statement}

@host
def main():
    pass
"""


def test_a_function_gets_another_name_where_the_language_declares_its_own() -> None:
    (fact,) = printed(kernel_of("x[i] = 0.0", "get_local_size")).kernels
    assert (fact.name, fact.symbol) == ("get_local_size", "script_get_local_size")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ('printf("%f", x[i])', "statement Print has no OpenCL spelling"),
        ('call("gpu.trap", type=None)', "intrinsic gpu.trap has no OpenCL spelling"),
        ("x[i] = erfinv(x[i])", "scalar operation 'erfinv' of f32 has no OpenCL spelling"),
        ("x[i] = cast(cast(x[i], f64), f32)", "OpenCL kernels do not hold elements of float64"),
    ],
)
def test_what_the_language_lacks_is_refused_by_its_name(statement: str, message: str) -> None:
    spelling = replace(SPELLING, function=lambda op, dtype: None if op == "erfinv" else C_FUNCTIONS.get(op))
    with pytest.raises(CodegenError, match=re.escape(message)):
        printed(kernel_of(statement), replace(OPENCL, spelling=spelling))


def test_arrays_of_a_block_that_are_too_large_to_be_declared_lie_in_memory_of_the_launch() -> None:
    dynamic = "extern __local char shared_memory[];"
    shared = SharedMemory("__local ", 1 << 10, dynamic, 128, lambda nbytes: 16)
    text = """
    tile: f32[500] @ shared
    rest: f32[3] @ shared
    x[i] = tile[i] + rest[0]
    """
    source = printed(kernel_of(text.strip()), replace(OPENCL, shared=shared))
    assert dynamic in source.text and "__local float* rest = (__local float*)(shared_memory + 2000);" in source.text
    assert source.kernels[0].shared_bytes == 2048


def test_arrays_of_a_block_stand_where_a_kernel_begins_if_the_language_wants_them_there() -> None:
    branch = """
    if n > 0:
        tile: f32[5] @ shared
        x[i] = tile[i]
    """
    source = printed(kernel_of(branch.strip()))
    lines = [line.strip() for line in source.text.splitlines()]
    assert lines.index("__local __attribute__((aligned(16))) float tile[5];") < lines.index("if (n > 0) {")
    everywhere = replace(OPENCL, shared=replace(OPENCL.shared, is_of_kernel=False))
    lines = [line.strip() for line in printed(kernel_of(branch.strip()), everywhere).text.splitlines()]
    assert lines.index("__local __attribute__((aligned(16))) float tile[5];") > lines.index("if (n > 0) {")


def test_a_function_has_no_array_of_the_block_where_kernels_have_them_alone() -> None:
    function = """
module(entry="main")

@device
def f(x: ~f32):
    tile: f32[5] @ shared
    x[0] = tile[0]

@host
def main():
    pass
"""
    with pytest.raises(CodegenError, match="f declares an array of the block, which OpenCL has in kernels alone"):
        printed(function)
