"""Translating one script: the block being written, and when what it reads is computed.

Python computes from left to right, and once. A value that is known at run time only is an expression, which is computed
where it is used. What it reads may change between the place where Python would have computed it and its use: then a
variable is declared in the former place, which holds the value. An expression is *live* where that can happen.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Literal, NoReturn

from hidet.errors import HidetError, ScriptError
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Load, Var
from hidet.ir.intrinsic import Effect
from hidet.ir.types import Type, ValueType
from hidet.ir.visit import walk
from hidet.lang import assignments, build_time, expressions, operators, statements
from hidet.lang.attributes import AttributeValues
from hidet.lang.bindings import Bindings
from hidet.lang.calls import translate_call
from hidet.lang.environment import Environment
from hidet.lang.evaluation import Changes, changes_of, expressions_in, intrinsic_effect, with_expressions
from hidet.lang.facts import IndexFacts
from hidet.lang.inline import InlinedCall
from hidet.lang.loops import translate_for
from hidet.lang.operand import unwrapped
from hidet.lang.source import FunctionSource
from hidet.lang.values import Cell, TensorValue, is_runtime
from hidet.loc import Loc

# What operators, calls and attributes of a user's values raise when these do not fit.
_USUAL_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)

LoopContext = Literal["none", "runtime", "now"]
"""The innermost loop around a statement: none, one of the program, or one that is written out."""


class Translator:
    """What is known of one script while it is translated. Modules of functions translate its parts, by kinds of nodes.

    names: what names mean here. bindings: how they get values. stmts: the block being written. callees: scripts that
    are called. checks: what the host asserts about arguments of these calls. attributes: what the script sets. result:
    the type of what it returns. inlined: calls of functions inside of it, innermost last. target_name: what the value
    being computed is assigned to.
    """

    def __init__(self, source: FunctionSource, names: Environment) -> None:
        self.source = source
        self.names = names
        self.result: ValueType | None = None
        self.bindings = Bindings(source.tree)
        self.facts = IndexFacts()
        self.attributes = AttributeValues()
        self.stmts: list[s.Stmt] = []
        self.callees: list[Any] = []
        self.checks: list[Expr] = []
        self.parallel_loops: list[s.For] = []
        self.inlined: list[InlinedCall] = []
        self.loop: LoopContext = "none"
        self.target_name: str | None = None
        self._assignable: set[Var] = set()

    # --- places and errors -------------------------------------------------------------------------------------------

    def place(self, node: ast.AST) -> Loc:
        """Where a node stands in the user's file."""
        return self.source.place(node)

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Raise ScriptError at a node."""
        raise ScriptError(message, loc=self.place(node), hint=hint)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors inside get the place of `node`, unless they have one."""
        try:
            yield
        except ScriptError as error:
            error.loc = error.loc or self.place(node)
            raise
        except HidetError as error:
            raise ScriptError(error.message, loc=self.place(node), hint=error.hint) from error
        except _USUAL_ERRORS as error:
            text = ast.unparse(node).splitlines()[0]
            raise ScriptError(f"{text}: {type(error).__name__}: {error}", loc=self.place(node)) from error

    def locate(self, since: int, node: ast.AST) -> None:
        """Give the statements of the current block from number `since` on the place of `node`, if they have none."""
        loc = self.place(node)
        for number in range(since, len(self.stmts)):
            self.stmts[number] = _located(self.stmts[number], loc)

    # --- parts of a script -------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """What an expression stands for: an expression of the thread IR, a tensor, or a Python value."""
        case = _EXPRESSIONS.get(type(node))
        if case is None:
            self.fail(node, f"{type(node).__name__} expressions have no meaning in a script: {ast.unparse(node)}")
        with self.at(node):
            return case(self, node)

    def known(self, node: ast.expr, what: str) -> Any:
        """A value that must be known while the script is translated."""
        value = self.value(node)
        if isinstance(value, Const):
            return value.value
        if is_runtime(value):
            self.fail(node, f"{what} must be known at build time, but {ast.unparse(node)} is known at run time only")
        return value

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Values of the parts of a list or tuple, or of arguments; `*x` stands for the parts of x."""
        parts = self.in_order(*(partial(self._part, node) for node in nodes))
        return list(chain.from_iterable(parts))

    def _part(self, node: ast.expr) -> Sequence[Any]:
        return self.known_sequence(node.value) if isinstance(node, ast.Starred) else (self.value(node),)

    def known_sequence(self, node: ast.expr) -> Sequence[Any]:
        """A sequence whose length is known while the script is translated."""
        value = self.value(node)
        if isinstance(value, Expr | TensorValue):
            self.fail(node, f"{ast.unparse(node)} cannot be iterated over: its length is known at run time only")
        with self.at(node):
            return tuple(map(unwrapped, value))

    def statements(self, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> None:
        """Translate statements into the current block; `loop`: what kind of loop they are the body of, None for the
        same as around them."""
        before = self.loop
        self.loop = before if loop is None else loop
        for node in nodes:
            case = _STATEMENTS.get(type(node))
            if case is None:
                self.fail(
                    node, f"{statements.text_of(node)} has no meaning in a script", statements.HINTS.get(type(node))
                )
            with self.at(node):
                case(self, node)
            if self.inlined and self.inlined[-1].is_done:
                break
        self.loop = before

    def bind_parts(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or names in a tuple, to a value as it is."""
        if isinstance(target, ast.Name):
            self.names.bind(target.id, value)
            return
        if not isinstance(target, ast.Tuple | ast.List):
            self.fail(target, f"expected a name, found {ast.unparse(target)}")
        parts = tuple(map(unwrapped, value))
        if len(parts) != len(target.elts):
            self.fail(target, f"{len(target.elts)} names for {len(parts)} values")
        for element, part in zip(target.elts, parts, strict=True):
            self.bind_parts(element, part)

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

    def is_variable(self, value: Any) -> bool:
        """Whether a value is a variable that assignments may change."""
        return isinstance(value, Cell) or (isinstance(value, Var) and value in self._assignable)

    def may_change(self, variable: Var) -> bool:
        """Whether assignments can give the variable another value."""
        return variable in self._assignable and self.bindings.may_change(variable)

    # --- order of evaluation ------------------------------------------------------------------------------------------

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

        return with_expressions(value, change)


def _located(stmt: s.Stmt, loc: Any) -> s.Stmt:
    if getattr(stmt, "loc", loc) is not None:
        return stmt
    fields = {name: getattr(stmt, name) for name in (*stmt.child_fields, *stmt.attribute_fields)}
    made: s.Stmt = type(stmt)(**{**fields, "loc": loc})
    return made


_EXPRESSIONS: dict[type[ast.AST], Callable[[Translator, Any], Any]] = {
    **expressions.CASES,
    **build_time.CASES,
    ast.Call: translate_call,
}
_STATEMENTS: dict[type[ast.AST], Callable[[Translator, Any], None]] = {
    **assignments.CASES,
    **statements.CASES,
    ast.For: translate_for,
}
