"""Emitting thread-IR expressions as LLVM text: constants, vectors, arithmetic, selections and conversions.

Arithmetic of halves and smaller floats is done in f32 and rounded back, which is exact for + - * / and square roots.
"""

from __future__ import annotations

import math

from hidet import dtypes
from hidet.cpu.codegen import memory, spelling
from hidet.cpu.codegen.arithmetic import clamp_to_constant, emit_binary, emit_unary
from hidet.cpu.codegen.convert import widen_dtype
from hidet.cpu.codegen.evaluation import ExpressionEmitter, Handlers, of_all_lanes
from hidet.cpu.codegen.spelling import memory_type, register_type
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.types import PointerType, Type, VectorType, element_dtype, with_lanes


def emit_reassociated(emit: ExpressionEmitter, node: e.Expr) -> str:
    """Emit the outermost operation of a reduction so that its order may be changed (and so vectorised)."""
    assert isinstance(node, e.Binary)
    if widen_dtype(node.dtype) is not node.dtype:
        return emit.value(node)
    a, b = emit.value(node.a), emit.value(node.b)
    emit.out.flags = "reassoc contract "
    try:
        return emit_binary(emit.out, node.op, a, b, node.a.type, None, wraps=True)
    finally:
        emit.out.flags = "contract "


def _const(emit: ExpressionEmitter, node: e.Const) -> str:
    return emit.out.constant(node.value, node.type)


def _broadcast(emit: ExpressionEmitter, node: e.Broadcast) -> str:
    assert isinstance(node.type, VectorType)
    if isinstance(node.a, e.Const):
        return emit.out.constant(node.a.value, node.type)
    vector, scalar = register_type(node.type), register_type(node.type.dtype)
    single = emit.out.instruction(f"insertelement {vector} poison, {scalar} {emit.value(node.a)}, i64 0")
    mask = f"<{node.type.lanes} x i32> zeroinitializer"
    return emit.out.instruction(f"shufflevector {vector} {single}, {vector} poison, {mask}")


def _extract(emit: ExpressionEmitter, node: e.Extract) -> str:
    return emit.out.instruction(f"extractelement {register_type(node.a.type)} {emit.value(node.a)}, i64 {node.lane}")


def _unary(emit: ExpressionEmitter, node: e.Unary) -> str:
    a, type_ = emit.value(node.a), node.a.type
    wide = widen_dtype(node.a.dtype)
    if wide is node.a.dtype:
        return emit_unary(emit.out, node.op, a, type_)
    widened = with_lanes(wide, node.lanes)
    result = emit_unary(emit.out, node.op, emit.out.convert(a, type_, widened), widened)
    return result if node.dtype.is_bool else emit.out.convert(result, widened, type_)


def _binary(emit: ExpressionEmitter, node: e.Binary) -> str:
    if node.a.type is build.INDEX:
        return _index_binary(emit, node)
    if emit.short_circuits(node):
        constant = build.const(node.op == "lor", dtypes.boolean)
        a_side, b_side = (node.b, constant) if node.op == "land" else (constant, node.b)
        return _branch(emit, e.Select(node.a, a_side, b_side, node.type))
    a, b = emit.value(node.a), emit.value(node.b)
    if isinstance(node.a.type, PointerType):
        if node.op == "sub":
            b = emit.out.instruction(f"sub {register_type(node.b.type)} 0, {b}")
        element = memory_type(node.a.dtype)
        return emit.out.instruction(f"getelementptr {element}, ptr {a}, {register_type(node.b.type)} {b}")
    type_ = with_lanes(widen_dtype(node.a.dtype), node.a.lanes)
    a, b = emit.out.convert(a, node.a.type, type_), emit.out.convert(b, node.b.type, type_)
    result = _operation(emit, node, a, b, type_)
    return result if node.dtype.is_bool else emit.out.convert(result, type_, node.type)


