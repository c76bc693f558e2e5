"""Emitting thread-IR expressions as LLVM text.

Shared sub-expressions of one statement are emitted once (`memo`); what a branch computes is not visible outside it.
Half-precision arithmetic is done in f32 and rounded back, which is exact for + - * / and square roots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.convert import convert, widen_dtype
from hidet.cpu.codegen.spelling import intrinsic_suffix, memory_type, register_type
from hidet.cpu.codegen.state import ModuleState
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir.types import BufferType, PointerType, Type, VectorType, with_lanes
from hidet.ir.visit import walk


class ExpressionEmitter:
    """Expressions of one function; the statement emitter extends it."""

    def __init__(self, names: dict[e.Var, str], module: ModuleState) -> None:
        self.names = names
        self.module = module
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.slots: dict[e.Var, str] = {}
        self.current_block = "entry"
        self.return_text = "ret void"
        self._count = 0
        self._flags = "contract "
        self._memo: dict[int, str] = {}
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
        self._alive.clear()

    def load_suffix(self) -> str:
        """Metadata of memory reads at this place."""
        return ""

    # --- expressions ---------------------------------------------------------------------------------------------

    def value(self, node: e.Expr) -> str:
        """Emit `node` and return the register or literal that holds it."""
        known = self._memo.get(id(node))
        if known is not None:
            return known
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise CodegenError(f"the CPU target cannot emit expression {type(node).__name__}")
        text = handler(self, node)
        self._memo[id(node)] = text
        self._alive.append(node)
        return text

    def reassociated(self, node: e.Expr) -> str:
        """Emit the outermost operation of a fold so that its order may be changed (and so vectorised)."""
        assert isinstance(node, e.Binary)
        a, b = self.value(node.a), self.value(node.b)
        self._flags = "reassoc nsz contract "
        try:
            return self._binary_text(node.op, a, b, node.a.type)
        finally:
            self._flags = "contract "

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
        if isinstance(node.type, VectorType):
            return self.splat(spelling.literal(node.value, node.dtype), node.type)
        return spelling.literal(node.value, node.dtype)

    def splat(self, text: str, type_: VectorType) -> str:
        """A vector of copies of a scalar register or literal."""
        vector = register_type(type_)
        scalar = register_type(type_.dtype)
        single = self.instruction(f"insertelement {vector} poison, {scalar} {text}, i64 0")
        mask = f"<{type_.lanes} x i32> zeroinitializer"
        return self.instruction(f"shufflevector {vector} {single}, {vector} poison, {mask}")

    def _broadcast(self, node: e.Broadcast) -> str:
        assert isinstance(node.type, VectorType)
        return self.splat(self.value(node.a), node.type)

    def _extract(self, node: e.Extract) -> str:
        return self.instruction(f"extractelement {register_type(node.a.type)} {self.value(node.a)}, i64 {node.lane}")

    def _unary(self, node: e.Unary) -> str:
        a, type_, dtype = self.value(node.a), node.a.type, node.dtype
        llvm = register_type(type_)
        if node.op == "lnot":
            return self.instruction(f"xor {llvm} {a}, {self._ones(type_)}")
        if node.op == "not":
            return self.instruction(f"xor {llvm} {a}, {self._ones(type_)}")
        wide = widen_dtype(node.a.dtype)
        if wide is not node.a.dtype:
            widened = with_lanes(wide, node.lanes)
            result = self._unary_text(node.op, self.convert(a, type_, widened), widened)
            return result if dtype.kind == "bool" else self.convert(result, widened, type_)
        return self._unary_text(node.op, a, type_)

    def _unary_text(self, op: str, a: str, type_: Type) -> str:
        llvm = register_type(type_)
        dtype = type_.dtype if isinstance(type_, VectorType) else type_
        assert isinstance(dtype, dtypes.DType)
        if not dtype.is_float:
            return self._integer_unary(op, a, type_)
        if op == "neg":
            return self.instruction(f"fneg {llvm} {a}")
        if op == "isnan":
            return self.instruction(f"fcmp uno {llvm} {a}, {a}")
        if op in ("isinf", "isfinite"):
            magnitude = self.intrinsic(f"llvm.fabs.{intrinsic_suffix(type_)}", [(llvm, a)], llvm)
            infinity = self.constant(float("inf"), type_)
            return self.instruction(f"fcmp {'oeq' if op == 'isinf' else 'olt'} {llvm} {magnitude}, {infinity}")
        name = spelling.INTRINSIC_UNARY.get(op)
        if name is not None:
            return self.intrinsic(f"llvm.{name}.{intrinsic_suffix(type_)}", [(llvm, a)], llvm)
        raise CodegenError(f"scalar function {op} of {dtype.name} reached code generation; expand_math must replace it")

    def _integer_unary(self, op: str, a: str, type_: Type) -> str:
        llvm = register_type(type_)
        if op == "neg":
            return self.instruction(f"sub {llvm} {self.constant(0, type_)}, {a}")
        if op == "abs":
            return self.intrinsic(f"llvm.abs.{intrinsic_suffix(type_)}", [(llvm, a), ("i1", "false")], llvm)
        if op in ("floor", "ceil", "round", "trunc"):
            return a
        raise CodegenError(f"scalar function {op} of an integer reached code generation")

    def constant(self, value: bool | int | float, type_: Type) -> str:
        """A literal of a scalar or vector type."""
        dtype = type_.dtype if isinstance(type_, VectorType) else type_
        assert isinstance(dtype, dtypes.DType)
        text = spelling.literal(value, dtype)
        return self.splat(text, type_) if isinstance(type_, VectorType) else text

    def _ones(self, type_: Type) -> str:
        return self.constant(True if type_ is dtypes.boolean or _is_bool(type_) else -1, type_)

    def _binary(self, node: e.Binary) -> str:
        if node.op in ("land", "lor") and _has_load(node.b):
            constant = build.const(node.op == "lor", dtypes.boolean)
            a, b = (node.b, constant) if node.op == "land" else (constant, node.b)
            return self._select(e.Select(node.a, a, b, node.type))
        a, b = self.value(node.a), self.value(node.b)
        if isinstance(node.a.type, PointerType):
            if node.op == "sub":
                b = self.instruction(f"sub {register_type(node.b.type)} 0, {b}")
            element = memory_type(node.a.dtype)
            return self.instruction(f"getelementptr {element}, ptr {a}, {register_type(node.b.type)} {b}")
        wide = widen_dtype(node.a.dtype)
        if wide is not node.a.dtype and node.a.dtype.is_float:
            widened = with_lanes(wide, node.a.lanes)
            a, b = self.convert(a, node.a.type, widened), self.convert(b, node.b.type, widened)
            result = self._binary_text(node.op, a, b, widened)
            return result if _is_bool(node.type) else self.convert(result, widened, node.type)
        return self._binary_text(node.op, a, b, node.a.type)

    def _binary_text(self, op: str, a: str, b: str, type_: Type) -> str:
        llvm = register_type(type_)
        dtype = type_.dtype if isinstance(type_, VectorType) else type_
        assert isinstance(dtype, dtypes.DType)
        if dtype.is_float:
            return self._float_binary(op, a, b, type_, llvm)
        if op in ("land", "lor"):
            return self.instruction(f"{'and' if op == 'land' else 'or'} {llvm} {a}, {b}")
        if op in spelling.INT_BINARY:
            wrap = "nsw " if dtype is dtypes.i64 and op in ("add", "sub", "mul") else ""
            return self.instruction(f"{spelling.INT_BINARY[op]} {wrap}{llvm} {a}, {b}")
        unsigned = dtype.kind in ("uint", "bool")
        if op in spelling.SIGNED_COMPARE:
            table = spelling.UNSIGNED_COMPARE if unsigned else spelling.SIGNED_COMPARE
            return self.instruction(f"icmp {table[op]} {llvm} {a}, {b}")
        sign = "u" if unsigned else "s"
        if op in ("min", "max"):
            return self.intrinsic(f"llvm.{sign}{op}.{intrinsic_suffix(type_)}", [(llvm, a), (llvm, b)], llvm)
        if op == "shr":
            return self.instruction(f"{'lshr' if unsigned else 'ashr'} {llvm} {a}, {b}")
        if op in ("truncdiv", "rem") or unsigned and op in ("floordiv", "mod"):
            return self.instruction(f"{sign}{'div' if op in ('truncdiv', 'floordiv') else 'rem'} {llvm} {a}, {b}")
        if op in ("floordiv", "mod"):
            return self._floor_division(op, a, b, llvm, type_)
        raise CodegenError(f"scalar operation {op} of {dtype.name} reached code generation")

    def _floor_division(self, op: str, a: str, b: str, llvm: str, type_: Type) -> str:
        """Signed division rounding down: the truncated result is off by one where the signs differ."""
        remainder = self.instruction(f"srem {llvm} {a}, {b}")
        zero = self.constant(0, type_)
        inexact = self.instruction(f"icmp ne {llvm} {remainder}, {zero}")
        signs = self.instruction(f"xor {llvm} {remainder}, {b}")
        opposite = self.instruction(f"icmp slt {llvm} {signs}, {zero}")
        condition = register_type(with_lanes(dtypes.boolean, type_.lanes if isinstance(type_, VectorType) else 1))
        adjust = self.instruction(f"and {condition} {inexact}, {opposite}")
        if op == "mod":
            moved = self.instruction(f"add {llvm} {remainder}, {b}")
            return self.instruction(f"select {condition} {adjust}, {llvm} {moved}, {llvm} {remainder}")
        quotient = self.instruction(f"sdiv {llvm} {a}, {b}")
        step = self.instruction(f"sext {condition} {adjust} to {llvm}")
        return self.instruction(f"add {llvm} {quotient}, {step}")

    def _float_binary(self, op: str, a: str, b: str, type_: Type, llvm: str) -> str:
        if op in spelling.FLOAT_BINARY:
            return self.instruction(f"{spelling.FLOAT_BINARY[op]} {self._flags}{llvm} {a}, {b}")
        if op in spelling.FLOAT_COMPARE:
            return self.instruction(f"fcmp {spelling.FLOAT_COMPARE[op]} {llvm} {a}, {b}")
        if op in ("min", "max"):
            name = f"llvm.{op}imum.{intrinsic_suffix(type_)}"
            return self.intrinsic(name, [(llvm, a), (llvm, b)], llvm, "nsz " + self._flags.replace("nsz ", ""))
        if op == "copysign":
            return self.intrinsic(f"llvm.copysign.{intrinsic_suffix(type_)}", [(llvm, a), (llvm, b)], llvm)
        raise CodegenError(f"scalar operation {op} on floats reached code generation; expand_math must replace it")

    def _select(self, node: e.Select) -> str:
        llvm = register_type(node.type)
        if node.condition.lanes == 1 and (_has_load(node.a) or _has_load(node.b)):
            return self._branch(node, llvm)
        condition, a, b = self.value(node.condition), self.value(node.a), self.value(node.b)
        return self.instruction(
            f"select {register_type(node.condition.type)} {condition}, {llvm} {a}, {llvm} {b}"
        )

    def _branch(self, node: e.Select, llvm: str) -> str:
        """A select whose sides read memory: only the taken side is executed."""
        condition = self.value(node.condition)
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
        return self.instruction(f"phi {llvm} {', '.join(ends)}")

    def _cast(self, node: e.Cast) -> str:
        return self.convert(self.value(node.a), node.a.type, node.type)

    def convert(self, text: str, source: Type, target: Type) -> str:
        """Convert a register between scalar or vector types."""
        return convert(self, text, source, target)

    def _bitcast(self, node: e.Bitcast) -> str:
        source, target = register_type(node.a.type), register_type(node.type)
        text = self.value(node.a)
        if source == target:
            return text
        operation = "inttoptr" if target == "ptr" else "ptrtoint" if source == "ptr" else "bitcast"
        return self.instruction(f"{operation} {source} {text} to {target}")

    def pointer(self, buffer: e.Expr, indices: Sequence[e.Expr]) -> str:
        """Address of an element of a pointer or buffer."""
        base = self.value(buffer)
        type_ = buffer.type
        if isinstance(type_, BufferType):
            strides = type_.strides
            if strides is None:
                running: e.Expr = build.index(1)
                dense: list[e.Expr] = []
                for extent in reversed(type_.shape):
                    dense.append(running)
                    running = running * extent
                strides = tuple(reversed(dense))
            offset = build.flatten(indices, strides)
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
            alignment = 64
        if node.mask is not None:
            mask_type = register_type(node.mask.type)
            suffix = intrinsic_suffix(node.type)
            text = self.intrinsic(
                f"llvm.masked.load.{suffix}.p0",
                [("ptr", pointer), ("i32", str(alignment)), (mask_type, self.value(node.mask)), (type_, "zeroinitializer")],
                type_,
            )
        else:
            text = self.instruction(f"load {type_}, ptr {pointer}, align {alignment}{self.load_suffix()}", "v")
        if node.dtype.kind != "bool":
            return text
        zero = "zeroinitializer" if node.lanes > 1 else "0"
        return self.instruction(f"icmp ne {type_} {text}, {zero}")

    def to_memory(self, node: e.Expr) -> str:
        """A value in its memory form: bool becomes a byte."""
        text = self.value(node)
        if node.dtype.kind != "bool" or isinstance(node.type, PointerType):
            return text
        return self.instruction(f"zext {register_type(node.type)} {text} to {memory_type(node.type)}")

    def _address_of(self, node: e.AddressOf) -> str:
        return self.pointer(node.buffer, node.indices)

    def _call(self, node: e.Call) -> str:
        arguments = [(register_type(a.type), self.value(a)) for a in node.arguments]
        if node.callee == "prefetch":
            return self._prefetch(*arguments[0])
        intrinsic = _INTRINSICS.get(node.callee)
        if intrinsic is not None:
            llvm = register_type(node.type)
            return self.intrinsic(f"{intrinsic}.{intrinsic_suffix(node.type)}", arguments, llvm)
        return self.module.call(self, node.callee, arguments, node.type)

    def _prefetch(self, type_: str, pointer: str) -> str:
        """Ask for a cache line to be read into the second-level cache; any address is allowed. The result is unused."""
        self.module.declare("llvm.prefetch.p0", "void", (type_, "i32", "i32", "i32"))
        self.line(f"call void @llvm.prefetch.p0({type_} {pointer}, i32 0, i32 2, i32 1)")
        return "0"


def _is_bool(type_: Type) -> bool:
    dtype = type_.dtype if isinstance(type_, VectorType) else type_
    return isinstance(dtype, dtypes.DType) and dtype.kind == "bool"


def _has_load(node: e.Expr) -> bool:
    return any(isinstance(n, e.Load | e.Call) for n in walk(node))


# intrinsics of the thread IR that are one LLVM intrinsic of the same operands
_INTRINSICS = {"fma": "llvm.fma"}

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
