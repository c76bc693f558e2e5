"""Translating the statements of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr
from hidet.lang import operators
from hidet.lang.evaluation import expressions_in
from hidet.lang.inline import inlined_function
from hidet.lang.values import ThreadRange, is_runtime

if TYPE_CHECKING:
    from hidet.lang.translator import LoopContext, Translator


def _body(translator: Translator, nodes: Sequence[ast.stmt], loop: LoopContext | None = None) -> s.Stmt:
    """Statements of a block that runs zero or several times."""
    with translator.collecting() as stmts, translator.names.block(is_branch=True):
        translator.statements(nodes, loop)
    return build.seq(stmts)


def _if(translator: Translator, node: ast.If) -> None:
    test = translator.value(node.test)
    if isinstance(test, Const):
        test = test.value
    if not is_runtime(test):
        translator.statements(node.body if test else node.orelse)
        return
    condition = operators.condition(test)
    then = _body(translator, node.body)
    otherwise = _body(translator, node.orelse) if node.orelse else None
    translator.stmts.append(s.If(condition, then, otherwise, translator.place(node)))


def _while(translator: Translator, node: ast.While) -> None:
    if node.orelse:
        translator.fail(node.orelse[0], "a loop of a script has no else")
    stmts, test = translator.apart(lambda: translator.value(node.test))
    condition, body = operators.condition(test), _body(translator, node.body, loop="runtime")
    if stmts:
        # They run before each turn.
        leave = s.If(operators.unary("lnot", condition), s.Break())
        condition, body = operators.as_expr(True), build.seq([*stmts, leave, body])
    translator.stmts.append(s.While(condition, body, translator.place(node)))


def _leave(translator: Translator, node: ast.Break | ast.Continue) -> None:
    what = type(node).__name__.lower()
    if translator.loop == "none":
        translator.fail(node, f"{what} stands outside of a loop")
    if translator.loop == "now":
        translator.fail(node, f"{what} stands in a loop that is unrolled at build time", "loop over range(...) instead")
    translator.stmts.append(s.Break() if isinstance(node, ast.Break) else s.Continue())


def _define(translator: Translator, node: ast.FunctionDef) -> None:
    """A function inside of a script: its body is translated anew wherever it is called."""
    translator.names.bind(node.name, inlined_function(translator, node))


def _with(translator: Translator, node: ast.With) -> None:
    """`with warp_groups([0]) as tid`: some threads of the block."""
    if len(node.items) != 1:
        translator.fail(node, "a script enters one context at a time", "write one with inside of the other")
    (item,) = node.items
    context = translator.value(item.context_expr)
    if not isinstance(context, ThreadRange):
        translator.fail(
            item.context_expr, f"{ast.unparse(item.context_expr)} is no context of a script: warp_groups is"
        )
    with translator.collecting() as stmts, translator.names.block(is_branch=True):
        if item.optional_vars is not None:
            translator.bind_parts(item.optional_vars, translator.declare("thread", context.number, node))
        translator.statements(node.body)
    translator.stmts.append(s.If(context.condition, build.seq(stmts), None, translator.place(node)))


def _return(translator: Translator, node: ast.Return) -> None:
    value = None if node.value is None else translator.value(node.value)
    if translator.inlined:
        call = translator.inlined[-1]
        if translator.names.is_branch_since(call.depth) or translator.loop != "none":
            translator.fail(
                node, "a function inside of a script returns at its end", "choose the value by a if c else b"
            )
        call.result, call.is_done = value, True
        return
    if value is None:
        if translator.result is not None:
            translator.fail(node, f"returns nothing, expected a {translator.result}")
        translator.stmts.append(s.Return(None, translator.place(node)))
        return
    if translator.result is None:
        translator.fail(
            node, "returns a value, but no type is declared for it", "write -> f32, or another type, after ()"
        )
    converted = operators.convert(value, translator.result, "the value returned")
    translator.stmts.append(s.Return(converted, translator.place(node)))


def _assert(translator: Translator, node: ast.Assert) -> None:
    test = translator.value(node.test)
    message = ast.unparse(node.test) if node.msg is None else str(translator.known(node.msg, "the message"))
    if not is_runtime(test):
        if not test:
            translator.fail(node, f"assertion failed: {message}")
        return
    translator.stmts.append(s.Assert(operators.condition(test), f"assertion failed: {message}", translator.place(node)))


def _expression(translator: Translator, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):
        return
    count = len(translator.stmts)
    value = translator.value(node.value)
    is_call = isinstance(value, Call)
    if isinstance(value, Expr) and not is_call and count == len(translator.stmts):
        translator.fail(node, f"the value of {ast.unparse(node.value)} is not used")
    for expr in expressions_in(value):
        if isinstance(expr, Call):
            translator.stmts.append(s.Evaluate(expr, translator.place(node)))
        else:
            translator.once(expr)
    translator.locate(count, node)


def text_of(node: ast.stmt) -> str:
    """A statement that has no meaning, for messages."""
    words = {ast.ClassDef: "a class", ast.Try: "try"}
    return words.get(type(node), ast.unparse(node).splitlines()[0])


HINTS: dict[type[ast.AST], str] = {
    ast.ClassDef: "define it before the function",
    ast.Try: "a program on a GPU has no exceptions: test with if",
    ast.Delete: "a name ends with its block",
    ast.Global: "pass what the function changes as a tensor",
    ast.Nonlocal: "pass what the function changes as a tensor",
    ast.ImportFrom: "import before the function",
    ast.Import: "import before the function",
}
"""class of a statement that has no meaning -> what to write in its place"""

CASES: dict[type[ast.AST], Callable[[Translator, Any], None]] = {
    ast.If: _if,
    ast.While: _while,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Return: _return,
    ast.FunctionDef: _define,
    ast.With: _with,
    ast.Assert: _assert,
    ast.Expr: _expression,
    ast.Pass: lambda translator, node: None,
}
"""class of a statement -> what translates it"""
