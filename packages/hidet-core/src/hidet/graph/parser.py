"""Reads the text of `hidet.graph.printer` back into a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.dims import Symbol
from hidet.errors import HidetError, VerifyError, suggestion
from hidet.graph.constant_text import array_of, element_value
from hidet.graph.cursor import Cursor
from hidet.graph.graph import Constant, Graph, Node, Prepare, Value
from hidet.graph.operator import OperatorSpec, define_node
from hidet.graph.types import TensorType
from hidet.loc import Loc

_SYMBOL = re.compile(
    r"symbol (?P<name>\w+): (?P<lower>-?\d+)\.\.(?P<upper>-?\d+)?"
    r"(?: hint (?P<hint>-?\d+))?(?: divisor (?P<divisor>\d+))?"
)
_IDENTIFIER = re.compile(r"[\w.]+")
_OPERATOR = re.compile(r"[\w.:/-]+")
_DIGEST = re.compile(r"[0-9a-f]+")
_INDEX = re.compile(r"\d+")
_GRAPH_NAME = re.compile(r"[^(]*")
_PLACE = re.compile(r"(?:(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?)?(?: ?\((?P<name>.*)\))?")
_ELEMENT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,\]]+")


@dataclass(slots=True)
class _Line:
    """A line with its number in the text, and the lines indented below it."""

    text: str
    number: int
    indent: int
    below: list[_Line]


def parse_graph(text: str, operators: Mapping[str, OperatorSpec], constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph that `text` describes.

    operators: specs by name. constants: arrays by digest, as `constant_table` gives them.
    Raises VerifyError with line and column for text that is malformed, and for unknown operators, values, attributes
    and digests. The result is not verified.
    """
    reader = _Reader(operators, constants or {})
    lines = _tree(text)
    while lines and lines[0].text.startswith("symbol "):
        reader.symbol(lines.pop(0))
    if len(lines) != 1 or not lines[0].text.startswith("graph "):
        raise VerifyError("graph text must have one graph after its symbols, starting with 'graph '")
    return reader.graph(lines[0], 0)


def _tree(text: str) -> list[_Line]:
    """The lines by indentation; blank ones are dropped."""
    roots: list[_Line] = []
    open_lines: list[tuple[int, list[_Line]]] = [(-1, roots)]
    for number, raw in enumerate(text.splitlines(), 1):
        if not raw.strip():
            continue
        indent = len(raw) - len(raw.lstrip(" "))
        while open_lines[-1][0] >= indent:
            open_lines.pop()
        line = _Line(raw.strip(), number, indent, [])
        open_lines[-1][1].append(line)
        open_lines.append((indent, line.below))
    return roots


class _Reader:
    """What all graphs of one text share."""

    def __init__(self, operators: Mapping[str, OperatorSpec], constants: Mapping[str, Any]) -> None:
        self.operators = operators
        self.constants = constants
        self.symbols: dict[str, Symbol] = {}

    def symbol(self, line: _Line) -> None:
        found = _SYMBOL.fullmatch(line.text)
        if found is None:
            raise VerifyError(f"graph text, line {line.number}: expected 'symbol name: lower..upper hint h divisor d'")
        upper, hint = (None if found[key] is None else int(found[key]) for key in ("upper", "hint"))
        name = found["name"]
        self.symbols[name] = Symbol(name, int(found["lower"]), upper, int(found["divisor"] or 1), hint)

    def cursor(self, line: _Line, position: int = 0) -> Cursor:
        cursor = Cursor(line.text, line.number, self.symbols, line.indent)
        cursor.position = position
        return cursor

    def graph(self, line: _Line, position: int) -> Graph:
        """A graph whose header starts at `position` of `line`."""
        head = self.cursor(line, position)
        head.expect("graph")
        name = "" if head.text.startswith(" (", head.position) else head.match(_GRAPH_NAME, "a graph name").rstrip()
        body = _Body(self)
        inputs: list[Value] = []
        parameters: set[Value] = set()
        head.expect("(")
        while not head.accept(")"):
            if inputs:
                head.expect(",")
            is_parameter = head.accept("param ")
            inputs.append(body.define(head))
            if is_parameter:
                parameters.add(inputs[-1])
        head.expect(":")
        head.finish()
        for below in line.below:
            body.line(below)
        return Graph(
            *(name, tuple(inputs), tuple(body.nodes), tuple(body.outputs), body.constants),
            *(frozenset(parameters), tuple(body.mutates), body.prepare),
        )


