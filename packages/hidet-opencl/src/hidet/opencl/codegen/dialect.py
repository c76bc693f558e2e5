"""OpenCL C as the printer of C-like languages takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.dialect import ByValue, Dialect, SharedMemory
from hidet.gpu.codegen.function import FunctionEmitter, c_string
from hidet.gpu.codegen.prelude import Piece, Prelude
from hidet.gpu.codegen.text import Text
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Call
from hidet.ir.func import Function
from hidet.ir.print_format import c_format, promoted
from hidet.ir.types import PointerType, Type
from hidet.ir.visit import walk
from hidet.opencl.codegen.intrinsics import spell_intrinsic
from hidet.opencl.codegen.pieces import INLINE, PIECES, bits_piece, integer_piece
from hidet.opencl.codegen.reserved import RESERVED
from hidet.opencl.codegen.spelling import SPELLING, WORD_STRUCTS

_ALIGN = 16
DYNAMIC_MEMORY = "shared_memory"
"""The parameter of kernels that use memory which launches ask for."""


def uses_dynamic_memory(function: Function) -> bool:
    """Whether launches of a kernel say how much memory of a block it has."""
    return any(isinstance(node, Call) and node.callee == "gpu.dynamic_shared_memory" for node in walk(function.body))


def _kernel(
    blocks: Mapping[str, tuple[int, int, int]],
    attribute: str,
    function: Function,
    parameters: str,
    threads: int | None,
) -> str:
    """blocks: threads along each axis where all launches agree. attribute: in front of every kernel."""
    block = blocks.get(function.name)
    size = "" if block is None else f"__attribute__((reqd_work_group_size({', '.join(map(str, block))}))) "
    if uses_dynamic_memory(function):
        parameters = ", ".join(filter(None, (parameters, f"__local uchar* {DYNAMIC_MEMORY}")))
    return f"{size}{attribute}__kernel void {function.name}({parameters})"


def _by_value(name: str, element: str, count: int) -> ByValue:
    raise CodegenError(f"parameter {name} is a struct, which kernels of OpenCL do not take", hint="pass its numbers")


def _vector(type_: Type, element: DType, lanes: int, of_lane: Callable[[str], Text]) -> Text:
    cells = ", ".join(of_lane(str(lane)).text for lane in range(lanes))
    return Text(f"({SPELLING.type_name(type_)}){{{{{cells}}}}}")


def _vector_piece(element: DType, lanes: int) -> Piece:
    scalar, size = SPELLING.scalar_type(element), element.nbytes * lanes
    # The widest access is of 16 bytes.
    align = element.nbytes if size & (size - 1) else min(size, _ALIGN)
    needs = (element.short,) if element in WORD_STRUCTS else ()
    name = f"{scalar}_{lanes}"
    return Piece(name, f"typedef struct {{ {scalar} lane[{lanes}]; }} __attribute__((aligned({align}))) {name};", needs)


def _typed(prelude: Prelude, piece: str, function: str, type_: Type) -> str:
    made = integer_piece(function, prelude.declare(type_))
    prelude.add(made)
    return made.name


def _bits_as(prelude: Prelude, new: Type, old: Type) -> str:
    made = bits_piece(prelude.declare(new), prelude.declare(old))
    prelude.add(made)
    return made.name


def _print(emitter: FunctionEmitter, node: s.Print) -> None:
    values = [v if isinstance(v.type, PointerType) else build.cast(v, promoted(v.dtype)) for v in node.values]
    emitter.values.begin(*values)
    # A long of OpenCL has 64 bits, and there is no longer one (OpenCL C, printf).
    text = c_string(c_format(node.text).replace("ll", "l"))
    emitter.values.line(f"printf({', '.join([text, *map(emitter.values.text, values)])});")


STATEMENTS: Mapping[type[s.Stmt], Callable[[FunctionEmitter, Any], None]] = {s.Print: _print}


OPENCL = Dialect(
    spelling=SPELLING,
    reserved=RESERVED,
    # Drivers refuse what is more than the device has.
    shared=SharedMemory("__local ", 1 << 40, "", _ALIGN, lambda nbytes: _ALIGN, is_of_kernel=True),
    pieces=PIECES,
    device=INLINE,
    device_call=f"{INLINE.replace('inline ', '')} __attribute__((noinline))",
    kernel=partial(_kernel, {}, ""),
    by_value=_by_value,
    block_index="get_group_id({number})",
    table="const",
    unroll="#pragma unroll",
    align="__attribute__((aligned({bytes})))",
    vector=_vector,
    vector_piece=_vector_piece,
    typed=_typed,
    bits_as=_bits_as,
    wide_store=lambda prelude, node: None,
    intrinsic=spell_intrinsic,
    statements=STATEMENTS,
)
"""Of a module whose launches say nothing of blocks."""


def dialect_for(blocks: Mapping[str, tuple[int, int, int]], attribute: str) -> Dialect:
    """The language for kernels that are launched by such blocks, by the names that they have in the text.

    attribute: what stands in front of each.
    """
    return replace(OPENCL, kernel=partial(_kernel, blocks, attribute))
