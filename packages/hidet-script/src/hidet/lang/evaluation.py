"""When the expressions of a script are computed: from left to right, and once, as in Python.

A value that is known at run time only is an expression, which is computed where it is used. What it reads may change
between the place where Python would have computed it and its use: then a variable is declared in the former place,
which holds the value. An expression is *live* where that can happen.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from hidet.ir import stmt as s
from hidet.ir.expr import Call, Expr, Load, Var
from hidet.ir.intrinsic import Effect
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, Type
from hidet.ir.visit import walk
from hidet.lang import operators
from hidet.lang.mapping import Assignment
from hidet.lang.operand import Operand, rebuilt, wrapped
from hidet.lang.source import FunctionSource
from hidet.lang.values import Bound, TensorValue, Window
from hidet.loc import Loc

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


class Evaluation:
    """Where the translator of one script puts statements, and when what they read is computed. `stmts` is the block
    being written, `callees` are the scripts that are called."""

    def __init__(self, source: FunctionSource) -> None:
        self.source = source
        self.stmts: list[s.Stmt] = []
        self.callees: list[Any] = []
        self._assignable: set[Var] = set()

    @cached_property
    def _bindings(self) -> Counter[str]:
        return _count_bindings(self.source.tree)

    @cached_property
    def _parameters(self) -> set[str]:
        """Parameters to which the function that has them, the script or one inside of it, gives further values."""
        functions = [node for node in ast.walk(self.source.tree) if isinstance(node, ast.FunctionDef)]
        counted = [(_count_bindings(function), ast.walk(function.args)) for function in functions]
        return {
            node.arg for counts, nodes in counted for node in nodes if isinstance(node, ast.arg) and counts[node.arg]
        }

    @cached_property
    def _loop_targets(self) -> set[str]:
        loops = (node.target for node in ast.walk(self.source.tree) if isinstance(node, ast.For))
        return {part.id for target in loops for part in ast.walk(target) if isinstance(part, ast.Name)}

    def place(self, node: ast.AST) -> Loc:
        """Where a node stands in the user's file."""
        return self.source.place(node)

    # --- statements and variables ------------------------------------------------------------------------------------

    @contextmanager
    def collecting(self) -> Iterator[list[s.Stmt]]:
        """Statements added inside go to the list given, not to the current block."""
        outer, self.stmts = self.stmts, []
        try:
            yield self.stmts
        finally:
            self.stmts = outer

    def apart(self, evaluate: Callable[[], Any]) -> tuple[list[s.Stmt], Any]:
        """The statements that computing a value takes, which are not added yet, and the value."""
        with self.collecting() as stmts:
            value = evaluate()
        return stmts, value

    def declare(self, name: str, value: Expr, node: ast.AST | None = None) -> Var:
        """A new variable of the program with a value. DTypeError where the value is that of a call that gives none."""
        return self._declare(Var(name, operators.as_expr(value).type), value, node)

    def declare_empty(self, name: str, type_: Type, node: ast.AST | None = None) -> Var:
        """A new variable of the program without a value."""
        return self._declare(Var(name, type_), None, node)

    def _declare(self, variable: Var, value: Expr | None, node: ast.AST | None) -> Var:
        self.stmts.append(s.Declare(variable, value, None if node is None else self.place(node)))
        self._assignable.add(variable)
        return variable

    def may_change(self, variable: Var) -> bool:
        """Whether assignments can give the variable another value."""
        values = self._bindings[variable.name] + (variable.name in self._parameters)
        return variable in self._assignable and (values > 1 or variable.name in self._loop_targets)

    # --- values ------------------------------------------------------------------------------------------------------

    def held(self, value: Any, node: ast.AST | None = None) -> Any:
        """`value`, which may be a container or a tensor, as it is now: live expressions in it become variables."""
        return self._with_variables(value, self._is_live, node)

    def once(self, value: Any) -> Any:
        """`value`, for what uses it several times or never: what has an effect happens now."""
        return self._with_variables(value, self._has_effect, None)

    def in_order(self, *evaluations: Callable[[], Any]) -> list[Any]:
        """The values of evaluations, one after the other: what a later one changes, the earlier ones have read."""
        values: list[Any] = []
        for evaluate in evaluations:
            count = len(self.stmts)
            value = evaluate()
            changes = self._changes(count, value) if values else None
            if changes:
                later = self.stmts[count:]
                del self.stmts[count:]
                values = self._held_before(changes, values)
                self.stmts += later
            values.append(value)
        return values

    def kept(self, values: Sequence[Any], evaluate: Callable[[Sequence[Any]], Any]) -> Any:
        """`evaluate(values)`, in which the values stay what they are now, whatever it changes."""
        count = len(self.stmts)
        result = evaluate(values)
        changes = self._changes(count, result)
        if not any(self._is_affected(expr, changes) for expr in expressions_in(values)):
            return result
        # What is there now reads them too late.
        del self.stmts[count:]
        return evaluate(self._held_before(changes, values))

    def effects(self, value: Any) -> set[Effect]:
        """What the calls in a value do besides giving it."""
        nodes = (node for expr in expressions_in(value) for node in walk(expr))
        return {self._effect(node) for node in nodes if isinstance(node, Call)}

    def _effect(self, call: Call) -> Effect:
        for script in self.callees:
            if script.name == call.callee:
                return "writes" if script.has_effect else "reads"
        return intrinsic_effect(call)

    def _has_effect(self, expr: Expr) -> bool:
        return "writes" in self.effects(expr)

    def _reads_memory(self, node: Any) -> bool:
        return isinstance(node, Load) or (isinstance(node, Call) and self._effect(node) != "pure")

    def _is_live(self, expr: Expr) -> bool:
        return any(self._reads_memory(n) or (isinstance(n, Var) and self.may_change(n)) for n in walk(expr))

    def _is_affected(self, expr: Expr, changes: Changes) -> bool:
        return bool(changes) and any(
            node in changes.variables or (changes.to_memory and self._reads_memory(node)) for node in walk(expr)
        )

    def _held_before(self, changes: Changes, values: Sequence[Any]) -> list[Any]:
        found: list[Any] = self._with_variables(list(values), lambda expr: self._is_affected(expr, changes), None)
        return found

    def _changes(self, since: int, value: Any) -> Changes:
        """What the statements of the current block from number `since` on and a value change."""
        return changes_of([*self.stmts[since:], *expressions_in(value)], self._effect)

    def _computed(self, expr: Expr, node: ast.AST | None) -> Var | None:
        """A variable that holds the value; None for a call that gives none."""
        if not isinstance(expr, Call) or expr.type is not None:
            return self.declare("value", expr, node)
        self.stmts.append(s.Evaluate(expr, None if node is None else self.place(node)))
        return None

    def _with_variables(self, value: Any, choose: Callable[[Expr], bool], node: ast.AST | None) -> Any:
        variables: dict[Expr, Var | None] = {}

        def change(expr: Expr) -> Expr | None:
            if not choose(expr):
                return expr
            if expr not in variables:
                variables[expr] = self._computed(expr, node)
            return variables[expr]

        return _with_expressions(value, change)


def _with_expressions(value: Any, change: Callable[[Expr], Expr | None]) -> Any:
    """`value` with `change(expr)` in place of every expression in it; itself where that changes nothing."""

    def changed(part: Any) -> Any:
        if isinstance(part, Expr):
            return change(part)
        if isinstance(part, Operand):
            expr = change(part.expr)
            return part if expr is part.expr else wrapped(expr)
        before = {name: getattr(part, name) for name in _fields(part)}
        after = {name: _with_expressions(field, change) for name, field in before.items()}
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

    _with_expressions(value, note)
    return found


def _count_bindings(tree: ast.FunctionDef) -> Counter[str]:
    """How often each name is assigned a value; what `+=` changes counts twice, so that it becomes a variable."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                counts.update(name.id for name in ast.walk(target) if _is_stored(name))  # type: ignore[attr-defined]  # names
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] += 2
        elif isinstance(node, ast.keyword) and node.arg in ("outputs", "output_inputs"):
            # What assembly writes.
            counts.update(2 * [name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)])
    return counts


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
