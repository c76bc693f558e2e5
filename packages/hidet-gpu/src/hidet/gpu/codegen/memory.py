"""Accesses of memory and calls of the thread IR in C and C++."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.errors import CodegenError
from hidet.gpu.codegen.expression import ExpressionEmitter
from hidet.gpu.codegen.scalar import low_bits
from hidet.gpu.codegen.spelling import element_type
from hidet.gpu.codegen.text import SUM, Text, call, cast, choice, infix
from hidet.ir import expr as e
from hidet.ir.common_intrinsics import FMA
from hidet.ir.types import BufferType, PointerType, Type, lanes_of


class MemoryEmitter(ExpressionEmitter):
    """Expressions of one function, those that read memory or call included."""

    def offset(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> Text:
        """Number of elements from the start of `buffer` to the element at `indices`."""
        type_ = buffer.type
        if not isinstance(type_, BufferType):
            return self.value(indices[0])
        total: Text | None = None
        for position, index in enumerate(indices):
            if isinstance(index, e.Const) and index.value == 0:
                continue
            part = self.value(index)
            for factor in self._stride(type_, position):
                part = infix(part, "*", factor, 13)
            total = part if total is None else infix(total, "+", part, SUM)
        return Text("0") if total is None else total

    def _stride(self, type_: BufferType, position: int) -> list[Text]:
        strides = [type_.strides[position]] if type_.strides is not None else list(type_.shape[position + 1 :])
        product = 1
        factors: list[Text] = []
        for stride in strides:
            if isinstance(stride, e.Const):
                product *= int(stride.value)  # type: ignore[arg-type]  # extents are integers
            else:
                factors.append(self.value(stride))
        return [*([Text(str(product))] if product != 1 else []), *factors]

    def place(self, buffer: e.Expr, indices: Sequence[e.Expr], type_: Type) -> Text:
        """The element, or run of elements as a vector of `type_`, at `indices`."""
        own = buffer.type
        assert isinstance(own, BufferType | PointerType)
        offset, base = self.offset(buffer, indices), self.value(buffer)
        if type_ == element_type(own):
            return Text(f"{base.inside(15)}[{offset.text}]")
        pointer = infix(base, "+", offset, SUM)
        return Text(f"*({self.spelling.pointer(self.type(type_), own.space)}){pointer.inside(15)}", 14)

    def _load(self, node: e.Load) -> Text:
        self.prelude.use_type(node.dtype)
        zero = Text(self.spelling.literal(0, node.dtype))
        dtype, is_part = node.dtype, node.dtype.is_subbyte and node.dtype.is_int
        if node.lanes == 1 or (node.mask is None and not is_part):
            element = self.place(node.buffer, node.indices, node.type)
            element = low_bits(self.prelude, dtype, element) if is_part else element
            return element if node.mask is None else choice(self.value(node.mask), element, zero)
        mask = None if node.mask is None else self.operand(node.mask)
        offset, base = self.offset(node.buffer, node.indices), self.value(node.buffer)

        def lane_value(lane: str) -> Text:
            element = Text(f"{base.inside(15)}[{infix(offset, '+', Text(lane), SUM).text}]", 15)
            element = low_bits(self.prelude, dtype, element) if is_part else element
            return element if mask is None else choice(mask(lane), element, zero)

        return self.lanes(node.type, lane_value)

    def _address(self, node: e.AddressOf) -> Text:
        base, offset = self.value(node.buffer), self.offset(node.buffer, node.indices)
        own = node.buffer.type
        assert isinstance(own, BufferType | PointerType) and isinstance(node.type, PointerType)
        pointer = base if offset.text == "0" else infix(base, "+", offset, SUM)
        if node.type.dtype == own.dtype and lanes_of(own) == 1:
            return pointer
        return cast(self.spelling.type_name(node.type), pointer)

    def _call(self, node: e.Call) -> Text:
        if node.intrinsic is FMA:
            return self._lanewise(node, node.arguments, lambda *abc: self.fma(node.dtype, *abc))
        if node.intrinsic is not None:
            arguments = [a.a if isinstance(a, e.Cast) and isinstance(a.a, e.Const) else a for a in node.arguments]
            return self.dialect.intrinsic(self, node.intrinsic, arguments, node.type)
        function = self.functions.get(node.callee)
        if function is None:
            raise CodegenError(f"{node.callee} is neither a function of the module nor an intrinsic")
        return call(function.name, *[self.value(a) for a in node.arguments])


MemoryEmitter.cases = {
    **ExpressionEmitter.cases,
    e.Load: MemoryEmitter._load,
    e.AddressOf: MemoryEmitter._address,
    e.Call: MemoryEmitter._call,
}
