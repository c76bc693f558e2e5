"""Statements that CUDA C++ has forms of its own for: assertions, prints, inline PTX and wide stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet import dtypes
from hidet.errors import CodegenError
from hidet.gpu.codegen.function import FunctionEmitter, c_string
from hidet.gpu.codegen.prelude import Prelude
from hidet.gpu.codegen.spelling import element_type
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.print_format import c_format, promoted
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype

_REGISTERS = {
    **dict.fromkeys((dtypes.i16, dtypes.u16), "h"),
    **dict.fromkeys((dtypes.i32, dtypes.u32), "r"),
    **dict.fromkeys((dtypes.i64, dtypes.u64), "l"),
    dtypes.f32: "f",
    dtypes.f64: "d",
}


def _assert(emitter: FunctionEmitter, node: s.Assert) -> None:
    if node.values:
        raise CodegenError("an assertion on a GPU tells no values: what CUDA prints is a constant", loc=node.loc)
    # NVRTC declares what CUDA's assert calls.
    emitter.values.begin(node.condition)
    place, row = ("", 0) if node.loc is None else (node.loc.file or "", node.loc.line or 0)
    condition = emitter.values.value(node.condition)
    arguments = f"{c_string(node.message)}, {c_string(place)}, {row}, {c_string(emitter.function.name)}, 1"
    emitter.values.line(f"if (!{condition.inside(15)}) __assertfail({arguments});")


def _print(emitter: FunctionEmitter, node: s.Print) -> None:
    # CUDA's printf takes what C's takes (CUDA C++ Programming Guide, Formatted Output).
    values = [v if isinstance(v.type, PointerType) else build.cast(v, promoted(v.dtype)) for v in node.values]
    emitter.values.begin(*values)
    emitter.values.line(f"printf({', '.join([c_string(c_format(node.text)), *map(emitter.values.text, values)])});")


def _assembly(emitter: FunctionEmitter, node: s.Assembly) -> None:
    # PTX in CUDA C++, "Inline PTX Assembly": a letter an operand says which register it is.
    emitter.values.begin(*node.arguments)
    written = [f'"={_register(var.type)}"({emitter.values.names(var, var.name)}[0])' for var in node.results]
    written += [f'"+{_register(var.type)}"({emitter.values.names(var, var.name)}[0])' for var in node.updates]
    read = [f'"{_register(value.type)}"({emitter.values.text(value)})' for value in node.arguments]
    clobbers = ' : "memory"' if node.touches_memory else ""
    volatile = " volatile" if node.has_effect else ""
    emitter.values.line(f"asm{volatile}({c_string(node.text)} : {', '.join(written)} : {', '.join(read)}{clobbers});")


def _register(type_: Type) -> str:
    """The letter of the register that holds an operand of assembly."""
    if isinstance(type_, PointerType):
        return "l"
    letter = _REGISTERS.get(element_dtype(type_))
    if letter is None:
        raise CodegenError(f"assembly has no registers of {element_dtype(type_)}", hint="bitcast it to an integer")
    return letter


STATEMENTS: Mapping[type[s.Stmt], Callable[[FunctionEmitter, Any], None]] = {
    s.Assert: _assert,
    s.Print: _print,
    s.Assembly: _assembly,
}
"""How they are written, by class."""


def wide_store(prelude: Prelude, node: s.Store) -> str | None:
    """The function that writes 8 or 16 bytes of elements of 2 or 4 bytes; None for other stores."""
    type_, place = node.value.type, node.buffer.type
    assert isinstance(place, BufferType | PointerType)
    if not isinstance(type_, VectorType) or place.space not in ("global", "shared"):
        return None
    nbytes = type_.dtype.nbytes
    fits = nbytes in (2, 4) and nbytes * type_.lanes in (8, 16) and not type_.dtype.is_complex
    if not fits or type_.dtype != element_type(place):
        return None
    prelude.use("store_words")
    return f"store_{place.space}"
