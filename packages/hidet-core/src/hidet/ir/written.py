"""Which parameters of functions lead to memory that is written, so that callers refuse what must not change."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.ir import stmt as s
from hidet.ir.expr import AddressOf, Call, Expr, Load, Var
from hidet.ir.func import Function, Module
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import walk


def written_parameters(module: Module) -> dict[str, frozenset[Var]]:
    """By function name, the parameters whose memory may be written, by the function or by what it calls.

    An address that is kept, moved or passed to something unknown counts as written.
    """
    found: dict[str, frozenset[Var]] = {}
    functions = {function.name: function for function in module.functions}

    def of(name: str) -> frozenset[Var]:
        function = functions.get(name)
        if function is None:
            return frozenset()
        if name not in found:
            found[name] = frozenset(function.params)  # what a function that calls itself may write
            found[name] = frozenset(_written(function))
        return found[name]

    def _written(function: Function) -> set[Var]:
        memory = {var for var in function.params if isinstance(var.type, PointerType | BufferType)}
        read_only: dict[int, Var] = {}
        escaped: set[Var] = set()
        for node in walk(function.body):
            if isinstance(node, Load) and isinstance(node.buffer, Var):
                read_only[id(node)] = node.buffer
        for node in walk(function.body):
            if isinstance(node, s.Launch | s.Invoke | Call):
                name = node.kernel if isinstance(node, s.Launch) else _name(node)
                escaped |= _passed(functions.get(name), of(name), node.arguments, memory)
                others: Sequence[object] = [a for a in node.arguments if a not in memory]
            else:
                others = node.children()
            is_read = id(node) in read_only
            escaped |= {child for child in others if child in memory and not is_read}
            if isinstance(node, s.Store | AddressOf):
                escaped |= {node.buffer} & memory if isinstance(node.buffer, Var) else set()
        return escaped

    for function in module.functions:
        of(function.name)
    return found


def _name(node: s.Invoke | Call) -> str:
    return node.function if isinstance(node, s.Invoke) else node.callee


def _passed(callee: Function | None, written: frozenset[Var], arguments: Sequence[Expr], memory: set[Var]) -> set[Var]:
    """The parameters among the arguments of a call that the callee may write; all of them where it is unknown."""
    if callee is None:
        return {argument for argument in arguments if isinstance(argument, Var)} & memory
    pairs = zip(callee.params, arguments, strict=True)
    return {argument for var, argument in pairs if isinstance(argument, Var) and var in written} & memory
