"""Accesses of memory and calls of the thread IR in C and C++."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.errors import CodegenError
from hidet.gpu.codegen.expression import Cases, ExpressionEmitter
from hidet.gpu.codegen.scalar import low_bits
from hidet.gpu.codegen.spelling import element_type
from hidet.gpu.codegen.text import SUM, Text, call, cast, choice, infix
from hidet.ir import expr as e
from hidet.ir.common_intrinsics import FMA
from hidet.ir.types import BufferType, PointerType, Type, lanes_of

_OWN = ("register", "local")
"""Memory of one thread."""


def spell_offset(emitter: ExpressionEmitter, buffer: e.Expr, indices: Sequence[e.Expr]) -> Text:
    """Number of elements from the start of `buffer` to the element at `indices`."""
    type_ = buffer.type
    if not isinstance(type_, BufferType):
        return emitter.value(indices[0])
    total: Text | None = None
    for position, index in enumerate(indices):
        if isinstance(index, e.Const) and index.value == 0:
            continue
        part = emitter.value(index)
        for factor in _stride(emitter, type_, position):
            part = infix(part, "*", factor, 13)
        total = part if total is None else infix(total, "+", part, SUM)
    return Text("0") if total is None else total


def _stride(emitter: ExpressionEmitter, type_: BufferType, position: int) -> list[Text]:
    strides = [type_.strides[position]] if type_.strides is not None else list(type_.shape[position + 1 :])
    product = 1
    factors: list[Text] = []
    for stride in strides:
        if isinstance(stride, e.Const):
            product *= int(stride.value)  # type: ignore[arg-type]  # extents are integers
        else:
            factors.append(emitter.value(stride))
    return [*([Text(str(product))] if product != 1 else []), *factors]


def spell_place(emitter: ExpressionEmitter, buffer: e.Expr, indices: Sequence[e.Expr], type_: Type) -> Text:
    """The element, or run of elements as a vector of `type_`, at `indices`."""
    own = buffer.type
    assert isinstance(own, BufferType | PointerType)
    offset, base = spell_offset(emitter, buffer, indices), emitter.value(buffer)
    if type_ == element_type(own):
        return Text(f"{base.inside(15)}[{offset.text}]")
    pointer = infix(base, "+", offset, SUM)
    return Text(f"*({emitter.spelling.pointer(emitter.type(type_), own.space)}){pointer.inside(15)}", 14)


def _load(emitter: ExpressionEmitter, node: e.Load) -> Text:
    emitter.prelude.use_type(node.dtype)
    zero = Text(emitter.spelling.literal(0, node.dtype))
    dtype, is_part = node.dtype, node.dtype.is_subbyte and node.dtype.is_int
    if node.lanes == 1 or (node.mask is None and not is_part):
        element = spell_place(emitter, node.buffer, node.indices, node.type)
        element = low_bits(emitter.prelude, dtype, element) if is_part else element
        if node.type is dtypes.bf16 and _is_of_words(node.buffer.type):
            offset = spell_offset(emitter, node.buffer, node.indices)
            element = element._replace(place=f"{emitter.value(node.buffer).text}, {offset.text}")
        return element if node.mask is None else choice(emitter.value(node.mask), element, zero)
    mask = None if node.mask is None else emitter.operand(node.mask)
    offset, base = spell_offset(emitter, node.buffer, node.indices), emitter.value(node.buffer)

    def lane_value(lane: str) -> Text:
        element = Text(f"{base.inside(15)}[{infix(offset, '+', Text(lane), SUM).text}]", 15)
        element = low_bits(emitter.prelude, dtype, element) if is_part else element
        return element if mask is None else choice(mask(lane), element, zero)

    return emitter.lanes(node.type, lane_value)


def _is_of_words(type_: Type) -> bool:
    """Whether a type is that of a thread's own array of whole words of 16-bit elements."""
    if not isinstance(type_, BufferType) or type_.space not in _OWN or type_.lanes != 1 or type_.strides is not None:
        return False
    extents = [extent.value for extent in type_.shape if isinstance(extent, e.Const)]
    return len(extents) == len(type_.shape) == 1 and int(extents[0]) % 2 == 0  # type: ignore[arg-type]


def _address(emitter: ExpressionEmitter, node: e.AddressOf) -> Text:
    base, offset = emitter.value(node.buffer), spell_offset(emitter, node.buffer, node.indices)
    own = node.buffer.type
    assert isinstance(own, BufferType | PointerType) and isinstance(node.type, PointerType)
    pointer = base if offset.text == "0" else infix(base, "+", offset, SUM)
    if node.type.dtype == own.dtype and lanes_of(own) == 1:
        return pointer
    return cast(emitter.spelling.type_name(node.type), pointer)


def _call(emitter: ExpressionEmitter, node: e.Call) -> Text:
    if node.intrinsic is FMA:
        return emitter.lanewise(node, node.arguments, lambda *abc: emitter.fma(node.dtype, *abc))
    if node.intrinsic is not None:
        arguments = [a.a if isinstance(a, e.Cast) and isinstance(a.a, e.Const) else a for a in node.arguments]
        return emitter.dialect.intrinsic(emitter, node.intrinsic, arguments, node.type)
    function = emitter.functions.get(node.callee)
    if function is None:
        raise CodegenError(f"{node.callee} is neither a function of the module nor an intrinsic")
    return call(function.name, *[emitter.value(a) for a in node.arguments])


ACCESSES: Cases = {e.Load: _load, e.AddressOf: _address, e.Call: _call}
"""How accesses of memory and calls are spelled, by class of node."""
