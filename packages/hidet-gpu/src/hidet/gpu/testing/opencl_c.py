"""A second language for tests: a C without templates, close to that of OpenCL, whose helpers are declared only.

`HEADER` makes what is printed in it a source that a compiler of C reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.dialect import ByValue, Dialect, ReservedNames, SharedMemory
from hidet.gpu.codegen.expression import ExpressionEmitter
from hidet.gpu.codegen.function import FunctionEmitter
from hidet.gpu.codegen.prelude import Piece, Prelude
from hidet.gpu.codegen.spelling import C_FUNCTIONS, Spelling
from hidet.gpu.codegen.text import Text, call
from hidet.ir.expr import Expr
from hidet.ir.func import Function
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.stmt import Assert
from hidet.ir.types import MemorySpace, Type

HEADER = """#include <math.h>
#include <stdbool.h>
#define __kernel
#define __global
#define __local
#define __constant const
#define CLK_LOCAL_MEM_FENCE 0
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned uint;
typedef unsigned long ulong;
typedef struct { ushort bits; } f16;
typedef struct { ushort bits; } bf16;
f16 to_f16(float);
bf16 to_bf16(float);
float f16_to_f32(f16), bf16_to_f32(bf16);
#define to_f32(a) _Generic((a), f16: f16_to_f32, bf16: bf16_to_f32)(a)
"""

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
        dtypes.i16: "short",
        dtypes.u16: "ushort",
        dtypes.f16: "f16",
        dtypes.bf16: "bf16",
        dtypes.f32: "float",
        dtypes.tf32: "float",
    },
    structs=frozenset(dtypes.FLOATS_OF_16_BITS),
    vector="{element}_{lanes}",
    suffixes={dtypes.u32: "u", dtypes.i64: "L", dtypes.u64: "UL", dtypes.f32: "f"},
    not_finite={(dtypes.f32, "nan"): "NAN", (dtypes.f32, "inf"): "INFINITY", (dtypes.f32, "-inf"): "-INFINITY"},
    function=lambda op, dtype: C_FUNCTIONS.get(op) if dtype.is_float else {"abs": "abs"}.get(op),
    pointer=lambda element, space: f"{_SPACES.get(space, '')}{element}*",
)


def _kernel_head(function: Function, parameters: str, threads: int | None) -> str:
    size = "" if threads is None else f"__attribute__((reqd_work_group_size({threads}, 1, 1))) "
    return f"{size}__kernel void {function.name}({parameters})"


def _by_value(name: str, element: str, count: int) -> ByValue:
    raise CodegenError("OpenCL kernels take no structs here")


def _vector(type_: Type, element: DType, lanes: int, of_lane: Callable[[str], Text]) -> Text:
    cells = ", ".join(of_lane(str(lane)).text for lane in range(lanes))
    return Text(f"({SPELLING.type_name(type_)}){{{{{cells}}}}}")


def _vector_piece(element: DType, lanes: int) -> Piece:
    scalar = SPELLING.scalar_type(element)
    needs = (element.short,) if element in SPELLING.structs else ()
    return Piece(f"{scalar}_{lanes}", f"typedef struct {{ {scalar} lane[{lanes}]; }} {scalar}_{lanes};", needs)


def _typed(prelude: Prelude, piece: str, function: str, type_: Type) -> str:
    name = prelude.declare(type_)
    prelude.add(Piece(f"{function}_{name}", f"{name} {function}_{name}({name} a, {name} b);"))
    return f"{function}_{name}"


def _bits_as(prelude: Prelude, new: Type, old: Type) -> str:
    to, given = prelude.declare(new), prelude.declare(old)
    prelude.add(Piece(f"{to}_of_{given}", f"{to} {to}_of_{given}({given} a);"))
    return f"{to}_of_{given}"


_INTRINSICS = {
    "gpu.thread_idx.x": "get_local_id(0)",
    "gpu.block_idx.x": "get_group_id(0)",
    "gpu.block_dim.x": "get_local_size(0)",
    "gpu.syncthreads": "barrier(CLK_LOCAL_MEM_FENCE)",
}
_CALLED = frozenset(
    f"gpu.{name}"
    for name in (
        *("shuffle", "shuffle_up", "shuffle_xor", "vote_ballot", "vote_any", "syncwarp"),
        *("population_count", "leading_zeros", "atomic_add", "reduce_add_at", "reduce_max_at", "reduce_min_at"),
        "exp2_approx",
    )
)
"""What schedules of hidet-gpu call besides; functions of these names, with underscores."""


def _intrinsic(emitter: ExpressionEmitter, row: Intrinsic, arguments: list[Expr], type_: Type) -> Text:
    if row.name in _INTRINSICS:
        return Text(_INTRINSICS[row.name])
    if row.name not in _CALLED:
        raise CodegenError(f"intrinsic {row.name} has no OpenCL spelling")
    return call(row.name.replace(".", "_"), *(emitter.value(argument) for argument in arguments))


def _assert(emitter: FunctionEmitter, node: Assert) -> None:
    emitter.values.begin(node.condition)
    emitter.values.line(f"require({emitter.values.text(node.condition)});")


_PIECES: Mapping[str, Piece] = {
    name: Piece(name, text)
    for name, text in (
        ("f16", "/* f16 */"),
        ("bf16", "/* bf16 */"),
        ("tf32", "float to_tf32(float);"),
        ("truncate", "int to_i32(float); long to_i64(float); uint to_u32(float); ulong to_u64(float);"),
        ("min_max", "float min_nan(float, float); float max_nan(float, float);"),
        ("float_floor", "float floor_mod(float, float); float floor_div(float, float);"),
    )
}


OPENCL = Dialect(
    spelling=SPELLING,
    reserved=ReservedNames(frozenset({"global", "local"}), re.compile(r"get_\w+|float\d+"), re.compile(r"CL_\w+")),
    shared=SharedMemory("__local ", 1 << 20, "", 16, lambda nbytes: 16, is_of_kernel=True),
    pieces=_PIECES,
    device="inline",
    device_call="__attribute__((noinline))",
    kernel=_kernel_head,
    by_value=_by_value,
    block_index="get_group_id({number})",
    table="__constant",
    unroll="/* unrolled */",
    align="__attribute__((aligned({bytes})))",
    vector=_vector,
    vector_piece=_vector_piece,
    typed=_typed,
    bits_as=_bits_as,
    wide_store=lambda prelude, node: None,
    intrinsic=_intrinsic,
    statements={Assert: _assert},
)
