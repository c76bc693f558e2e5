"""What parts of a program change, and the expressions that values of a script are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from hidet.ir import stmt as s
from hidet.ir.expr import Call, Expr, Var
from hidet.ir.intrinsic import Effect
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType
from hidet.ir.visit import walk
from hidet.lang.mapping import Assignment
from hidet.lang.operand import Operand, rebuilt, wrapped
from hidet.lang.values import Bound, TensorValue, Window

_CHANGING_STATEMENTS = (s.Store, s.Evaluate, s.Print, s.Assert, s.Assembly, s.Launch, s.Invoke)
_FIELDS: dict[type, tuple[str, ...]] = {
    TensorValue: ("base", "axes"),
    Window: ("start", "extent"),
    Bound: ("owner",),
    Assignment: ("worker",),
}
"""class -> where its objects hold expressions"""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a part of the program changes. variables: those that it assigns to. to_memory: whether it may change what
    memory holds, or what else somebody else sees."""

    variables: frozenset[Var]
    to_memory: bool

    def __bool__(self) -> bool:
        return self.to_memory or bool(self.variables)


def changes_of(roots: Sequence[IRNode], effect: Callable[[Call], Effect]) -> Changes:
    """What statements and expressions change, apart from variables and memory of their own. effect: what calls do."""
    nodes = [node for root in roots for node in walk(root)]
    own = frozenset(node.var for node in nodes if isinstance(node, s.Declare))
    own_memory = {variable for variable in own if isinstance(variable.type, BufferType)}
    to_memory = any(
        (isinstance(node, _CHANGING_STATEMENTS) and getattr(node, "buffer", None) not in own_memory)
        or (isinstance(node, Call) and effect(node) == "writes")
        for node in nodes
    )
    return Changes(frozenset(node.var for node in nodes if isinstance(node, s.Assign)) - own, to_memory)


def intrinsic_effect(call: Call) -> Effect:
    """What a call does that is none of a script: what its intrinsic says."""
    return "pure" if call.intrinsic is None else call.intrinsic.effect


def with_expressions(value: Any, change: Callable[[Expr], Expr | None]) -> Any:
    """`value` with `change(expr)` in place of every expression in it; itself where that changes nothing."""

    def changed(part: Any) -> Any:
        if isinstance(part, Expr):
            return change(part)
        if isinstance(part, Operand):
            expr = change(part.expr)
            return part if expr is part.expr else wrapped(expr)
        before = {name: getattr(part, name) for name in _fields(part)}
        after = {name: with_expressions(field, change) for name, field in before.items()}
        return part if all(after[name] is before[name] for name in before) else replace(part, **after)

    return rebuilt(value, changed)


def _fields(part: Any) -> Sequence[str]:
    """Where an object holds expressions: that of a user's dataclass in those fields in which there are operands."""
    known = _FIELDS.get(type(part))
    if known is not None or not is_dataclass(part) or isinstance(part, type):
        return known or ()
    return [field.name for field in fields(part) if isinstance(getattr(part, field.name, None), Operand)]


def expressions_in(value: Any) -> list[Expr]:
    """The expressions that a value is made of."""
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    with_expressions(value, note)
    return found
