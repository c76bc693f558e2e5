"""Graphs as text, one line a node, that `hidet.graph.parser` reads back.

    symbol s0: 1..8192 hint 128 divisor 8
    graph main(%x: f32[s0, 768], param %w: f32[768, 768]):
      const %c: f32[4] = [1.0, 2.0, 3.0, 4.0]
      const %d: f32[64, 64] = sha=9f86d081884c7d659a2feaa0c55ad015
      prepare %p: f32[64, 64]
        graph prepare():
          ...
      %4: f32[s0, 768] = matmul(%x, %w, trans_b=True)  # model.py:41 (fc1)
      %5: f32[2] = if(%c, then=@0, otherwise=@1)
        @0 graph taken():
          ...
      return %4
      mutates 0 <- 1

An absent optional input is `none`; attributes with their default value are left out; `mutates i <- j` means that output
j overwrites input i. Names are made unique here and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hidet import dims
from hidet.dims import Dim, DimExpr, Symbol
from hidet.dtypes import DType
from hidet.graph.attrs import Attrs
from hidet.graph.constant_text import digest, inline_text
from hidet.graph.graph import Graph, Node, Value, subgraphs_of
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, ValueType, dims_of


def print_graph(graph: Graph) -> str:
    """The text of `graph`, ending in a line break."""
    symbols = dict.fromkeys(symbol for dim in _dims_of_graph(graph) for symbol in dims.symbols(dim))
    lines = [symbol_text(symbol) for symbol in sorted(symbols, key=lambda symbol: symbol.name)]
    return "\n".join([*lines, *GraphText(graph, canonical=False).lines(), ""])


def canonical_lines(graph: Graph) -> list[str]:
    """Lines that graphs share which compute the same in the same way: values are numbered in order of appearance, and
    names, places and the order of constants do not count."""
    keys = sorted({symbol.key for dim in _dims_of_graph(graph) for symbol in dims.symbols(dim)})
    return [*keys, *GraphText(graph, canonical=True).lines()]


def constant_table(graph: Graph) -> dict[str, Any]:
    """The arrays that the text of `graph` names by digest: the side table that `parse_graph` needs."""
    table: dict[str, Any] = {}
    for part in _all_graphs(graph):
        for value, constant in part.constants.items():
            array = constant.numpy()
            if inline_text(array, value.tensor.dtype) is None:
                table[digest(array)] = array
    return table


def symbol_text(symbol: Symbol) -> str:
    """One line: range, then hint and divisor where there are any."""
    text = f"symbol {symbol.name}: {symbol.lower}..{'' if symbol.upper is None else symbol.upper}"
    text += "" if symbol.hint is None else f" hint {symbol.hint}"
    return text if symbol.divisor == 1 else f"{text} divisor {symbol.divisor}"


def type_text(type_: ValueType) -> str:
    """A value's type with everything that is known about its layout."""
    if isinstance(type_, TensorType):
        return f"{type_} align {type_.alignment}" if type_.alignment != 1 else str(type_)
    if isinstance(type_, SequenceType | OptionalType):
        outer = "sequence" if isinstance(type_, SequenceType) else "optional"
        return f"{outer}<{type_text(type_.element)}>"
    return str(type_)


