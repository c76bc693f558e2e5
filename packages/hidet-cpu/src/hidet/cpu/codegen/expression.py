"""Emitting thread-IR expressions as LLVM text: constants, vectors, arithmetic, selections and conversions.

Arithmetic of halves and smaller floats is done in f32 and rounded back, which is exact for + - * / and square roots.
"""

from __future__ import annotations

import math

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.arithmetic import clamp_to_constant, emit_binary, emit_unary
from hidet.cpu.codegen.convert import widen_dtype
from hidet.cpu.codegen.evaluation import of_all_lanes
from hidet.cpu.codegen.memory import MemoryEmitter
from hidet.cpu.codegen.spelling import memory_type, register_type
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.types import PointerType, Type, VectorType, element_dtype, with_lanes


class ExpressionEmitter(MemoryEmitter):
    """Expressions of one function; the statement emitter extends it."""

    def reassociated(self, node: e.Expr) -> str:
        """Emit the outermost operation of a reduction so that its order may be changed (and so vectorised)."""
        assert isinstance(node, e.Binary)
        if widen_dtype(node.dtype) is not node.dtype:
            return self.value(node)
        a, b = self.value(node.a), self.value(node.b)
        self.flags = "reassoc contract "
        try:
            return emit_binary(self, node.op, a, b, node.a.type, None, wraps=True)
        finally:
            self.flags = "contract "

    def _const(self, node: e.Const) -> str:
        return self.constant(node.value, node.type)

    def _broadcast(self, node: e.Broadcast) -> str:
        assert isinstance(node.type, VectorType)
        if isinstance(node.a, e.Const):
            return self.constant(node.a.value, node.type)
        vector, scalar = register_type(node.type), register_type(node.type.dtype)
        single = self.instruction(f"insertelement {vector} poison, {scalar} {self.value(node.a)}, i64 0")
        mask = f"<{node.type.lanes} x i32> zeroinitializer"
        return self.instruction(f"shufflevector {vector} {single}, {vector} poison, {mask}")

    def _extract(self, node: e.Extract) -> str:
        return self.instruction(f"extractelement {register_type(node.a.type)} {self.value(node.a)}, i64 {node.lane}")

    def _unary(self, node: e.Unary) -> str:
        a, type_ = self.value(node.a), node.a.type
        wide = widen_dtype(node.a.dtype)
        if wide is node.a.dtype:
            return emit_unary(self, node.op, a, type_)
        widened = with_lanes(wide, node.lanes)
        result = emit_unary(self, node.op, self.convert(a, type_, widened), widened)
        return result if node.dtype.is_bool else self.convert(result, widened, type_)

    def _binary(self, node: e.Binary) -> str:
        if node.a.type is build.INDEX:
            return self._index_binary(node)
        if self.short_circuits(node):
            constant = build.const(node.op == "lor", dtypes.boolean)
            a_side, b_side = (node.b, constant) if node.op == "land" else (constant, node.b)
            return self._branch(e.Select(node.a, a_side, b_side, node.type))
        a, b = self.value(node.a), self.value(node.b)
        if isinstance(node.a.type, PointerType):
            if node.op == "sub":
                b = self.instruction(f"sub {register_type(node.b.type)} 0, {b}")
            element = memory_type(node.a.dtype)
            return self.instruction(f"getelementptr {element}, ptr {a}, {register_type(node.b.type)} {b}")
        type_ = with_lanes(widen_dtype(node.a.dtype), node.a.lanes)
        a, b = self.convert(a, node.a.type, type_), self.convert(b, node.b.type, type_)
        result = self._operation(node, a, b, type_)
        return result if node.dtype.is_bool else self.convert(result, type_, node.type)

    def _index_binary(self, node: e.Binary) -> str:
        """Arithmetic and comparisons of indices are most of what a kernel has."""
        a, b = self.value(node.a), self.value(node.b)
        wraps = self.is_data(node.a) or self.is_data(node.b)
        instruction = (spelling.WRAPPING_INDEX_BINARY if wraps else spelling.INDEX_BINARY).get(node.op)
        if instruction is None:
            return self._operation(node, a, b, build.INDEX)
        return self.instruction(f"{instruction} {a}, {b}")

    def _operation(self, node: e.Binary, a: str, b: str, type_: Type) -> str:
        right = _literal(node.b)
        if node.op in ("min", "max") and element_dtype(type_).is_float and self.module.arch.isa == "x86_64":
            for text, bound, value in ((a, b, right), (b, a, _literal(node.a))):
                if value is not None and not math.isnan(value):
                    return clamp_to_constant(self, node.op, text, bound, type_)
        known = right if isinstance(right, int) else None
        wraps = node.dtype is dtypes.i64 and (self.is_data(node.a) or self.is_data(node.b))
        return emit_binary(self, node.op, a, b, type_, known, wraps)

    def _select(self, node: e.Select) -> str:
        if self.branches(node):
            return self._branch(node)
        condition, a, b = self.value(node.condition), self.value(node.a), self.value(node.b)
        llvm = register_type(node.type)
        return self.instruction(f"select {register_type(node.condition.type)} {condition}, {llvm} {a}, {llvm} {b}")

    def _branch(self, node: e.Select) -> str:
        """A select whose sides read memory: only the taken side is executed."""
        condition = self.value(of_all_lanes(node.condition))
        then, otherwise, done = self.labels("then", "else", "joined")
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}")
        ends = []
        outer = self._memo
        for label, side in ((then, node.a), (otherwise, node.b)):
            self.block(label)
            self._memo = dict(outer)
            text = self.value(side)
            ends.append(f"[ {text}, %{self.current_block} ]")
            self.jump(done)
        self._memo = outer
        self.block(done)
        return self.instruction(f"phi {register_type(node.type)} {', '.join(ends)}")

    def _cast(self, node: e.Cast) -> str:
        return self.convert(self.value(node.a), node.a.type, node.type)

    def _bitcast(self, node: e.Bitcast) -> str:
        source, target = register_type(node.a.type), register_type(node.type)
        text = self.value(node.a)
        if source == target:
            return text
        if target == "ptr" or source == "ptr":
            return self.instruction(f"{'inttoptr' if target == 'ptr' else 'ptrtoint'} {source} {text} to {target}")
        return self.instruction(f"bitcast {source} {text} to {target}")

    def _shuffle(self, node: e.Shuffle) -> str:
        source = register_type(node.a.type)
        lanes = ", ".join([f"i32 {lane}" for lane in node.picked])
        both = f"{source} {self.value(node.a)}, {source} {self.value(node.b)}"
        return self.instruction(f"shufflevector {both}, <{len(node.picked)} x i32> <{lanes}>")


def _literal(node: e.Expr) -> int | float | None:
    """The value of a constant scalar or vector of equal lanes."""
    constant = node.a if isinstance(node, e.Broadcast) else node
    value = constant.value if isinstance(constant, e.Const) else None
    return None if isinstance(value, complex) else value


ExpressionEmitter.handlers = {
    e.Var: ExpressionEmitter._var,
    e.Const: ExpressionEmitter._const,
    e.Unary: ExpressionEmitter._unary,
    e.Binary: ExpressionEmitter._binary,
    e.Select: ExpressionEmitter._select,
    e.Cast: ExpressionEmitter._cast,
    e.Bitcast: ExpressionEmitter._bitcast,
    e.Load: ExpressionEmitter._load,
    e.AddressOf: ExpressionEmitter._address_of,
    e.Call: ExpressionEmitter._call,
    e.Broadcast: ExpressionEmitter._broadcast,
    e.Extract: ExpressionEmitter._extract,
    e.Shuffle: ExpressionEmitter._shuffle,
}