class _Body:
    """The lines of one graph, and the values they define."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.constants: dict[Value, Constant] = {}
        self.mutates: list[tuple[int, int]] = []
        self.prepare: Prepare | None = None

    def line(self, line: _Line) -> None:
        cursor = self.reader.cursor(line)
        if cursor.accept("const "):
            self._constant(cursor)
        elif cursor.accept("prepare "):
            self._prepare(cursor, line)
        elif line.text == "return" or cursor.accept("return "):
            while line.text != "return" and not cursor.at_end():
                if self.outputs:
                    cursor.expect(",")
                self.outputs.append(self.use(cursor))
        elif cursor.accept("mutates "):
            source = int(cursor.match(_INDEX, "the number of an input"))
            cursor.expect("<-")
            self.mutates.append((source, int(cursor.match(_INDEX, "the number of an output"))))
            cursor.finish()
        else:
            self._node(cursor, line)

    def define(self, cursor: Cursor) -> Value:
        """A new value: `%name: type`."""
        cursor.expect("%")
        name = cursor.match(_IDENTIFIER, "a value name")
        if name in self.values:
            raise cursor.error(f"a new name: %{name} is defined already")
        cursor.expect(":")
        value = self.values[name] = Value(name, cursor.type())
        return value

    def use(self, cursor: Cursor) -> Value:
        """A known value: `%name`."""
        cursor.expect("%")
        name = cursor.match(_IDENTIFIER, "a value name")
        if name not in self.values:
            raise VerifyError(
                f"graph text, line {cursor.number}: nothing above defines %{name}", hint=suggestion(name, self.values)
            )
        return self.values[name]

    def _constant(self, cursor: Cursor) -> None:
        value = self.define(cursor)
        cursor.expect("=")
        if not isinstance(value.type, TensorType):
            raise cursor.error("a constant of tensor type")
        if cursor.accept("sha="):
            known = cursor.match(_DIGEST, "a digest")
            if known not in self.reader.constants:
                raise VerifyError(
                    f"graph text, line {cursor.number}: constant %{value.name} with digest {known} is in no side table",
                    hint="pass constants=constant_table(graph) of the printed graph",
                )
            self.constants[value] = Constant(self.reader.constants[known])
        else:
            self.constants[value] = Constant(_elements(cursor, value.type))
        cursor.finish()

    def _prepare(self, cursor: Cursor, line: _Line) -> None:
        results = [self.define(cursor)]
        while cursor.accept(","):
            results.append(self.define(cursor))
        cursor.finish()
        if len(line.below) != 1:
            raise cursor.error("one graph indented below")
        self.prepare = Prepare(self.reader.graph(line.below[0], 0), tuple(results))

    def _node(self, cursor: Cursor, line: _Line) -> None:
        outputs: list[Value] = []
        if line.text.startswith("%"):
            outputs.append(self.define(cursor))
            while cursor.accept(","):
                outputs.append(self.define(cursor))
            cursor.expect("=")
        name = cursor.match(_OPERATOR, "an operator")
        op = self.reader.operators.get(name)
        if op is None:
            raise VerifyError(
                f"graph text, line {line.number}: operator {name!r} is unknown",
                hint=suggestion(name, self.reader.operators),
            )
        subgraphs = [self._subgraph(below, number) for number, below in enumerate(line.below)]
        inputs, given = self._arguments(cursor, subgraphs)
        loc = _place(cursor.text[cursor.position :]) if cursor.accept("#") else None
        if loc is None:
            cursor.finish()
        try:
            attrs = op.attrs(given)
            definition = define_node(op, [None if v is None else v.type for v in inputs], attrs)
        except HidetError as error:
            raise VerifyError(f"graph text, line {line.number}: {error.message}", loc=loc, hint=error.hint) from error
        self.nodes.append(Node(op, tuple(inputs), attrs, tuple(outputs), loc, definition))

    def _subgraph(self, line: _Line, number: int) -> Graph:
        cursor = self.reader.cursor(line)
        cursor.expect(f"@{number} ")
        return self.reader.graph(line, cursor.position)

    def _arguments(self, cursor: Cursor, subgraphs: Sequence[Graph]) -> tuple[list[Value | None], dict[str, Any]]:
        """What stands between the parentheses of a node: values, `none`, then attributes."""
        inputs: list[Value | None] = []
        given: dict[str, Any] = {}
        cursor.expect("(")
        while not cursor.accept(")"):
            if inputs or given:
                cursor.expect(",")
            if cursor.text.startswith("%", cursor.position + 1) or cursor.text.startswith("%", cursor.position):
                inputs.append(self.use(cursor))
                continue
            name = cursor.match(_IDENTIFIER, "a value, none, or an attribute")
            if name == "none":
                inputs.append(None)
            else:
                cursor.expect("=")
                given[name] = cursor.attribute(subgraphs)
        return inputs, given


def _elements(cursor: Cursor, type_: TensorType) -> Any:
    """The elements of an inline constant."""
    texts: list[str] = []
    if cursor.accept("["):
        while not cursor.accept("]"):
            if texts:
                cursor.expect(",")
            texts.append(cursor.match(_ELEMENT, "an element"))
    else:
        texts.append(cursor.match(_ELEMENT, "an element"))
    shape = [extent for extent in type_.shape if isinstance(extent, int)]
    try:
        return array_of([element_value(text) for text in texts], shape, type_.dtype)
    except VerifyError as error:
        raise cursor.error(error.message) from error


def _place(text: str) -> Loc | None:
    """The place that `str(Loc)` printed; a text without a line number is a name."""
    text = text.strip().lstrip("#").strip()
    found = _PLACE.fullmatch(text)
    if found is None or (found["file"] is None and found["name"] is None):
        return Loc(name=text) if text else None
    line, column = (None if found[key] is None else int(found[key]) for key in ("line", "column"))
    return Loc(found["file"], line, column, found["name"])
