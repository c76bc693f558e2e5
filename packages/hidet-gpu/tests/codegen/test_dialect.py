"""A second language: what the printer writes is the dialect's, down to a C without templates."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace

import pytest

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.dialect import ByValue, Dialect, ReservedNames, SharedMemory
from hidet.gpu.codegen.expression import ExpressionEmitter
from hidet.gpu.codegen.prelude import Piece, Prelude
from hidet.gpu.codegen.source import KernelSource, emit_source
from hidet.gpu.codegen.spelling import C_FUNCTIONS, Spelling
from hidet.gpu.codegen.text import Text
from hidet.gpu.intrinsics import INTRINSICS
from hidet.ir.expr import Expr
from hidet.ir.func import Function
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.parser import parse_module
from hidet.ir.types import MemorySpace, Type

_SPACES: dict[MemorySpace, str] = {"global": "__global ", "shared": "__local ", "constant": "__constant "}

SPELLING = Spelling(
    name="OpenCL",
    types={
        dtypes.boolean: "bool",
        dtypes.i8: "char",
        dtypes.u8: "uchar",
        dtypes.i32: "int",
        dtypes.u32: "uint",
        dtypes.i64: "long",
        dtypes.u64: "ulong",
        dtypes.f32: "float",
    },
    structs=frozenset(),
    vector="{element}_{lanes}",
    suffixes={dtypes.u32: "u", dtypes.i64: "L", dtypes.u64: "UL", dtypes.f32: "f"},
    not_finite={(dtypes.f32, "nan"): "NAN", (dtypes.f32, "inf"): "INFINITY", (dtypes.f32, "-inf"): "-INFINITY"},
    function=lambda op, dtype: C_FUNCTIONS.get(op) if dtype.is_float else None,
    pointer=lambda element, space: f"{_SPACES.get(space, '')}{element}*",
)


def kernel_head(function: Function, parameters: str, threads: int | None) -> str:
    size = "" if threads is None else f"__attribute__((reqd_work_group_size({threads}, 1, 1))) "
    return f"{size}__kernel void {function.name}({parameters})"


def by_value(name: str, element: str, count: int) -> ByValue:
    raise CodegenError("OpenCL kernels take no structs here")


def vector(type_: Type, element: DType, lanes: int, of_lane: Callable[[str], Text]) -> Text:
    cells = ", ".join(of_lane(str(lane)).text for lane in range(lanes))
    return Text(f"({SPELLING.type_name(type_)}){{{{{cells}}}}}")


def vector_piece(element: DType, lanes: int) -> Piece:
    name = f"{SPELLING.scalar_type(element)}_{lanes}"
    return Piece(name, f"typedef struct {{ {SPELLING.scalar_type(element)} lane[{lanes}]; }} {name};")


def typed(prelude: Prelude, piece: str, function: str, type_: Type) -> str:
    name = prelude.declare(type_)
    text = f"inline {name} {function}_{name}({name} a, {name} b) {{ {name} q = a / b; return q - (q * b > a); }}"
    prelude.add(Piece(f"{function}_{name}", text))
    return f"{function}_{name}"


def intrinsic(emitter: ExpressionEmitter, row: Intrinsic, arguments: list[Expr], type_: Type) -> Text:
    known = {"gpu.thread_idx.x": "get_local_id(0)", "gpu.syncthreads": "barrier(CLK_LOCAL_MEM_FENCE)"}
    if row.name not in known:
        raise CodegenError(f"intrinsic {row.name} has no OpenCL spelling")
    return Text(known[row.name])


OPENCL = Dialect(
    spelling=SPELLING,
    reserved=ReservedNames(frozenset({"global", "local"}), re.compile(r"get_\w+|float\d+"), re.compile(r"CL_\w+")),
    shared=SharedMemory("__local ", 1 << 20, "", 16, lambda nbytes: 16),
    pieces={},
    device="inline",
    device_call="__attribute__((noinline))",
    kernel=kernel_head,
    by_value=by_value,
    block_index="get_group_id({number})",
    table="__constant",
    unroll="__attribute__((opencl_unroll_hint))",
    align="__attribute__((aligned({bytes})))",
    vector=vector,
    vector_piece=vector_piece,
    typed=typed,
    wide_store=lambda prelude, node: None,
    intrinsic=intrinsic,
    statements={},
)


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
inline long floor_div_long(long a, long b) { long q = a / b; return q - (q * b > a); }

typedef struct { float lane[4]; } float_4;

__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void norm(__global float* x, __global float* y, long n) {
  const long i = get_group_id(0);
  __local __attribute__((aligned(16))) float local_2[64];
  long place = i * 64 + (long)get_local_id(0);
  local_2[place % 64] = exp(x[floor_div_long(place, n)]);
  barrier(CLK_LOCAL_MEM_FENCE);
  __attribute__((opencl_unroll_hint))
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
        ('assert x[i] > 0.0, "below zero"', "statement Assert has no OpenCL spelling"),
        ('call("gpu.syncwarp", u32(1), type=None)', "intrinsic gpu.syncwarp has no OpenCL spelling"),
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
