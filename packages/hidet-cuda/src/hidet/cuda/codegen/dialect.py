"""CUDA C++ as the printer of C-like languages takes it."""

from __future__ import annotations

from collections.abc import Callable

from hidet.cuda.codegen.hardware.table import spell_intrinsic
from hidet.cuda.codegen.pieces import PIECES
from hidet.cuda.codegen.reserved import RESERVED
from hidet.cuda.codegen.spelling import SPELLING
from hidet.cuda.codegen.statements import STATEMENTS, wide_store
from hidet.dtypes import DType
from hidet.gpu.codegen.dialect import ByValue, Dialect, SharedMemory
from hidet.gpu.codegen.prelude import Piece, Prelude
from hidet.gpu.codegen.text import Text
from hidet.ir.func import Function
from hidet.ir.types import Type

MIN_BLOCKS = "min_blocks"
"""Attribute of a kernel: blocks that shall fit into a multiprocessor at once, which bounds its registers."""

_ALIGN = 16
# TMA wants 128 bytes, its swizzled patterns repeat every 1024.
_LARGE_ALIGN = ((8192, 1024), (1024, 128))


def _array_align(nbytes: int) -> int:
    return next((align for least, align in _LARGE_ALIGN if nbytes >= least), _ALIGN)


def _kernel(function: Function, parameters: str, threads: int | None) -> str:
    bounds = ""
    if threads is not None:
        least = dict(function.attributes).get(MIN_BLOCKS)
        bounds = f" __launch_bounds__({threads}{f', {least}' if least else ''})"
    return f'extern "C" __global__ void{bounds} {function.name}({parameters})'


def _by_value(name: str, element: str, count: int) -> ByValue:
    """The tensor maps of TMA, 128 bytes each."""
    struct = f"{name}_t"
    return ByValue(
        Piece(struct, f"struct __align__(64) {struct} {{ {element} words[{count}]; }};"),
        f"const __grid_constant__ {struct} {name}_value",
        f"const {element}* {name} = {name}_value.words;",
    )


def _vector(type_: Type, element: DType, lanes: int, of_lane: Callable[[str], Text]) -> Text:
    head = f"lanes<{SPELLING.scalar_type(element)}, {lanes}>"
    return Text(f"{head}([&](int i) {{ return {of_lane('i').text}; }})")


def _typed(prelude: Prelude, piece: str, function: str, type_: Type) -> str:
    prelude.use(piece)
    return f"{function}<{prelude.declare(type_)}>"


CUDA_CPP = Dialect(
    spelling=SPELLING,
    reserved=RESERVED,
    shared=SharedMemory(
        qualifier="__shared__ ",
        static_bytes=48 * 1024,
        dynamic="extern __shared__ __align__(1024) unsigned char shared_memory[];",
        # What the launch asks for besides begins where swizzled patterns may.
        dynamic_align=1024,
        align=_array_align,
    ),
    pieces=PIECES,
    device="__device__ __forceinline__",
    device_call="__device__ __noinline__",
    kernel=_kernel,
    by_value=_by_value,
    block_index="blockIdx.{axis}",
    table="static const",
    unroll="#pragma unroll",
    align="__align__({bytes})",
    vector=_vector,
    vector_piece=lambda element, lanes: PIECES["lanes"],
    typed=_typed,
    bits_as=lambda prelude, new, old: _typed(prelude, "bits_as", "bits_as", new),
    wide_store=wide_store,
    intrinsic=spell_intrinsic,
    statements=STATEMENTS,
)