def _index_binary(emit: ExpressionEmitter, node: e.Binary) -> str:
    """Arithmetic and comparisons of indices are most of what a kernel has."""
    a, b = emit.value(node.a), emit.value(node.b)
    wraps = emit.is_data(node.a) or emit.is_data(node.b)
    instruction = (spelling.WRAPPING_INDEX_BINARY if wraps else spelling.INDEX_BINARY).get(node.op)
    if instruction is None:
        return _operation(emit, node, a, b, build.INDEX)
    return emit.out.instruction(f"{instruction} {a}, {b}")


def _operation(emit: ExpressionEmitter, node: e.Binary, a: str, b: str, type_: Type) -> str:
    right = _literal(node.b)
    if node.op in ("min", "max") and element_dtype(type_).is_float and emit.out.module.arch.isa == "x86_64":
        for text, bound, value in ((a, b, right), (b, a, _literal(node.a))):
            if value is not None and not math.isnan(value):
                return clamp_to_constant(emit.out, node.op, text, bound, type_)
    known = right if isinstance(right, int) else None
    wraps = node.dtype is dtypes.i64 and (emit.is_data(node.a) or emit.is_data(node.b))
    return emit_binary(emit.out, node.op, a, b, type_, known, wraps)


def _select(emit: ExpressionEmitter, node: e.Select) -> str:
    if emit.branches(node):
        return _branch(emit, node)
    condition, a, b = emit.value(node.condition), emit.value(node.a), emit.value(node.b)
    llvm = register_type(node.type)
    return emit.out.instruction(f"select {register_type(node.condition.type)} {condition}, {llvm} {a}, {llvm} {b}")


def _branch(emit: ExpressionEmitter, node: e.Select) -> str:
    """A select whose sides read memory: only the taken side is executed."""
    condition = emit.value(of_all_lanes(node.condition))
    then, otherwise, done = emit.out.labels("then", "else", "joined")
    emit.out.line(f"br i1 {condition}, label %{then}, label %{otherwise}")
    ends = []
    for label, side in ((then, node.a), (otherwise, node.b)):
        emit.out.block(label)
        text = emit.value_apart(side)
        ends.append(f"[ {text}, %{emit.out.current_block} ]")
        emit.out.jump(done)
    emit.out.block(done)
    return emit.out.instruction(f"phi {register_type(node.type)} {', '.join(ends)}")


def _cast(emit: ExpressionEmitter, node: e.Cast) -> str:
    return emit.out.convert(emit.value(node.a), node.a.type, node.type)


def _bitcast(emit: ExpressionEmitter, node: e.Bitcast) -> str:
    source, target = register_type(node.a.type), register_type(node.type)
    text = emit.value(node.a)
    if source == target:
        return text
    if target == "ptr" or source == "ptr":
        return emit.out.instruction(f"{'inttoptr' if target == 'ptr' else 'ptrtoint'} {source} {text} to {target}")
    return emit.out.instruction(f"bitcast {source} {text} to {target}")


def _shuffle(emit: ExpressionEmitter, node: e.Shuffle) -> str:
    source = register_type(node.a.type)
    lanes = ", ".join([f"i32 {lane}" for lane in node.picked])
    both = f"{source} {emit.value(node.a)}, {source} {emit.value(node.b)}"
    return emit.out.instruction(f"shufflevector {both}, <{len(node.picked)} x i32> <{lanes}>")


def _literal(node: e.Expr) -> int | float | None:
    """The value of a constant scalar or vector of equal lanes."""
    constant = node.a if isinstance(node, e.Broadcast) else node
    value = constant.value if isinstance(constant, e.Const) else None
    return None if isinstance(value, complex) else value


HANDLERS: Handlers = {
    e.Var: ExpressionEmitter.variable,
    e.Const: _const,
    e.Unary: _unary,
    e.Binary: _binary,
    e.Select: _select,
    e.Cast: _cast,
    e.Bitcast: _bitcast,
    e.Broadcast: _broadcast,
    e.Extract: _extract,
    e.Shuffle: _shuffle,
    **memory.HANDLERS,
}
