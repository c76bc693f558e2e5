"""Expressions of the thread IR in C and C++.

Expressions are graphs whose nodes may have several users, text is a tree: nodes with several users become constants
in front of the statement. A branch of a selection may read memory only when it is taken; where such a branch needs
constants of its own, the selection becomes an `if`. Vectors are structs of lanes, computed lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.names import CNames
from hidet.gpu.codegen.prelude import Prelude
from hidet.gpu.codegen.scalar import (
    low_bits,
    narrowed,
    spell_binary,
    spell_cast,
    spell_natural_division,
    spell_quotient,
    spell_shift,
    spell_unary,
    widened,
)
from hidet.gpu.codegen.signs import is_natural, is_positive
from hidet.gpu.codegen.text import AND, OR, SUM, Text, call, cast, choice, infix
from hidet.ir import expr as e
from hidet.ir.func import Function
from hidet.ir.types import BufferType, PointerType, Type, VectorType, element_dtype, lanes_of

_LAZY = ("land", "lor")
_TRIVIAL = (e.Var, e.Const)

Cases = Mapping[type, Callable[["ExpressionEmitter", Any], Text]]
"""How an expression is spelled, by its class."""


class ExpressionEmitter:
    """Spells the expressions of one function. `line` appends to its body.

    cases: how a node is spelled, by its class, besides those here: accesses and calls.
    """

    def __init__(
        self,
        names: CNames,
        prelude: Prelude,
        functions: dict[str, Function],
        data: frozenset[e.Var],
        cases: Cases,
    ) -> None:
        self._cases = {**_CASES, **cases}
        self.names = names
        self.prelude = prelude
        self.dialect, self.spelling = prelude.dialect, prelude.spelling
        self.functions = functions
        self.data = data
        self.lines: list[str] = []
        self.depth = 1
        self._uses: dict[int, int] = {}
        self._known: dict[int, str] = {}
        self._reads: dict[int, bool] = {}
        self._keep: list[e.Expr] = []
        self.dynamic_base = 0
        self.naturals: set[e.Var] = set()
        self._is_lazy = False

    def line(self, text: str) -> None:
        """One line of the body."""
        self.lines.append("  " * self.depth + text)

    def begin(self, *roots: e.Expr | None) -> None:
        """Start a statement that evaluates `roots`: forget constants of the one before, and count users."""
        self._uses, self._known = {}, {}
        # Nodes are told apart by id, which holds only while they live.
        self._keep = [root for root in roots if root is not None]
        seen: set[int] = set()
        stack: list[e.Expr] = list(self._keep)
        for root in self._keep:
            self._uses[id(root)] = self._uses.get(id(root), 0) + 1
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            for child in node.children():
                assert isinstance(child, e.Expr)
                self._uses[id(child)] = self._uses.get(id(child), 0) + 1
                stack.append(child)

    def text(self, node: e.Expr) -> str:
        """The expression where anything may stand around it with commas."""
        return self.value(node).text

    def value(self, node: e.Expr) -> Text:
        """The expression, or the constant that holds its value already."""
        known = self._known.get(id(node))
        if known is not None:
            return Text(known)
        case = self._cases.get(type(node))
        if case is None:
            raise CodegenError(f"{type(node).__name__} has no {self.spelling.name} spelling")
        result = case(self, node)
        if self._is_worth_naming(node):
            return self.named(node, result)
        return result

    def named(self, node: e.Expr, value: Text) -> Text:
        """A constant with the value of `node`."""
        name = self.names.fresh("t")
        self.line(f"const {self.type(node.type)} {name} = {value.text};")
        self._known[id(node)] = name
        return Text(name)

    def type(self, type_: Type) -> str:
        """The name of a type, which the prelude then declares."""
        return self.prelude.declare(type_)

    def _is_worth_naming(self, node: e.Expr) -> bool:
        if self._uses.get(id(node), 1) < 2 or isinstance(node, _TRIVIAL) or isinstance(node.type, BufferType):
            return False
        if isinstance(node, e.Call) and not node.arguments:
            return False
        return not (self._is_lazy and self.reads(node))

    def reads(self, node: e.Expr) -> bool:
        """Whether evaluating the expression touches memory or does something else that must not happen in vain."""
        known = self._reads.get(id(node))
        if known is None:
            if isinstance(node, e.Load) or (isinstance(node, e.Call) and not self._is_pure(node)):
                known = True
            else:
                known = any(self.reads(child) for child in node.children() if isinstance(child, e.Expr))
            self._keep.append(node)
            self._reads[id(node)] = known
        return known

    def _is_pure(self, node: e.Call) -> bool:
        if node.intrinsic is not None:
            return node.intrinsic.effect == "pure"
        function = self.functions.get(node.callee)
        return function is not None and ("pure", True) in function.attributes

    def wraps(self, node: e.Expr) -> bool:
        """Whether an integer is data, read from memory or computed from that; indices never overflow."""
        if isinstance(node, e.Var):
            return node in self.data
        return isinstance(node, e.Load) or any(self.wraps(c) for c in node.children() if isinstance(c, e.Expr))

    # --- leaves ----------------------------------------------------------------------------------------------------

    def _var(self, node: e.Var) -> Text:
        # Declarations give names; without one a schedule is faulty, which the device's compiler would find late.
        if node not in self.names:
            raise CodegenError(f"variable {node.name} is used where it is not declared")
        return Text(self.names(node, node.name))

    def _const(self, node: e.Const) -> Text:
        if isinstance(node.type, PointerType):
            return Text(f"({self.spelling.type_name(node.type)})0")
        self.prelude.use_type(node.dtype)
        text = Text(self.spelling.literal(node.value, node.dtype))
        return text if node.lanes == 1 else self.lanes(node.type, lambda lane: text)

    # --- arithmetic ------------------------------------------------------------------------------------------------

    def lanes(self, type_: Type, of_lane: Callable[[str], Text]) -> Text:
        """A vector whose lanes are what `of_lane` gives for the name of a lane's number."""
        self.type(type_)
        return self.dialect.vector(type_, element_dtype(type_), lanes_of(type_), of_lane)

    def operand(self, node: e.Expr) -> Callable[[str], Text]:
        """A function from the name of a lane's number to that lane of `node`; scalars are the same in all."""
        if isinstance(node, e.Broadcast):
            node = node.a
        if node.lanes == 1:
            scalar = self.value(node)
            return lambda lane: scalar
        vector = self.value(node)
        if not vector.text.isidentifier():
            vector = self.named(node, vector)
        return lambda lane: Text(f"{vector.text}.lane[{lane}]")

    def lanewise(self, node: e.Expr, operands: Sequence[e.Expr], spell: Callable[..., Text]) -> Text:
        """What `spell` gives for the operands, for each lane of a vector."""
        if node.lanes == 1:
            return spell(*[self.value(operand) for operand in operands])
        of = [self.operand(operand) for operand in operands]
        return self.lanes(node.type, lambda lane: spell(*[get(lane) for get in of]))

    def _unary(self, node: e.Unary) -> Text:
        return self.lanewise(node, (node.a,), lambda a: spell_unary(self.prelude, node.op, node.a.dtype, a))

    def _binary(self, node: e.Binary) -> Text:
        a, b, op = node.a, node.b, node.op
        if isinstance(a.type, PointerType):
            return infix(self.value(a), "+" if op == "add" else "-", self.value(b), SUM)
        dtype = a.dtype
        if op in _LAZY and node.lanes == 1:
            return self._logical(node)
        if dtype.is_int and isinstance(b, e.Const) and node.lanes == 1:
            simple = self._by_constant(op, a, int(b.value))  # type: ignore[arg-type]  # an integer constant
            if simple is not None:
                return simple
        if dtype.is_int and op in ("floordiv", "mod") and dtype.kind == "uint" and is_positive(b):
            return self.lanewise(node, (a, b), lambda x, y: spell_natural_division(op, x, y))
        if dtype.is_int and op in ("floordiv", "mod") and is_natural(a, self.naturals) and is_positive(b):
            return self.lanewise(node, (a, b), lambda x, y: spell_natural_division(op, x, y))
        if isinstance(a, e.Unary) and (op, dtype) == ("add", dtypes.f32) and self._is_plus_one(a, b):
            piece = f"one_plus_{a.op}"
            self.prelude.use(piece)
            return self.lanewise(node, (a.a,), lambda x: call(piece, x))
        wraps = dtype.is_int and (self.wraps(a) or self.wraps(b))
        return self.lanewise(node, (a, b), lambda x, y: spell_binary(self.prelude, op, dtype, x, y, wraps=wraps))

    def _is_plus_one(self, a: e.Unary, added: e.Expr) -> bool:
        """Whether a function of the library and 1, which is added to it, are one function of the dialect."""
        return isinstance(added, e.Const) and added.value == 1 and self.prelude.has(f"one_plus_{a.op}")

    def _by_constant(self, op: str, a: e.Expr, value: int) -> Text | None:
        """Shifts and divisions by constants in their simplest form; None for other operations."""
        dtype = a.dtype
        if op in ("shl", "shr") and 0 <= value < dtype.bits:
            return spell_shift(self.prelude, op, dtype, self.value(a), value)
        if op in ("floordiv", "mod") and value > 0:
            if dtype.kind == "uint" or is_natural(a, self.naturals):
                return spell_natural_division(op, self.value(a), Text(self.spelling.literal(value, dtype)))
            if value & (value - 1) == 0 and dtype.bits >= 32:
                # An arithmetic shift rounds toward minus infinity, a mask gives the remainder that fits it.
                if op == "floordiv":
                    return spell_shift(self.prelude, "shr", dtype, self.value(a), value.bit_length() - 1)
                return infix(self.value(a), "&", Text(self.spelling.literal(value - 1, dtype)), 8)
        return None

    def _logical(self, node: e.Binary) -> Text:
        """The right side is evaluated only where the left one does not decide."""
        left = self.value(node.a)
        right = self._lazily(node.b)
        symbol, precedence = ("&&", AND) if node.op == "land" else ("||", OR)
        return infix(left, symbol, right, precedence)

    def _lazily(self, node: e.Expr) -> Text:
        before, self._is_lazy = self._is_lazy, True
        try:
            return self.value(node)
        finally:
            self._is_lazy = before

    def _select(self, node: e.Select) -> Text:
        if node.condition.lanes > 1 or node.lanes > 1:
            if self.reads(node.a) or self.reads(node.b):
                return self._branches(node) if node.condition.lanes == 1 else self._vector_select(node)
            return self._vector_select(node)
        if isinstance(node.condition, e.Broadcast):
            return self._select(e.Select(node.condition.a, node.a, node.b, node.type))
        if not self._is_lazy and (self._needs_branch(node.a) or self._needs_branch(node.b)):
            return self._branches(node)
        condition = self.value(node.condition)
        a, b = self._lazily(node.a), self._lazily(node.b)
        return choice(condition, a, b)

    def _vector_select(self, node: e.Select) -> Text:
        def spell(condition: Text, a: Text, b: Text) -> Text:
            return choice(condition, a, b)

        return self.lanewise(node, (node.condition, node.a, node.b), spell)

    def _needs_branch(self, node: e.Expr) -> bool:
        """Whether a side of a selection reads memory for a value that it uses more than once."""
        if id(node) in self._known or not self.reads(node):
            return False
        if self._uses.get(id(node), 1) > 1 and not isinstance(node, _TRIVIAL):
            return True
        return any(self._needs_branch(child) for child in node.children() if isinstance(child, e.Expr))

    def _branches(self, node: e.Select) -> Text:
        """The selection as an `if` in front of the statement."""
        condition = self.value(node.condition)
        name = self.names.fresh("chosen")
        self.line(f"{self.type(node.type)} {name};")
        for head, side in ((f"if ({condition.text}) {{", node.a), ("} else {", node.b)):
            self.line(head)
            known = dict(self._known)
            self.depth += 1
            self.line(f"{name} = {self.text(side)};")
            self.depth -= 1
            self._known = known
        self.line("}")
        self._known[id(node)] = name
        return Text(name)

    def _cast(self, node: e.Cast) -> Text:
        if isinstance(node.type, PointerType):
            return cast(self.spelling.type_name(node.type), self.value(node.a))
        source, target = node.a.dtype, element_dtype(node.type)
        if target in dtypes.FLOATS_OF_16_BITS and source is dtypes.f32 and self._is_quotient(node.a):
            return self.lanewise(node, (node.a.a, node.a.b), lambda a, b: spell_quotient(self.prelude, target, a, b))
        return self.lanewise(node, (node.a,), lambda a: spell_cast(self.prelude, source, target, a))

    def _is_quotient(self, node: e.Expr) -> TypeGuard[e.Binary]:
        """Whether a value is divided here, and not read again."""
        return isinstance(node, e.Binary) and node.op == "div" and id(node) not in self._known

    def _bitcast(self, node: e.Bitcast) -> Text:
        old, new = node.a.type, node.type
        if isinstance(new, PointerType | BufferType) or isinstance(old, PointerType | BufferType):
            return cast(self.spelling.type_name(new), self.value(node.a))
        if isinstance(new, VectorType) and new.dtype.is_bool:
            word = self.operand(node.a)
            return self.lanes(new, lambda lane: Text(f"({word(lane).inside(15)} >> {lane}) & 1"))
        if node.dtype.is_subbyte and node.dtype.is_int and node.a.dtype.bits == node.dtype.bits:
            # Each has a byte of its own, which the sign of the new type fills.
            return self.lanewise(node, (node.a,), lambda a: low_bits(self.prelude, node.dtype, a))
        return call(self.dialect.bits_as(self.prelude, new, old), self.value(node.a))

    def _broadcast(self, node: e.Broadcast) -> Text:
        scalar = self.value(node.a)
        return self.lanes(node.type, lambda lane: scalar)

    def _extract(self, node: e.Extract) -> Text:
        return self.operand(node.a)(str(node.lane))

    def _shuffle(self, node: e.Shuffle) -> Text:
        sides, count = (self.operand(node.a), self.operand(node.b)), node.a.lanes
        picked = [sides[lane // count](str(lane % count)).text for lane in node.picked]

        def chosen(lane: str) -> Text:
            # The lane's number is known once the loop over lanes is unrolled.
            tests = [f"{lane} == {n} ? {text} : " for n, text in enumerate(picked[:-1])]
            return Text("".join(tests) + picked[-1])

        return self.lanes(node.type, chosen)

    def fma(self, dtype: DType, a: Text, b: Text, c: Text) -> Text:
        """a * b + c, rounded once; narrow floats in f32 first."""
        if dtype in (dtypes.f32, dtypes.f64):
            return call(self._fma_of(dtype), a, b, c)
        x, y, z = (widened(self.prelude, dtype, t) for t in (a, b, c))
        return narrowed(self.prelude, dtype, call(self._fma_of(dtypes.f32), x, y, z))

    def _fma_of(self, dtype: DType) -> str:
        name = self.spelling.function("fma", dtype)
        if name is None:
            raise CodegenError(f"fma of {dtype} has no {self.spelling.name} spelling")
        return name


_CASES: Cases = {
    e.Var: ExpressionEmitter._var,
    e.Const: ExpressionEmitter._const,
    e.Unary: ExpressionEmitter._unary,
    e.Binary: ExpressionEmitter._binary,
    e.Select: ExpressionEmitter._select,
    e.Cast: ExpressionEmitter._cast,
    e.Bitcast: ExpressionEmitter._bitcast,
    e.Broadcast: ExpressionEmitter._broadcast,
    e.Extract: ExpressionEmitter._extract,
    e.Shuffle: ExpressionEmitter._shuffle,
}
