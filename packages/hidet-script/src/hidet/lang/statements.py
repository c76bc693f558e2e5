"""Translating the statements of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Literal

from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr
from hidet.ir.types import ValueType
from hidet.lang import operators
from hidet.lang.assignments import AssignmentTranslator
from hidet.lang.environment import Environment
from hidet.lang.evaluation import expressions_in
from hidet.lang.inline import InlinedCall, inlined_function
from hidet.lang.loops import translate_for
from hidet.lang.source import FunctionSource
from hidet.lang.values import ThreadRange, is_runtime

LoopContext = Literal["none", "runtime", "now"]


class FunctionTranslator(AssignmentTranslator):
    """The body of one script. `result` is the type of what it returns, `checks` what the host asserts about arguments
    of its calls."""

    def __init__(self, source: FunctionSource, names: Environment, result: ValueType | None) -> None:
        super().__init__(source, names)
        self.result = result
        self.checks: list[Expr] = []
        self.parallel_loops: list[s.For] = []
        self._loop: LoopContext = "none"
        self.inlined: list[InlinedCall] = []

    def statements(self, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> None:
        """Translate statements into the current block; `loop`: what kind of loop they are the body of, None for the
        same as around them."""
        before = self._loop
        self._loop = before if loop is None else loop
        for node in nodes:
            case = _CASES.get(type(node))
            if case is None:
                self.fail(node, f"{_kind(node)} has no meaning in a script", _HINTS.get(type(node)))
            with self.at(node):
                case(self, node)
            if self.inlined and self.inlined[-1].is_done:
                break
        self._loop = before

    def body(self, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> s.Stmt:
        """Statements of a block that runs zero or several times."""
        with self.collecting() as stmts, self.block(is_branch=True):
            self.statements(nodes, loop)
        return build.seq(stmts)

    # --- control flow ------------------------------------------------------------------------------------------------

    def branch(self, node: ast.If) -> None:
        test = self.value(node.test)
        if isinstance(test, Const):
            test = test.value
        if not is_runtime(test):
            self.statements(node.body if test else node.orelse)
            return
        condition = operators.condition(test)
        then = self.body(node.body)
        otherwise = self.body(node.orelse) if node.orelse else None
        self.stmts.append(s.If(condition, then, otherwise, self.place(node)))

    def repeat(self, node: ast.While) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "a loop of a script has no else")
        stmts, test = self.apart(lambda: self.value(node.test))
        condition, body = operators.condition(test), self.body(node.body, loop="runtime")
        if stmts:
            # They run before each turn.
            leave = s.If(operators.unary("lnot", condition), s.Break())
            condition, body = operators.as_expr(True), build.seq([*stmts, leave, body])
        self.stmts.append(s.While(condition, body, self.place(node)))

    def leave(self, node: ast.Break | ast.Continue) -> None:
        what = type(node).__name__.lower()
        if self._loop == "none":
            self.fail(node, f"{what} stands outside of a loop")
        if self._loop == "now":
            self.fail(node, f"{what} stands in a loop that is unrolled at build time", "loop over range(...) instead")
        self.stmts.append(s.Break() if isinstance(node, ast.Break) else s.Continue())

    def define(self, node: ast.FunctionDef) -> None:
        """A function inside of a script: its body is translated anew wherever it is called."""
        self.names.bind(node.name, inlined_function(self, node))

    def guard(self, node: ast.With) -> None:
        """`with warp_groups([0]) as tid`: some threads of the block."""
        if len(node.items) != 1:
            self.fail(node, "a script enters one context at a time", "write one with inside of the other")
        (item,) = node.items
        context = self.value(item.context_expr)
        if not isinstance(context, ThreadRange):
            self.fail(item.context_expr, f"{ast.unparse(item.context_expr)} is no context of a script: warp_groups is")
        with self.collecting() as stmts, self.block(is_branch=True):
            if item.optional_vars is not None:
                self.bind_parts(item.optional_vars, self.declare("thread", context.number, node))
            self.statements(node.body)
        self.stmts.append(s.If(context.condition, build.seq(stmts), None, self.place(node)))

    def leave_function(self, node: ast.Return) -> None:
        value = None if node.value is None else self.value(node.value)
        if self.inlined:
            call = self.inlined[-1]
            if self.names.is_branch_since(call.depth) or self._loop != "none":
                self.fail(node, "a function inside of a script returns at its end", "choose the value by a if c else b")
            call.result, call.is_done = value, True
            return
        if value is None:
            if self.result is not None:
                self.fail(node, f"returns nothing, expected a {self.result}")
            self.stmts.append(s.Return(None, self.place(node)))
            return
        if self.result is None:
            self.fail(
                node, "returns a value, but no type is declared for it", "write -> f32, or another type, after ()"
            )
        converted = operators.convert(value, self.result, "the value returned")
        self.stmts.append(s.Return(converted, self.place(node)))

    def check(self, node: ast.Assert) -> None:
        test = self.value(node.test)
        message = ast.unparse(node.test) if node.msg is None else str(self.known(node.msg, "the message"))
        if not is_runtime(test):
            if not test:
                self.fail(node, f"assertion failed: {message}")
            return
        self.stmts.append(s.Assert(operators.condition(test), f"assertion failed: {message}", self.place(node)))

    def expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        count = len(self.stmts)
        value = self.value(node.value)
        is_call = isinstance(value, Call)
        if isinstance(value, Expr) and not is_call and count == len(self.stmts):
            self.fail(node, f"the value of {ast.unparse(node.value)} is not used")
        for expr in expressions_in(value):
            if isinstance(expr, Call):
                self.stmts.append(s.Evaluate(expr, self.place(node)))
            else:
                self.once(expr)
        self.locate(count, node)


def _kind(node: ast.stmt) -> str:
    words = {ast.ClassDef: "a class", ast.Try: "try"}
    return words.get(type(node), ast.unparse(node).splitlines()[0])


_HINTS: dict[type[ast.AST], str] = {
    ast.ClassDef: "define it before the function",
    ast.Try: "a program on a GPU has no exceptions: test with if",
    ast.Delete: "a name ends with its block",
    ast.Global: "pass what the function changes as a tensor",
    ast.Nonlocal: "pass what the function changes as a tensor",
    ast.ImportFrom: "import before the function",
    ast.Import: "import before the function",
}

_CASES: dict[type[ast.AST], Callable[[FunctionTranslator, Any], None]] = {
    ast.Assign: FunctionTranslator.assign,
    ast.AugAssign: FunctionTranslator.augmented,
    ast.AnnAssign: FunctionTranslator.annotated,
    ast.If: FunctionTranslator.branch,
    ast.For: translate_for,
    ast.While: FunctionTranslator.repeat,
    ast.Break: FunctionTranslator.leave,
    ast.Continue: FunctionTranslator.leave,
    ast.Return: FunctionTranslator.leave_function,
    ast.FunctionDef: FunctionTranslator.define,
    ast.With: FunctionTranslator.guard,
    ast.Assert: FunctionTranslator.check,
    ast.Expr: FunctionTranslator.expression,
    ast.Pass: lambda translator, node: None,
}
