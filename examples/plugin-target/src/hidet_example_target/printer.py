"""Thread IR as C. A kernel is a function of its parameters and its grid indices, a launch the loops that call it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from hidet.errors import CodegenError
from hidet.ir import stmt as s
from hidet.ir.func import EXPORTED, Function, Module
from hidet.ir.print_format import c_format, promoted
from hidet.ir.types import BufferType, PointerType
from hidet_example_target.expressions import ExpressionPrinter, array
from hidet_example_target.spelling import quoted, symbol, value_type

TARGET = "example-c"


def print_c(module: Module) -> str:
    """A module as C, complete. CodegenError names what this target does not have, and where it stands."""
    own = {function.name for function in module.functions}
    declared = {f"{_signature(function, module)};": None for function in module.functions}

    def declare(name: str, declaration: str) -> None:
        if name not in own:
            declared[declaration] = None

    bodies = [_define(function, module, declare) for function in module.functions]
    header = (files("hidet_example_target") / "support.h").read_text()
    return "\n".join([header, *declared, "", *bodies])


def _signature(function: Function, module: Module) -> str:
    """A function's type and name: static, unless others call it."""
    is_visible = function.name == module.entry or EXPORTED in function.attributes
    result = "void" if function.result is None else value_type(function.result)
    types = [value_type(var.type) for var in (*function.params, *function.grid_vars)]
    return f"{'' if is_visible else 'static '}{result} {symbol(function.name)}({', '.join(types) or 'void'})"


def _define(function: Function, module: Module, declare: Callable[[str, str], None]) -> str:
    printer = StatementPrinter(function, module, declare)
    variables = (*function.params, *function.grid_vars)
    for var in variables:
        printer.names[var] = printer.fresh(var.name)
    listed = ", ".join(f"{value_type(var.type)} {printer.names[var]}" for var in variables)
    head = _signature(function, module).partition("(")[0]
    printer.stmt(function.body)
    return "\n".join([f"{head}({listed or 'void'})", "{", *_indented(printer.lines), "}", ""])


