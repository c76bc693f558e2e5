"""Emitting accesses of memory and calls."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.cpu.codegen.evaluation import Evaluation
from hidet.cpu.codegen.intrinsics import emit_intrinsic
from hidet.cpu.codegen.spelling import is_widened_in_memory, memory_type, register_type, suffix_of
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.func import SYMBOL
from hidet.ir.types import BufferType, PointerType, VectorType


class MemoryEmitter(Evaluation):
    """Addresses, loads and calls of one function."""

    def pointer(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> str:
        """Address of an element of a pointer or buffer."""
        base = self.value(buffer)
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
        return self.instruction(f"getelementptr inbounds {element}, ptr {base}, i64 {self.value(offset)}", "p")

    def _load(self, node: e.Load) -> str:
        pointer = self.pointer(node.buffer, node.indices)
        type_, alignment = memory_type(node.type), node.dtype.nbytes
        if isinstance(node.buffer.type, BufferType) and node.buffer.type.lanes > 1:
            # The array starts at a multiple of 64; its elements lie as far apart as they are long.
            size = node.buffer.type.lanes * node.dtype.nbytes
            alignment = min(64, size & -size)
        if node.mask is not None:
            mask = (register_type(node.mask.type), self.value(node.mask))
            name = f"llvm.masked.load.{suffix_of(type_)}.p0"
            text = self.intrinsic(name, [(f"ptr align {alignment}", pointer), mask, (type_, "zeroinitializer")], type_)
        else:
            text = self.instruction(f"load {type_}, ptr {pointer}, align {alignment}{self.load_suffix()}", "v")
        if node.dtype.is_subbyte:
            return self.instruction(f"trunc {type_} {text} to {register_type(node.type)}")
        if not node.dtype.is_bool:
            return text
        zero = "zeroinitializer" if node.lanes > 1 else "0"
        return self.instruction(f"icmp ne {type_} {text}, {zero}")

    def to_memory(self, node: e.Expr) -> str:
        """A value in its memory form: bool and what has less than 8 bits become a byte."""
        text = self.value(node)
        if isinstance(node.type, PointerType) or not is_widened_in_memory(node.dtype):
            return text
        return self.instruction(f"zext {register_type(node.type)} {text} to {memory_type(node.type)}")

    def _address_of(self, node: e.AddressOf) -> str:
        return self.pointer(node.buffer, node.indices)

    def _call(self, node: e.Call) -> str:
        arguments = [self.value(a) for a in node.arguments]
        if node.intrinsic is not None:
            return emit_intrinsic(self, arguments, node)
        if node.callee.startswith(SYMBOL):
            return self._symbol(node.callee.removeprefix(SYMBOL))
        typed = [(register_type(a.type), text) for a, text in zip(node.arguments, arguments, strict=True)]
        return self.module.call(self, node.callee, typed, node.type)

    def _symbol(self, name: str) -> str:
        """The address of something that is linked, as an i64."""
        self.module.declarations[name] = f"@{name} = external global i64"
        return self.instruction(f"ptrtoint ptr @{name} to i64")


def _dense(shape: Sequence[e.Expr]) -> tuple[e.Expr, ...]:
    """Strides of a row-major buffer."""
    running: e.Expr = build.index(1)
    strides: list[e.Expr] = []
    for extent in reversed(shape):
        strides.append(running)
        running = running * extent
    return tuple(reversed(strides))
