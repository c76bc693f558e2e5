"""In which order the parts of an expression are emitted, and what of it is known already.

Shared sub-expressions of one statement are emitted once (`memo`); what a branch computes is not visible outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet.cpu.codegen.lines import LineEmitter
from hidet.cpu.codegen.spelling import register_type
from hidet.errors import CodegenError
from hidet.ir import expr as e
from hidet.ir.types import BufferType, PointerType

_LEAVES = frozenset({e.Var, e.Const})
_PLACES = (e.Load, e.AddressOf)
_DATA = frozenset({e.Load, e.Call, e.Cast, e.Bitcast})


Handlers = Mapping[type[e.Expr], Callable[["ExpressionEmitter", Any], str]]


class ExpressionEmitter:
    """Expressions of one function.

    out: where instructions go. handlers: how a node is emitted when what it is made of has been. names: registers of
    variables that never change, slots: memory of those that do. wraps: i64 arithmetic may overflow everywhere.
    access_groups: those of the loops around, the innermost last, whose iterations share no memory.
    """

    def __init__(self, out: LineEmitter, handlers: Handlers, names: dict[e.Var, str], wraps: bool = False) -> None:
        self.out = out
        self.names = names
        self.slots: dict[e.Var, str] = {}
        self.access_groups: list[str] = []
        self._handlers = handlers
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

    def access_suffix(self) -> str:
        """Metadata of reads and writes of memory at this place."""
        return f", !llvm.access.group {self.access_groups[-1]}" if self.access_groups else ""

    def value(self, node: e.Expr) -> str:
        """Emit `node` and return the register or literal that holds it.

        What `node` is made of is emitted first, without recursion: fused expressions are deep.
        """
        kind = type(node)
        if kind is e.Const or kind is e.Var:
            return self._handlers[kind](self, node)
        memo, data, handlers = self._memo, self._data, self._handlers
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
            handler = handlers.get(kind)
            if handler is None:
                raise CodegenError(f"the CPU target cannot emit expression {kind.__name__}")
            memo[number] = handler(self, current)
            if kind in _DATA or not data.isdisjoint(map(id, operands)):
                data.add(number)
            self._alive.append(current)
        return memo[id(node)]

    def value_apart(self, node: e.Expr) -> str:
        """As `value`, in a block that is not always executed: what it computes is not visible outside."""
        outer = self._memo
        self._memo = dict(outer)
        try:
            return self.value(node)
        finally:
            self._memo = outer

    def name_value(self, var: e.Var, value: e.Expr) -> None:
        """Emit a value, of which a variable that never changes is another name."""
        self.begin_statement()
        self.names[var] = self.value(value)
        if self.is_data(value):
            self._data_variables.add(var)

    def _operands(self, node: e.Expr) -> tuple[e.Expr, ...]:
        """The children that are evaluated whatever happens."""
        if isinstance(node, e.Binary):
            return (node.a,) if self.short_circuits(node) else (node.a, node.b)
        if isinstance(node, e.Select) and self.branches(node):
            return (of_all_lanes(node.condition),)
        if isinstance(node, _PLACES):
            return (node.buffer, *node.indices) if isinstance(node.buffer.type, PointerType) else (node.buffer,)
        children: tuple[e.Expr, ...] = node.children()  # type: ignore[assignment]  # children of expressions are ones
        return children

    def branches(self, node: e.Select) -> bool:
        """Whether only the side that is taken is evaluated, because it reads memory."""
        is_scalar = of_all_lanes(node.condition).lanes == 1
        return is_scalar and (self.reads_memory(node.a) or self.reads_memory(node.b))

    def short_circuits(self, node: e.Binary) -> bool:
        """Whether the second operand is evaluated only where the first one does not decide."""
        return node.op in ("land", "lor") and node.lanes == 1 and self.reads_memory(node.b)

    def reads_memory(self, node: e.Expr) -> bool:
        """Whether evaluating `node` reads memory or calls a function that may."""

        def reads(n: e.Expr) -> bool:
            return isinstance(n, e.Load) or (isinstance(n, e.Call) and not self.out.module.is_pure(n))

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

    def variable(self, node: e.Var) -> str:
        """The register of a variable, or the address of its array."""
        slot = self.slots.get(node)
        if slot is not None:
            if isinstance(node.type, BufferType):
                return slot
            self._data.add(id(node))
            known = self._memo.get(id(node))
            if known is None:
                known = self.out.instruction(f"load {register_type(node.type)}, ptr {slot}", node.name)
                self._memo[id(node)] = known
            return known
        name = self.names.get(node)
        if name is None:
            raise CodegenError(f"variable {node.name} is used but neither declared nor a parameter")
        if node in self._data_variables:
            self._data.add(id(node))
        return name


def of_all_lanes(condition: e.Expr) -> e.Expr:
    """The scalar condition that a vector repeats in each lane; any other condition as it is."""
    return condition.a if isinstance(condition, e.Broadcast) else condition
