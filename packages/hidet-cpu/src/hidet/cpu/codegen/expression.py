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
from hidet.cpu.codegen.convert import convert, widen_dtype
from hidet.cpu.codegen.spelling import is_widened_in_memory, memory_type, register_type, suffix_of
from hidet.cpu.codegen.state import ModuleState
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.func import SYMBOL
from hidet.ir.intrinsics import PREFIX
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, lanes_of, with_lanes


class ExpressionEmitter:
    """Expressions of one function; the statement emitter extends it."""

    def __init__(self, names: dict[e.Var, str], module: ModuleState, wraps: bool = False) -> None:
        self.names = names
        self.module = module
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.slots: dict[e.Var, str] = {}
        self.current_block = "entry"
        self.return_text = "ret void"
        self.flags = "contract "
        self._count = 0
        self._wraps = wraps
        self._memo: dict[int, str] = {}
        self._reading: dict[int, bool] = {}
        self._data: dict[int, bool] = {}
        self._data_variables: set[e.Var] = set()
        self._alive: list[e.Expr] = []

    # --- lines, names and blocks ---------------------------------------------------------------------------------

    def fresh(self, hint: str = "t") -> str:
        """A new register name."""
        self._count += 1
        return f"%{hint}.{self._count}"

    def labels(self, *hints: str) -> list[str]:
        """New block labels."""
        self._count += 1
        return [f"{hint}.{self._count}" for hint in hints]

    def line(self, text: str) -> None:
        """Append one instruction."""
        self.lines.append(f"  {text}")

    def block(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")
        self.current_block = label

    def jump(self, label: str) -> None:
        """Fall through to `label`."""
        self.line(f"br label %{label}")

    def failure_text(self, message: str) -> str:
        """The instruction that ends a function whose assertion failed."""
        self.module.declare("llvm.trap", "void", ())
        return "call void @llvm.trap()\n  unreachable"

    def begin_statement(self) -> None:
        """Forget shared sub-expressions: memory and locals may have changed."""
        self._memo.clear()
        self._reading.clear()
        self._data.clear()
        self._alive.clear()

    def load_suffix(self) -> str:
        """Metadata of memory reads at this place."""
        return ""

    def instruction(self, text: str, hint: str = "t") -> str:
        """Append `register = text` and return the register."""
        register = self.fresh(hint)
        self.line(f"{register} = {text}")
        return register

    def intrinsic(self, name: str, arguments: Sequence[tuple[str, str]], result: str, flags: str = "") -> str:
        """Call an LLVM intrinsic or external function, declaring it."""
        self.module.declare(name, result, tuple(type_ for type_, _ in arguments))
        listed = ", ".join(f"{type_} {text}" for type_, text in arguments)
        return self.instruction(f"call {flags}{result} @{name}({listed})")

    def select(self, condition: str, a: str, b: str, type_: Type) -> str:
        """Register `a` where `condition`, a bool of as many lanes, else `b`."""
        llvm, test = register_type(type_), register_type(with_lanes(dtypes.boolean, lanes_of(type_)))
        return self.instruction(f"select {test} {condition}, {llvm} {a}, {llvm} {b}")

    def constant(self, value: e.Number, type_: Type) -> str:
        """A literal of a scalar or vector type."""
        return spelling.constant(value, type_)

    def convert(self, text: str, source: Type, target: Type) -> str:
        """Convert a register between scalar or vector types."""
        return convert(self, text, source, target)

    # --- expressions ---------------------------------------------------------------------------------------------

    def value(self, node: e.Expr) -> str:
        """Emit `node` and return the register or literal that holds it.

        What `node` is made of is emitted first, without recursion: fused expressions are deep.
        """
        memo = self._memo
        known = memo.get(id(node))
        if known is not None:
            return known
        stack: list[e.Expr | None] = [node]
        while stack:
            current = stack.pop()
            if current is None:
                # What the expression below is made of has been emitted.
                current = stack.pop()
                assert current is not None
            elif id(current) in memo:
                continue
            elif not isinstance(current, _LEAVES):
                pending = [child for child in self._operands(current) if id(child) not in memo]
                if pending:
                    stack.append(current)
                    stack.append(None)
                    pending.reverse()
                    stack += pending
                    continue
            handler = _HANDLERS.get(type(current))
            if handler is None:
                raise CodegenError(f"the CPU target cannot emit expression {type(current).__name__}")
            memo[id(current)] = handler(self, current)
            self._alive.append(current)
        return memo[id(node)]

    def _operands(self, node: e.Expr) -> tuple[e.Expr, ...]:
        """The children that are evaluated whatever happens."""
        if isinstance(node, e.Select) and self._branches(node):
            return (_of_all_lanes(node.condition),)
        if isinstance(node, e.Binary) and self._short_circuits(node):
            return (node.a,)
        if isinstance(node, _PLACES):
            return (node.buffer, *node.indices) if isinstance(node.buffer.type, PointerType) else (node.buffer,)
        if isinstance(node, e.Call) and node.callee == "shuffle":
            return node.arguments[:2]
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
        """Whether `node` depends on tensor elements or mutable locals, so that its i64 arithmetic may overflow."""

        return self._wraps or self._contains(node, self._is_data_itself, self._data)

    def _is_data_itself(self, node: e.Expr) -> bool:
        if isinstance(node, e.Var):
            return node in self._data_variables or (node in self.slots and not isinstance(node.type, BufferType))
        return isinstance(node, _DATA)

    def _contains(self, root: e.Expr, test: Callable[[e.Expr], bool], memo: dict[int, bool]) -> bool:
        """Whether a node below `root` passes the test; remembered for every node on the way."""
        if isinstance(root, _LEAVES):
            return test(root)
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
            return self.instruction(f"load {register_type(node.type)}, ptr {slot}", node.name)
        name = self.names.get(node)
        if name is None:
            raise CodegenError(f"variable {node.name} is used but neither declared nor a parameter")
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
        if self._short_circuits(node):
            constant = build.const(node.op == "lor", dtypes.boolean)
            a_side, b_side = (node.b, constant) if node.op == "land" else (constant, node.b)
            return self._branch(e.Select(node.a, a_side, b_side, node.type))
        a, b = self.value(node.a), self.value(node.b)
        if node.a.type is build.INDEX:
            return self._operation(node, a, b, build.INDEX)
        if isinstance(node.a.type, PointerType):
            if node.op == "sub":
                b = self.instruction(f"sub {register_type(node.b.type)} 0, {b}")
            element = memory_type(node.a.dtype)
            return self.instruction(f"getelementptr {element}, ptr {a}, {register_type(node.b.type)} {b}")
        type_ = with_lanes(widen_dtype(node.a.dtype), node.a.lanes)
        a, b = self.convert(a, node.a.type, type_), self.convert(b, node.b.type, type_)
        result = self._operation(node, a, b, type_)
        return result if node.dtype.is_bool else self.convert(result, type_, node.type)

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
        if node.callee == "shuffle":
            return self._shuffle(node)
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

    def _shuffle(self, node: e.Call) -> str:
        """The lanes that the constant arguments after the first two count, through both vectors."""
        a, b, *lanes = node.arguments
        source = register_type(a.type)
        numbers = [f"i32 {lane.value}" for lane in lanes if isinstance(lane, e.Const)]
        if len(numbers) != len(lanes):
            raise CodegenError("the lanes of a shuffle must be constants")
        pattern = f"<{len(lanes)} x i32> <{', '.join(numbers)}>"
        return self.instruction(f"shufflevector {source} {self.value(a)}, {source} {self.value(b)}, {pattern}")

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


_LEAVES = (e.Var, e.Const)
_PLACES = (e.Load, e.AddressOf)
_DATA = (e.Load, e.Call, e.Cast, e.Bitcast)

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
}
