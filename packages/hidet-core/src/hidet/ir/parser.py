"""Reads the functions and modules that `hidet.ir.printer` prints. Nothing is executed: Python only parses the text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from hidet import dtypes
from hidet.dims import Symbol
from hidet.errors import VerifyError
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import ROWS
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.expr_parser import ExprParser, elements, fail, parse_expr, parse_python, string
from hidet.ir.func import Function, FunctionKind, Module
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.printer import LOOPS
from hidet.ir.structural import structural_equal
from hidet.ir.types import Type

_LOOP_KINDS = {text: kind for kind, text in LOOPS.items()}
_FUNCTION_KINDS: dict[str, FunctionKind] = {"kernel": "kernel", "device": "device", "host": "host"}


def parse_module(text: str, intrinsics: Mapping[str, Intrinsic] = ROWS) -> Module:
    """The module that `print_module` printed. VerifyError with line and column for text that it would not print.

    intrinsics: those that calls may name, `registry.intrinsic_rows()` for those of all wheels. Functions of the module
    come first.
    """
    tree = parse_python(text, "exec")
    if not tree.body or _called(tree.body[0]) != "module":
        raise VerifyError('program text must start with module(entry="...")')
    head = {keyword.arg: keyword.value for keyword in tree.body[0].value.keywords}
    symbols, definitions = _split(tree.body[1:])
    own = {node.name for node in definitions}
    called = {name: row for name, row in intrinsics.items() if name not in own}
    functions = tuple(_FunctionParser(symbols, called).function(node) for node in definitions)
    externals = tuple(string(name) for name in elements(head["externals"])) if "externals" in head else ()
    return Module(functions, string(head["entry"]) if "entry" in head else "", externals)


def parse_function(text: str, intrinsics: Mapping[str, Intrinsic] = ROWS) -> Function:
    """The function that `print_function` printed. VerifyError with line and column for text that it would not print."""
    symbols, definition = parse_definition(text)
    return _FunctionParser(symbols, intrinsics).function(definition)


def parse_definition(text: str) -> tuple[dict[str, Symbol], ast.FunctionDef]:
    """The symbolic sizes that stand before the only function of a text, by name, and that function."""
    symbols, definitions = _split(parse_python(text, "exec").body)
    if len(definitions) != 1:
        raise VerifyError(f"program text has {len(definitions)} functions, expected one")
    return symbols, definitions[0]


def _called(node: ast.stmt) -> str | None:
    """The name of the function that an expression statement calls."""
    call = node.value if isinstance(node, ast.Expr) else None
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None


def _split(body: list[ast.stmt]) -> tuple[dict[str, Symbol], list[ast.FunctionDef]]:
    """The symbols declared at the top, and the functions below."""
    symbols: dict[str, Symbol] = {}
    definitions: list[ast.FunctionDef] = []
    for node in body:
        if isinstance(node, ast.FunctionDef):
            definitions.append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not definitions:
            name = node.targets[0].id
            symbols[name] = _symbol(name, node.value)
        else:
            fail(node, "expected name = symbol(...) lines, then functions")
    return symbols, definitions


def _symbol(name: str, node: ast.expr) -> Symbol:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "symbol":
        fail(node, "expected symbol(lower, upper, divisor=..., hint=...)")
    bounds = [ast.literal_eval(argument) for argument in node.args]
    facts = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return Symbol(name, *bounds, **facts)


class _FunctionParser:
    """One function: a name stands for one variable throughout, as the printer has it."""

    def __init__(self, symbols: Mapping[str, Symbol], intrinsics: Mapping[str, Intrinsic]) -> None:
        self.scope: dict[str, Any] = {}
        self.exprs = ExprParser(self.scope, symbols, intrinsics)

    def function(self, node: ast.FunctionDef) -> Function:
        kind, name, attributes = self._decorator(node)
        params = self._params(node)
        body = list(node.body)
        grid_vars: tuple[Var, ...] = ()
        first = body[0]
        if isinstance(first, ast.Assign) and isinstance(first.value, ast.Call) and _is_name(first.value.func, "grid"):
            types = [self.exprs.type(argument) for argument in first.value.args]
            targets = elements(first.targets[0])
            grid_vars = tuple(
                self._declared(target, type_)
                for target, type_ in zip(targets, types or [dtypes.i64] * len(targets), strict=True)
            )
            body = body[1:]
        result = None if node.returns is None else self.exprs.type(node.returns)
        return Function(name, params, self.body(body), kind, grid_vars, result, attributes)  # type: ignore[arg-type]  # values

    def _decorator(self, node: ast.FunctionDef) -> tuple[FunctionKind, str, tuple[tuple[str, object], ...]]:
        decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else node
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not isinstance(called, ast.Name) or called.id not in _FUNCTION_KINDS:
            fail(node, f"function {node.name} needs one decorator: {', '.join('@' + kind for kind in _FUNCTION_KINDS)}")
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        attributes: dict[str, object] = {}
        for keyword in keywords:
            try:
                attributes[str(keyword.arg)] = ast.literal_eval(keyword.value)
            except ValueError:
                fail(keyword.value, f"attribute {keyword.arg} is no literal: {ast.unparse(keyword.value)}")
        name = str(attributes.pop("symbol", node.name))
        return _FUNCTION_KINDS[called.id], name, tuple(attributes.items())

    def _params(self, node: ast.FunctionDef) -> tuple[Var, ...]:
        """Parameters may mention each other in the shapes of buffers, so the scalars among them come first."""
        made: dict[str, Var] = {}
        for is_buffer in (False, True):
            for argument in node.args.args:
                if argument.annotation is None:
                    fail(argument, f"parameter {argument.arg} has no type")
                if _is_buffer(argument.annotation) == is_buffer:
                    made[argument.arg] = Var(argument.arg, self.exprs.type(argument.annotation))
                    self.scope[argument.arg] = made[argument.arg]
        return tuple(made[argument.arg] for argument in node.args.args)

    def _declared(self, target: ast.expr, type_: Type) -> Var:
        """The variable of a declaration; a second one with the same name and type is the same variable."""
        if not isinstance(target, ast.Name):
            fail(target, f"expected a variable name, found {ast.unparse(target)}")
        known = self.scope.get(target.id)
        if isinstance(known, Var) and structural_equal(known.type, type_):
            return known
        self.scope[target.id] = made = Var(target.id, type_)
        return made

    def body(self, nodes: list[ast.stmt]) -> s.Stmt:
        stmts = tuple(self.stmt(node) for node in nodes if not isinstance(node, ast.Pass))
        return stmts[0] if len(stmts) == 1 else s.Seq(stmts)

    def stmt(self, node: ast.stmt) -> s.Stmt:
        case = _CASES.get(type(node))
        if case is None:
            fail(node, f"{ast.unparse(node).splitlines()[0]} is no statement of the thread IR")
        return case(self, node)

    def declare(self, node: ast.AnnAssign) -> s.Stmt:
        type_ = self.exprs.type(node.annotation)
        init = None if node.value is None else self.exprs.expr(node.value)
        return s.Declare(self._declared(node.target, type_), init)

    def assign(self, node: ast.Assign) -> s.Stmt:
        (target,) = node.targets
        value = self.exprs.expr(node.value)
        if isinstance(target, ast.Subscript):
            indices = tuple(map(self.exprs.expr, elements(target.slice)))
            return s.Store(self.exprs.expr(target.value), indices, value)
        variable = self.exprs.expr(target)
        if not isinstance(variable, Var):
            fail(target, f"{ast.unparse(target)} cannot be assigned to")
        return s.Assign(variable, value)

    def loop(self, node: ast.For) -> s.Stmt:
        call = node.iter
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _LOOP_KINDS:
            fail(node, f"loops go over one of {', '.join(_LOOP_KINDS)}")
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if len(call.args) != 1 or not keywords.keys() <= {"start", "step", "type"}:
            fail(call, f"expected {call.func.id}(extent, start=..., step=..., type=...)")
        extent = self.exprs.expr(call.args[0])
        start: Expr = self.exprs.expr(keywords["start"]) if "start" in keywords else Const(0, dtypes.i64)
        step = string(keywords["step"], int) if "step" in keywords else 1
        type_ = self.exprs.type(keywords["type"]) if "type" in keywords else dtypes.i64
        variable = self._declared(node.target, type_)
        return s.For(variable, start, extent, self.body(node.body), step, _LOOP_KINDS[call.func.id])  # type: ignore[arg-type]  # a kind

    def branch(self, node: ast.If) -> s.Stmt:
        otherwise = self.body(node.orelse) if node.orelse else None
        return s.If(self.exprs.expr(node.test), self.body(node.body), otherwise)

    def check(self, node: ast.Assert) -> s.Stmt:
        told = node.msg or node.test
        message, *values = told.elts if isinstance(told, ast.Tuple) else [told]
        numbers = tuple(map(self.exprs.expr, values))
        return s.Assert(self.exprs.expr(node.test), string(message), None, numbers)

    def expression(self, node: ast.Expr) -> s.Stmt:
        case = _CALL_STATEMENTS.get(_called(node) or "")
        if case is None:
            return s.Evaluate(self.exprs.expr(node.value))
        call = node.value
        assert isinstance(call, ast.Call)
        try:
            return case(self.exprs, call.args, {keyword.arg: keyword.value for keyword in call.keywords})
        except IndexError:
            fail(node, f"{ast.unparse(node)} lacks arguments")


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_buffer(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Subscript) for node in ast.walk(annotation))


_Arguments = list[ast.expr]
_Keywords = dict[str | None, ast.expr]


def _store(exprs: ExprParser, args: _Arguments, keywords: _Keywords) -> s.Stmt:
    mask = exprs.expr(keywords["mask"]) if "mask" in keywords else None
    return s.Store(exprs.expr(args[0]), exprs.exprs(args[1]), exprs.expr(args[2]), mask)


def _launch(exprs: ExprParser, args: _Arguments, keywords: _Keywords) -> s.Stmt:
    cost, shared_bytes = (exprs.expr(keywords[key]) if key in keywords else None for key in ("cost", "shared_bytes"))
    block, cluster = (exprs.exprs(keywords[key]) if key in keywords else () for key in ("block", "cluster"))
    is_cooperative = string(keywords["is_cooperative"], bool) if "is_cooperative" in keywords else False
    kernel, grid, arguments = string(args[0]), exprs.exprs(args[1]), exprs.exprs(args[2])
    return s.Launch(kernel, grid, arguments, cost, block, cluster, shared_bytes, is_cooperative)


def _invoke(exprs: ExprParser, args: _Arguments, keywords: _Keywords) -> s.Stmt:
    is_independent = string(keywords["is_independent"], bool) if "is_independent" in keywords else False
    return s.Invoke(string(args[0]), exprs.exprs(args[1]), is_independent)


def _printf(exprs: ExprParser, args: _Arguments, keywords: _Keywords) -> s.Stmt:
    return s.Print(string(args[0]), tuple(map(exprs.expr, args[1:])))


def _assembly(exprs: ExprParser, args: _Arguments, keywords: _Keywords) -> s.Stmt:
    results, updates, arguments = map(exprs.exprs, args[1:4])
    flags = [string(flag, bool) for flag in args[4:6]]
    return s.Assembly(string(args[0]), results, updates, arguments, *flags)  # type: ignore[arg-type]  # variables


_CALL_STATEMENTS: dict[str, Callable[[ExprParser, _Arguments, _Keywords], s.Stmt]] = {
    "asm": _assembly,
    "printf": _printf,
    "store": _store,
    "launch": _launch,
    "invoke": _invoke,
}

_CASES: dict[type[ast.AST], Callable[[_FunctionParser, Any], s.Stmt]] = {
    ast.AnnAssign: _FunctionParser.declare,
    ast.Assign: _FunctionParser.assign,
    ast.For: _FunctionParser.loop,
    ast.While: lambda parser, node: s.While(parser.exprs.expr(node.test), parser.body(node.body)),
    ast.If: _FunctionParser.branch,
    ast.Break: lambda parser, node: s.Break(),
    ast.Continue: lambda parser, node: s.Continue(),
    ast.Return: lambda parser, node: s.Return(None if node.value is None else parser.exprs.expr(node.value)),
    ast.Expr: _FunctionParser.expression,
    ast.Assert: _FunctionParser.check,
}

__all__ = ["parse_expr", "parse_function", "parse_module"]