class StatementPrinter(ExpressionPrinter):
    """The statements of one function."""

    def __init__(self, function: Function, module: Module, declare: Callable[[str, str], None]) -> None:
        super().__init__(TARGET, declare)
        self.function = function
        self.module = module

    def stmt(self, node: s.Stmt) -> None:
        """Print one statement; CodegenError, with its place, for what this target does not have."""
        case = _CASES.get(type(node))
        try:
            if case is None:
                raise CodegenError(f"target example-c has no statement {type(node).__name__}")
            case(self, node)
        except CodegenError as error:
            error.loc = error.loc or getattr(node, "loc", None)
            raise

    def block(self, head: str, body: s.Stmt) -> None:
        """A statement with a body in braces."""
        self.lines.append(f"{head} {{")
        self.stmt(body)
        self.lines.append("}")

    def _declare(self, node: s.Declare) -> None:
        var = node.var
        if isinstance(var.type, BufferType):
            self.names[var] = self.fresh(var.name)
            self.lines.append(array(var, self.names[var]))
        else:
            (text,) = ["0"] if node.init is None else self.begin(node.init)
            self.names[var] = self.variable(var.type, text, var.name)

    def _assign(self, node: s.Assign) -> None:
        (text,) = self.begin(node.value)
        self.lines.append(f"{self.names[node.var]} = {text};")

    def _store(self, node: s.Store) -> None:
        (text,) = self.begin(node.value)
        value = self.variable(node.value.type, text)
        self.begin(node.buffer, *node.indices)
        self.lines.append(f"{self.place(node.buffer, node.indices)} = {value};")

    def _for(self, node: s.For) -> None:
        start, extent = self.begin(node.start, node.extent)
        index, end = self.fresh(node.var.name), self.fresh("end")
        self.names[node.var] = index
        first = f"{value_type(node.var.type)} {index} = {start}, {end} = {index} + {extent}"
        self.block(f"for ({first}; {index} < {end}; {index} += {node.step})", node.body)

    def _while(self, node: s.While) -> None:
        self.lines.append("while (1) {")
        (condition,) = self.begin(node.condition)
        self.lines.append(f"if (!{condition}) break;")
        self.stmt(node.body)
        self.lines.append("}")

    def _if(self, node: s.If) -> None:
        (condition,) = self.begin(node.condition)
        self.block(f"if ({condition})", node.then)
        if node.otherwise is not None:
            self.block("else", node.otherwise)

    def _return(self, node: s.Return) -> None:
        self.lines.append("return;" if node.value is None else f"return {self.begin(node.value)[0]};")

    def _assert(self, node: s.Assert) -> None:
        """Leaves the call with the text that `hidet_example_target.target` makes an error of."""
        (condition,) = self.begin(node.condition)
        loc = node.loc
        place = None if loc is None else [loc.file, loc.line, loc.column]
        text = quoted(json.dumps([self.function.kind, self.function.name, node.message, place]))
        self.lines.append(f"if (!{condition}) {{")
        told = [*self.begin(*node.values), "0", "0"][: s.ASSERTED_VALUES]
        self.lines += [f"example_fail({text}, {', '.join(told)});", "}"]

    def _print(self, node: s.Print) -> None:
        """Not through a stream of the C library: its buffer would keep the text while Python writes past it."""
        shown = [
            f"({'void *' if isinstance(value.type, PointerType) else _PASSED[promoted(value.dtype).name]}){text}"
            for value, text in zip(node.values, self.begin(*node.values), strict=True)
        ]
        self.lines.append(f"dprintf({', '.join(['1', quoted(c_format(node.text)), *shown])});")

    def _launch(self, node: s.Launch) -> None:
        if node.block:
            raise CodegenError(
                f"kernel {node.kernel} is launched with blocks of threads, which target example-c does not have",
                hint="launch it over a grid alone, or compile it for a GPU",
            )
        texts = self.begin(*node.arguments, *node.grid)
        self.lines.append("{")
        types = [value.type for value in (*node.arguments, *node.grid)]
        values = [self.variable(type_, text, "given") for type_, text in zip(types, texts, strict=True)]
        arguments, extents = values[: len(node.arguments)], values[len(node.arguments) :]
        indices = [self.fresh("index") for _ in extents]
        for index, extent in zip(indices, extents, strict=True):
            self.lines.append(f"for (i64 {index} = 0; {index} < {extent}; {index}++)")
        self.lines += [f"{symbol(node.kernel)}({', '.join([*arguments, *indices])});", "}"]

    def _invoke(self, node: s.Invoke) -> None:
        texts = self.begin(*node.arguments)
        types = ", ".join(value_type(argument.type) for argument in node.arguments)
        self.declare(node.function, f"void {symbol(node.function)}({types or 'void'});")
        self.lines.append(f"{symbol(node.function)}({', '.join(texts)});")

    def _seq(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)


_PASSED = {"float64": "double", "int64": "long long", "uint64": "unsigned long long"}
"""How C passes what `hidet.ir.print_format.promoted` says."""

_CASES: dict[type, Callable[[StatementPrinter, Any], None]] = {
    s.Seq: StatementPrinter._seq,
    s.Declare: StatementPrinter._declare,
    s.Assign: StatementPrinter._assign,
    s.Store: StatementPrinter._store,
    s.For: StatementPrinter._for,
    s.While: StatementPrinter._while,
    s.If: StatementPrinter._if,
    s.Break: lambda printer, node: printer.lines.append("break;"),
    s.Continue: lambda printer, node: printer.lines.append("continue;"),
    s.Return: StatementPrinter._return,
    s.Evaluate: lambda printer, node: printer.lines.append(f"{printer.begin(node.expr)[0]};"),
    s.Assert: StatementPrinter._assert,
    s.Print: StatementPrinter._print,
    s.Launch: StatementPrinter._launch,
    s.Invoke: StatementPrinter._invoke,
}


def _indented(lines: Sequence[str]) -> list[str]:
    """Lines with four blanks for each brace that is open."""
    depth, shown = 1, []
    for line in lines:
        depth -= line.startswith("}")
        shown.append("    " * depth + line)
        depth += line.endswith("{")
    return shown
