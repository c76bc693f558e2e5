"""Functions and modules of the thread IR as Hidet-Script-like Python text; `hidet.ir.parser` reads it back.

    module(entry="main", externals=["scale"])

    @kernel(block=(256, 1, 1))
    def scale(a: ~f32, n: i64):
        i = grid()
        x: f32 = a[i]
        for j in unroll(4, start=1, step=2):
            x = x * 2.0
        a[i] = x

    @host
    def main(a: ~f32, n: i64):
        assert n >= 0, "n is negative"
        launch("scale", [n], [a, n])

A value that is long because its parts are used several times is written `let(t0 := part, ..., value)`. Names are made
unique here and nowhere else. `range`, `unroll` and `vectorize` name the kind of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Var
from hidet.ir.expr_text import Names, expr_text, list_text, plain_name, print_expr, symbol_text, type_text
from hidet.ir.func import Function, Module
from hidet.ir.shared_text import value_text

LOOPS = {"serial": "range", "unroll": "unroll", "vectorize": "vectorize"}


def print_module(module: Module) -> str:
    """The text of a module, ending in a line break."""
    externals = "" if not module.externals else f", externals={list(module.externals)!r}"
    scopes = [Names() for _ in module.functions]
    texts = ["\n".join(_function(f, names)) for f, names in zip(module.functions, scopes, strict=True)]
    symbols = dict.fromkeys(symbol for names in scopes for symbol in names.symbols)
    head = [f'module(entry="{module.entry}"{externals})', *map(symbol_text, symbols)]
    return "\n\n".join(["\n".join(head), *texts]) + "\n"


def print_function(function: Function) -> str:
    """The text of a function, after the symbolic sizes it mentions; ends in a line break."""
    names = Names()
    lines = list(_function(function, names))
    return "\n".join([*map(symbol_text, names.symbols), *lines]) + "\n"


def print_stmt(stmt: s.Stmt) -> str:
    """The text of a statement, ending in a line break; variables from outside keep their names."""
    return "\n".join(_stmt(stmt, Names())) + "\n"


def _function(function: Function, names: Names) -> Iterator[str]:
    attributes = [f"{key}={value!r}" for key, value in function.attributes]
    plain = plain_name(function.name)
    if plain != function.name:
        attributes.insert(0, f"symbol={function.name!r}")
    yield f"@{function.kind}({', '.join(attributes)})" if attributes else f"@{function.kind}"
    # Names are given before types are printed, so that a parameter keeps its name where a shape mentions it.
    params = {names(var): var.type for var in function.params}
    typed = ", ".join(f"{name}: {type_text(type_, names)}" for name, type_ in params.items())
    result = "" if function.result is None else f" -> {type_text(function.result, names)}"
    yield f"def {plain}({typed}){result}:"
    if function.grid_vars:
        types = [var.type for var in function.grid_vars]
        shown = "" if all(t is dtypes.i64 for t in types) else ", ".join(type_text(t, names) for t in types)
        yield f"    {', '.join(map(names, function.grid_vars))} = grid({shown})"
    yield from _body(function.body, names)


def _body(stmt: s.Stmt, names: Names) -> Iterator[str]:
    lines = list(_stmt(stmt, names)) or ["pass"]
    return (f"    {line}" for line in lines)


def _stmt(stmt: s.Stmt, names: Names) -> Iterator[str]:
    case = _CASES.get(type(stmt))
    if case is None:
        raise VerifyError(f"statement {type(stmt).__name__} has no text")
    yield from case(stmt, names)


def _seq(stmt: s.Seq, names: Names) -> Iterator[str]:
    for child in stmt.stmts:
        yield from _stmt(child, names)


def _declare(stmt: s.Declare, names: Names) -> Iterator[str]:
    init = "" if stmt.init is None else f" = {value_text(stmt.init, names)}"
    yield f"{names(stmt.var)}: {type_text(stmt.var.type, names)}{init}"


def _store(stmt: s.Store, names: Names) -> Iterator[str]:
    value = value_text(stmt.value, names)
    if isinstance(stmt.buffer, Var) and stmt.mask is None:
        indices = list_text(stmt.indices, names)[1:-1] or "()"
        yield f"{names(stmt.buffer)}[{indices}] = {value}"
        return
    mask = "" if stmt.mask is None else f", mask={expr_text(stmt.mask, names)}"
    yield f"store({expr_text(stmt.buffer, names)}, {list_text(stmt.indices, names)}, {value}{mask})"


def _for(stmt: s.For, names: Names) -> Iterator[str]:
    parts = [expr_text(stmt.extent, names)]
    if not (isinstance(stmt.start, Const) and stmt.start.type is dtypes.i64 and repr(stmt.start.value) == "0"):
        parts.append(f"start={expr_text(stmt.start, names)}")
    if stmt.step != 1:
        parts.append(f"step={stmt.step}")
    if stmt.var.type is not dtypes.i64:
        parts.append(f"type={type_text(stmt.var.type, names)}")
    yield f"for {names(stmt.var)} in {LOOPS[stmt.kind]}({', '.join(parts)}):"
    yield from _body(stmt.body, names)


def _while(stmt: s.While, names: Names) -> Iterator[str]:
    yield f"while {expr_text(stmt.condition, names)}:"
    yield from _body(stmt.body, names)


def _if(stmt: s.If, names: Names) -> Iterator[str]:
    yield f"if {value_text(stmt.condition, names)}:"
    yield from _body(stmt.then, names)
    if stmt.otherwise is not None:
        yield "else:"
        yield from _body(stmt.otherwise, names)


def _return(stmt: s.Return, names: Names) -> Iterator[str]:
    yield "return" if stmt.value is None else f"return {value_text(stmt.value, names)}"


def _launch(stmt: s.Launch, names: Names) -> Iterator[str]:
    parts = [f'"{stmt.kernel}"', list_text(stmt.grid, names), list_text(stmt.arguments, names)]
    parts += [f"{key}={list_text(getattr(stmt, key), names)}" for key in ("block", "cluster") if getattr(stmt, key)]
    for key in ("shared_bytes", "cost"):
        value = getattr(stmt, key)
        if value is not None:
            parts.append(f"{key}={expr_text(value, names)}")
    parts += ["is_cooperative=True"] if stmt.is_cooperative else []
    yield f"launch({', '.join(parts)})"


def _assert(stmt: s.Assert, names: Names) -> Iterator[str]:
    told = ", ".join([repr(stmt.message), *(expr_text(value, names) for value in stmt.values)])
    yield f"assert {expr_text(stmt.condition, names)}, {f'({told})' if stmt.values else told}"


def _print(stmt: s.Print, names: Names) -> Iterator[str]:
    yield f"printf({', '.join([repr(stmt.text), *(expr_text(value, names) for value in stmt.values)])})"


def _assembly(stmt: s.Assembly, names: Names) -> Iterator[str]:
    lists = (stmt.results, stmt.updates, stmt.arguments)
    parts = [repr(stmt.text), *(list_text(each, names) for each in lists)]
    yield f"asm({', '.join([*parts, repr(stmt.has_effect), repr(stmt.touches_memory)])})"


def _invoke(stmt: s.Invoke, names: Names) -> Iterator[str]:
    independent = ", is_independent=True" if stmt.is_independent else ""
    yield f'invoke("{stmt.function}", {list_text(stmt.arguments, names)}{independent})'


_CASES: dict[type, Callable[[Any, Names], Iterator[str]]] = {
    s.Seq: _seq,
    s.Declare: _declare,
    s.Assign: lambda stmt, names: iter((f"{names(stmt.var)} = {value_text(stmt.value, names)}",)),
    s.Store: _store,
    s.For: _for,
    s.While: _while,
    s.If: _if,
    s.Break: lambda stmt, names: iter(("break",)),
    s.Continue: lambda stmt, names: iter(("continue",)),
    s.Return: _return,
    s.Evaluate: lambda stmt, names: iter((expr_text(stmt.expr, names),)),
    s.Assert: _assert,
    s.Print: _print,
    s.Assembly: _assembly,
    s.Launch: _launch,
    s.Invoke: _invoke,
}

__all__ = ["print_expr", "print_function", "print_module", "print_stmt"]