class GraphText:
    """The lines of one graph; sub-graphs are closed, so each has names of its own."""

    def __init__(self, graph: Graph, canonical: bool) -> None:
        self.graph = graph
        self.canonical = canonical
        self._names: dict[Value, str] = {}
        self._used: set[str] = set()

    @classmethod
    def named(cls, graph: Graph) -> GraphText:
        """For texts about a graph: values have the names that `print_graph` gives them."""
        made = cls(graph, canonical=False)
        # Names are given in the order of the lines.
        for _ in made.lines():
            pass
        return made

    def name(self, value: Value) -> str:
        """`%` and a name that no other value of the graph has."""
        known = self._names.get(value)
        if known is not None:
            return known
        wanted = str(len(self._names)) if self.canonical else re.sub(r"[^\w.]", "_", value.name) or "_"
        unique, attempt = wanted, 0
        while unique in self._used:
            attempt += 1
            unique = f"{wanted}_{attempt}"
        self._used.add(unique)
        self._names[value] = f"%{unique}"
        return self._names[value]

    def typed(self, value: Value) -> str:
        """The name of a value, and its type."""
        return f"{self.name(value)}: {type_text(value.type)}"

    def lines(self) -> Iterator[str]:
        """All lines, without line breaks."""
        graph = self.graph
        inputs = (f"{'param ' if v in graph.parameters else ''}{self.typed(v)}" for v in graph.inputs)
        yield f"graph {'' if self.canonical else graph.name}({', '.join(inputs)}):"
        for value in self._constants():
            yield f"  const {self.typed(value)} = {self._constant(value)}"
        if graph.prepare is not None:
            results = ", ".join(map(self.typed, graph.prepare.results))
            yield f"  prepare {results}"
            yield from (f"    {line}" for line in GraphText(graph.prepare.graph, self.canonical).lines())
        for node in graph.nodes:
            yield from self.node_lines(node)
        yield f"  return {', '.join(map(self.name, graph.outputs))}".rstrip()
        for source, target in graph.mutates:
            yield f"  mutates {source} <- {target}"

    def _constants(self) -> Iterable[Value]:
        constants = self.graph.constants
        if not self.canonical:
            return constants
        read = dict.fromkeys(value for node in self.graph.nodes for value in node.values if value in constants)
        return {**read, **dict.fromkeys(constants)}

    def _constant(self, value: Value) -> str:
        array = self.graph.constants[value].numpy()
        inline = None if self.canonical else inline_text(array, value.tensor.dtype)
        return f"sha={digest(array)}" if inline is None else inline

    def node_lines(self, node: Node) -> Iterator[str]:
        """The line of a node, and those of its sub-graphs."""
        subgraphs: list[Graph] = []
        arguments = ["none" if value is None else self.name(value) for value in node.inputs]
        arguments += [f"{name}={attribute_text(value, subgraphs)}" for name, value in _given(node)]
        outputs = ", ".join(map(self.typed, node.outputs))
        line = f"  {outputs} = " if outputs else "  "
        place = "" if node.loc is None or self.canonical else f"  # {' '.join(str(node.loc).split())}"
        yield f"{line}{node.op.name}({', '.join(arguments)}){place}"
        for number, subgraph in enumerate(subgraphs):
            first, *rest = GraphText(subgraph, self.canonical).lines()
            yield f"    @{number} {first}"
            yield from (f"    {line}" for line in rest)


def _given(node: Node) -> Iterator[tuple[str, Any]]:
    """The attributes whose values are not the operator's defaults."""
    defaults = {attribute.name: attribute.default for attribute in node.op.attributes}
    for name, value in node.attrs.items():
        if name not in defaults or Attrs({name: value}) != Attrs({name: defaults[name]}):
            yield name, value


def attribute_text(value: Any, subgraphs: list[Graph]) -> str:
    """One attribute value; graphs are appended to `subgraphs` and referred to by number.

    Values of other kinds print as `<repr>`, which does not parse back.
    """
    if isinstance(value, tuple):
        return f"[{', '.join(attribute_text(item, subgraphs) for item in value)}]"
    if isinstance(value, Graph):
        subgraphs.append(value)
        return f"@{len(subgraphs) - 1}"
    if isinstance(value, TensorType | SequenceType | OptionalType | DimType):
        return f"type({type_text(value)})"
    text = _ATTRIBUTE_TEXT.get(type(value))
    return f"<{value!r}>" if text is None else text(value)


_ATTRIBUTE_TEXT: dict[type, Callable[[Any], str]] = {
    bool: repr,
    int: repr,
    float: lambda value: "nan" if math.isnan(value) else repr(value),
    complex: lambda value: f"complex({value.real!r}, {value.imag!r})",
    str: repr,
    type(None): repr,
    DType: lambda value: str(value.short),
    DimExpr: lambda value: f"dim({value})",
}


def _all_graphs(graph: Graph) -> Iterator[Graph]:
    """`graph` and every graph inside it."""
    yield graph
    if graph.prepare is not None:
        yield from _all_graphs(graph.prepare.graph)
    for node in graph.nodes:
        for inner in subgraphs_of(node):
            yield from _all_graphs(inner)


def _dims_of_graph(graph: Graph) -> Iterator[Dim]:
    for part in _all_graphs(graph):
        prepared = part.prepare.results if part.prepare is not None else ()
        for value in (*part.inputs, *part.constants, *prepared):
            yield from _dims_of(value.type)
        for node in part.nodes:
            for value in node.outputs:
                yield from _dims_of(value.type)
            for attribute in node.attrs.values():
                yield from _dims_of(attribute)


def _dims_of(thing: Any) -> Iterator[Dim]:
    """The symbolic sizes in a type or an attribute value."""
    if isinstance(thing, tuple):
        for item in thing:
            yield from _dims_of(item)
    elif isinstance(thing, DimExpr):
        yield thing
    elif isinstance(thing, TensorType | DimType | SequenceType | OptionalType):
        yield from (dim for dim in dims_of(thing) if isinstance(dim, DimExpr))
