"""Parallel loops of host functions: the body becomes a kernel, and the loop its launch over the thread pool."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hidet import dtypes
from hidet.errors import ScriptError
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Expr, Var
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import walk


def outline_parallel_loops(
    name: str, body: s.Stmt, loops: Collection[s.For], resolve: Callable[[s.Stmt], s.Stmt]
) -> tuple[s.Stmt, list[Function]]:
    """`body` with launches in place of the outermost of `loops`, and the functions that this needs.

    resolve: replaces symbols by the parameters that hold them. Turns run in any order and at the same time. ScriptError
    where a turn would leave the function or change a variable of the function around it.
    """
    made: list[Function] = []

    def outlined(loop: s.For) -> s.Stmt:
        nest = [loop]
        while isinstance(nest[-1].body, s.For) and nest[-1].body in loops:
            nest.append(nest[-1].body)
        return _launch(f"{name}.loop{len(made) // 2}", nest, resolve(nest[-1].body), made)

    def replaced(node: s.Stmt) -> s.Stmt:
        if isinstance(node, s.For) and node in loops:
            return outlined(node)
        rebuilt: s.Stmt = node.rebuild(lambda child: replaced(child) if isinstance(child, s.Stmt) else child)
        return rebuilt

    return replaced(body), made


def _launch(name: str, nest: list[s.For], inner: s.Stmt, made: list[Function]) -> s.Launch:
    counters = tuple(loop.var for loop in nest)
    captured = _captured(nest, inner, counters)
    # Addresses travel as numbers: pointers of kernels never overlap, tensors of users may.
    numbers = tuple(Var(v.name, dtypes.i64 if _is_memory(v) else v.type) for v in captured)
    indices = tuple(Var(v.name, dtypes.i64) for v in counters)
    given = tuple(map(_as_given, captured, numbers))
    turn = Function(f"{name}.turn", (*captured, *counters), _as_function(inner))
    call = Call(turn.name, (*given, *indices), None)  # type: ignore[arg-type]  # it gives no value
    made += [turn, Function(name, numbers, s.Evaluate(call), "kernel", indices)]
    arguments = tuple(Bitcast(v, dtypes.i64) if _is_memory(v) else v for v in captured)
    return s.Launch(name, tuple(loop.extent for loop in nest), arguments, loc=nest[0].loc)


def _as_function(stmt: s.Stmt) -> s.Stmt:
    """The body of a loop as that of a function: continue of this loop, not of loops inside of it, returns."""
    if isinstance(stmt, s.Continue):
        return s.Return(None)
    if isinstance(stmt, s.For | s.While):
        return stmt
    rebuilt: s.Stmt = stmt.rebuild(lambda child: _as_function(child) if isinstance(child, s.Stmt) else child)
    return rebuilt


def _captured(nest: list[s.For], inner: s.Stmt, counters: tuple[Var, ...]) -> tuple[Var, ...]:
    """Variables from outside that a turn reads, those in the types of buffers included."""
    found: dict[Var, None] = {}
    declared: set[Var] = set(counters)
    assigned: dict[Var, s.Stmt] = {}
    stack: list[IRNode] = [inner]
    nodes = list(walk(inner))
    for node in nodes:
        if isinstance(node, s.Declare | s.For):
            declared.add(node.var)
        elif isinstance(node, s.Assign):
            assigned.setdefault(node.var, node)
        elif isinstance(node, s.Return):
            raise ScriptError("return stands in a parallel loop", loc=node.loc, hint="turns run at the same time")
    while stack:
        for node in walk(stack.pop()):
            if isinstance(node, Var) and node not in declared and node not in found:
                found[node] = None
                if isinstance(node.type, BufferType):
                    stack += [*node.type.shape, *(node.type.strides or ())]
    for var, stmt in assigned.items():
        if var not in declared:
            raise ScriptError(
                f"a parallel loop changes {var.name}, which its turns share",
                loc=getattr(stmt, "loc", None) or nest[0].loc,
                hint="write to an element of a tensor of its own in each turn",
            )
    return tuple(found)


def _is_memory(var: Var) -> bool:
    return isinstance(var.type, PointerType | BufferType)


def _as_given(var: Var, number: Var) -> Expr:
    type_ = var.type
    if isinstance(type_, PointerType | BufferType):
        return Bitcast(number, PointerType(type_.dtype, type_.space))
    return number
