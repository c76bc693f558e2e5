"""Emitting accesses of memory and calls."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.cpu.codegen.evaluation import ExpressionEmitter, Handlers
from hidet.cpu.codegen.intrinsics import emit_intrinsic
from hidet.cpu.codegen.spelling import is_widened_in_memory, memory_type, register_type, suffix_of
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.func import SYMBOL
from hidet.ir.types import BufferType, PointerType, VectorType


def emit_pointer(emit: ExpressionEmitter, buffer: e.Expr, indices: Sequence[e.Expr]) -> str:
    """Address of an element of a pointer or buffer."""
    base = emit.value(buffer)
    type_ = buffer.type
    if isinstance(type_, BufferType):
        offset = build.flatten(indices, type_.strides if type_.strides is not None else _dense(type_.shape))
        element = memory_type(VectorType(type_.dtype, type_.lanes) if type_.lanes > 1 else type_.dtype)
    elif len(indices) == 1:
        offset, element = indices[0], memory_type(type_.dtype)  # type: ignore[union-attr]  # buffers are pointers here
    else:
        raise CodegenError(f"a pointer takes one index, got {len(indices)}")
    if isinstance(offset, e.Const) and offset.value == 0:
        return base
    return emit.out.instruction(f"getelementptr inbounds {element}, ptr {base}, i64 {emit.value(offset)}", "p")


def _load(emit: ExpressionEmitter, node: e.Load) -> str:
    pointer = emit_pointer(emit, node.buffer, node.indices)
    type_, alignment = memory_type(node.type), node.dtype.nbytes
    if isinstance(node.buffer.type, BufferType) and node.buffer.type.lanes > 1:
        # The array starts at a multiple of 64; its elements lie as far apart as they are long.
        size = node.buffer.type.lanes * node.dtype.nbytes
        alignment = min(64, size & -size)
    if node.mask is not None:
        mask = (register_type(node.mask.type), emit.value(node.mask))
        name = f"llvm.masked.load.{suffix_of(type_)}.p0"
        text = emit.out.intrinsic(name, [(f"ptr align {alignment}", pointer), mask, (type_, "zeroinitializer")], type_)
    else:
        text = emit.out.instruction(f"load {type_}, ptr {pointer}, align {alignment}{emit.access_suffix()}", "v")
    if node.dtype.is_subbyte:
        return emit.out.instruction(f"trunc {type_} {text} to {register_type(node.type)}")
    if not node.dtype.is_bool:
        return text
    zero = "zeroinitializer" if node.lanes > 1 else "0"
    return emit.out.instruction(f"icmp ne {type_} {text}, {zero}")


def emit_in_memory_form(emit: ExpressionEmitter, node: e.Expr) -> str:
    """A value in its memory form: bool and what has less than 8 bits become a byte."""
    text = emit.value(node)
    if isinstance(node.type, PointerType) or not is_widened_in_memory(node.dtype):
        return text
    return emit.out.instruction(f"zext {register_type(node.type)} {text} to {memory_type(node.type)}")


def emit_unknown_mask(emit: ExpressionEmitter, mask: str, lanes: int) -> str:
    """The mask of a store, of whose value LLVM cannot know anything where that matters.

    With AVX-512, LLVM up to 22.1 writes a lane before it was narrowed, four bytes for two, where values are narrowed
    and the mask is known to have a single lane (llvm/llvm-project#179489): past the end of a row.
    """
    if not emit.out.module.arch.has("avx512f"):
        return mask
    width = max(lanes, 8)
    bits = emit.out.instruction(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    if width > lanes:
        bits = emit.out.instruction(f"zext i{lanes} {bits} to i{width}")
    bits = emit.out.instruction(f'call i{width} asm "", "=r,0"(i{width} {bits})')
    if width > lanes:
        bits = emit.out.instruction(f"trunc i{width} {bits} to i{lanes}")
    return emit.out.instruction(f"bitcast i{lanes} {bits} to <{lanes} x i1>")


def _address_of(emit: ExpressionEmitter, node: e.AddressOf) -> str:
    return emit_pointer(emit, node.buffer, node.indices)


def _call(emit: ExpressionEmitter, node: e.Call) -> str:
    arguments = [emit.value(a) for a in node.arguments]
    if node.intrinsic is not None:
        return emit_intrinsic(emit.out, arguments, node)
    if node.callee.startswith(SYMBOL):
        return _symbol(emit, node.callee.removeprefix(SYMBOL))
    typed = [(register_type(a.type), text) for a, text in zip(node.arguments, arguments, strict=True)]
    return emit.out.module.call(emit.out, node.callee, typed, node.type)


def _symbol(emit: ExpressionEmitter, name: str) -> str:
    """The address of something that is linked, as an i64."""
    emit.out.module.declarations[name] = f"@{name} = external global i64"
    return emit.out.instruction(f"ptrtoint ptr @{name} to i64")


def _dense(shape: Sequence[e.Expr]) -> tuple[e.Expr, ...]:
    """Strides of a row-major buffer."""
    running: e.Expr = build.index(1)
    strides: list[e.Expr] = []
    for extent in reversed(shape):
        strides.append(running)
        running = running * extent
    return tuple(reversed(strides))


HANDLERS: Handlers = {e.Load: _load, e.AddressOf: _address_of, e.Call: _call}
