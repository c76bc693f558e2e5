"""Emitting thread-IR expressions as LLVM text.

Shared sub-expressions of one statement are emitted once (`memo`); what a branch computes is not visible outside it.
Half-precision arithmetic is done in f32 and rounded back, which is exact for + - * / and square roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.arithmetic import clamp_to_constant, emit_binary, emit_fma, emit_unary
from hidet.cpu.codegen.convert import widen_dtype
from hidet.cpu.codegen.lines import LineEmitter
from hidet.cpu.codegen.spelling import is_widened_in_memory, memory_type, register_type, suffix_of
from hidet.cpu.codegen.state import ModuleState
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.func import SYMBOL
from hidet.ir.intrinsics import PREFIX
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, with_lanes


class ExpressionEmitter(LineEmitter):
    """Expressions of one function; the statement emitter extends it."""

    def __init__(self, names: dict[e.Var, str], module: ModuleState, wraps: bool = False) -> None:
        super().__init__(module)
        self.names = names
        self.entry: list[str] = []
        self.slots: dict[e.Var, str] = {}
        self.return_text = "ret void"
        self._wraps = wraps
        self._memo: dict[int, str] = {}
        self._reading: dict[int, bool] = {}
        self._data: set[int] = set()
        self._data_variables: set[e.Var] = set()
        self._alive: list[e.Expr] = []

    def begin_statement(self) -> None:
        """Forget shared sub-expressions: memory and locals may have changed."""
        self._memo.clear()
        self._reading.clear()
        self._data.clear()
        self._alive.clear()

    def load_suffix(self) -> str:
        """Metadata of memory reads at this place."""
        return ""

    def value(self, node: e.Expr) -> str:
        """Emit `node` and return the register or literal that holds it.

        What `node` is made of is emitted first, without recursion: fused expressions are deep.
        """
        kind = type(node)
        if kind is e.Const or kind is e.Var:
            return _HANDLERS[kind](self, node)
        memo, data = self._memo, self._data
        known = memo.get(id(node))
        if known is not None:
            return known
        stack = [node]
        while stack:
            current = stack[-1]
            number, kind = id(current), type(current)
            operands = self._operands(current)
            pending = [child for child in operands if id(child) not in memo and type(child) not in _LEAVES]
            if pending:
                pending.reverse()
                stack += pending
                continue
            stack.pop()
            if number in memo:
                continue
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise CodegenError(f"the CPU target cannot emit expression {kind.__name__}")
            memo[number] = handler(self, current)
            if kind in _DATA or not data.isdisjoint(map(id, operands)):
                data.add(number)
            self._alive.append(current)
        return memo[id(node)]

    def _operands(self, node: e.Expr) -> tuple[e.Expr, ...]:
        """The children that are evaluated whatever happens."""
        if isinstance(node, e.Binary):
            return (node.a,) if self._short_circuits(node) else (node.a, node.b)
        if isinstance(node, e.Select) and self._branches(node):
            return (_of_all_lanes(node.condition),)
        if isinstance(node, _PLACES):
            return (node.buffer, *node.indices) if isinstance(node.buffer.type, PointerType) else (node.buffer,)
        children: tuple[e.Expr, ...] = node.children()  # type: ignore[assignment]  # children of expressions are ones
        return children

    def _branches(self, node: e.Select) -> bool:
        is_scalar = _of_all_lanes(node.condition).lanes == 1
        return is_scalar and (self.reads_memory(node.a) or self.reads_memory(node.b))

    def _short_circuits(self, node: e.Binary) -> bool:
        return node.op in ("land", "lor") and node.lanes == 1 and self.reads_memory(node.b)

    def reads_memory(self, node: e.Expr) -> bool:
        """Whether evaluating `node` reads memory or calls a function that may."""

        def reads(n: e.Expr) -> bool:
            return isinstance(n, e.Load) or (isinstance(n, e.Call) and not self.module.is_pure(n.callee))

        return self._contains(node, reads, self._reading)

    def is_data(self, node: e.Expr) -> bool:
        """Whether `node`, which has been emitted, depends on tensor elements or mutable locals, so that its i64
        arithmetic may overflow."""
        return self._wraps or id(node) in self._data

    def _contains(self, root: e.Expr, test: Callable[[e.Expr], bool], memo: dict[int, bool]) -> bool:
        """Whether a node below `root` passes the test; remembered for every node on the way."""
        stack = [root]
        while stack:
            current = stack[-1]
            if id(current) in memo:
                stack.pop()
                continue
            children = current.children()
            found = test(current) or any(memo.get(id(child), False) for child in children)
            pending = [] if found else [child for child in children if id(child) not in memo]
            if pending:
                stack.extend(pending)  # type: ignore[arg-type]  # children of expressions are ones
                continue
            memo[id(current)] = found
            self._alive.append(current)
            stack.pop()
        return memo[id(root)]

    def reassociated(self, node: e.Expr) -> str:
        """Emit the outermost operation of a fold so that its order may be changed (and so vectorised)."""
        assert isinstance(node, e.Binary)
        if widen_dtype(node.dtype) is not node.dtype:
            return self.value(node)
        a, b = self.value(node.a), self.value(node.b)
        self.flags = "reassoc nsz contract "
        try:
            return emit_binary(self, node.op, a, b, node.a.type, None, wraps=True)
        finally:
            self.flags = "contract "

    def _var(self, node: e.Var) -> str:
        slot = self.slots.get(node)
        if slot is not None:
            if isinstance(node.type, BufferType):
                return slot
            self._data.add(id(node))
            known = self._memo.get(id(node))
            if known is None:
                known = self.instruction(f"load {register_type(node.type)}, ptr {slot}", node.name)
                self._memo[id(node)] = known
            return known
        name = self.names.get(node)
        if name is None:
            raise CodegenError(f"variable {node.name} is used but neither declared nor a parameter")
        if node in self._data_variables:
            self._data.add(id(node))
        return name

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
        if self._short_circuits(node):
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
        if self._branches(node):
            return self._branch(node)
        condition, a, b = self.value(node.condition), self.value(node.a), self.value(node.b)
        llvm = register_type(node.type)
        return self.instruction(f"select {register_type(node.condition.type)} {condition}, {llvm} {a}, {llvm} {b}")

    def _branch(self, node: e.Select) -> str:
        """A select whose sides read memory: only the taken side is executed."""
        condition = self.value(_of_all_lanes(node.condition))
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

    # --- memory --------------------------------------------------------------------------------------------------

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
        if node.callee == "fma":
            return emit_fma(self, arguments, node.type)
        if node.callee == "prefetch":
            return self._prefetch(arguments[0])
        if node.callee.startswith(SYMBOL):
            return self._symbol(node.callee.removeprefix(SYMBOL))
        if node.callee.startswith(PREFIX):
            raise CodegenError(f"{node.callee} is an operation of a GPU, which a CPU does not have")
        typed = [(register_type(a.type), text) for a, text in zip(node.arguments, arguments, strict=True)]
        return self.module.call(self, node.callee, typed, node.type)

    def _symbol(self, name: str) -> str:
        """The address of something that is linked, as an i64."""
        self.module.declarations[name] = f"@{name} = external global i64"
        return self.instruction(f"ptrtoint ptr @{name} to i64")

    def _shuffle(self, node: e.Shuffle) -> str:
        source = register_type(node.a.type)
        lanes = ", ".join([f"i32 {lane}" for lane in node.picked])
        both = f"{source} {self.value(node.a)}, {source} {self.value(node.b)}"
        return self.instruction(f"shufflevector {both}, <{len(node.picked)} x i32> <{lanes}>")

    def _prefetch(self, pointer: str) -> str:
        """Ask for a cache line to be read into the second-level cache; any address is allowed. The result is unused."""
        self.module.declare("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")
        return "0"


def _of_all_lanes(condition: e.Expr) -> e.Expr:
    """The scalar condition that a vector repeats in each lane; any other condition as it is."""
    return condition.a if isinstance(condition, e.Broadcast) else condition


def _dense(shape: Sequence[e.Expr]) -> tuple[e.Expr, ...]:
    """Strides of a row-major buffer."""
    running: e.Expr = build.index(1)
    strides: list[e.Expr] = []
    for extent in reversed(shape):
        strides.append(running)
        running = running * extent
    return tuple(reversed(strides))


def _literal(node: e.Expr) -> int | float | None:
    """The value of a constant scalar or vector of equal lanes."""
    constant = node.a if isinstance(node, e.Broadcast) else node
    value = constant.value if isinstance(constant, e.Const) else None
    return None if isinstance(value, complex) else value


_LEAVES = frozenset({e.Var, e.Const})
_PLACES = (e.Load, e.AddressOf)
_DATA = frozenset({e.Load, e.Call, e.Cast, e.Bitcast})

_HANDLERS: dict[type, Callable[..., str]] = {
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
