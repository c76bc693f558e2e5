"""Putting the nodes of a sub-graph into the graph around it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from hidet.dims import Dim, DimExpr, Symbol, as_dim, substitute, symbols
from hidet.errors import ShapeError
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.symbols import symbol_names
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, ValueType, dims_of


def inline(builder: GraphBuilder, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit the nodes of `graph` on `inputs`; what stands for its outputs.

    The types of the inputs may be more precise than those of the sub-graph's: its symbols are replaced by the extents
    that they turn out to be. Symbols that its nodes define get new names, so that a graph may be inlined repeatedly.
    """
    sizes: dict[str, Dim] = {}
    for inner, outer in zip(graph.inputs, inputs, strict=True):
        bind_sizes(inner.type, outer.type, sizes)
    values: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    read = {value for node in graph.nodes for value in node.values} | set(graph.outputs)
    values.update((v, builder.constant(c.data, v.tensor.dtype)) for v, c in graph.constants.items() if v in read)
    for node in graph.nodes:
        for size in node.attrs.get("defines", ()):
            (symbol,) = symbols(size)
            sizes[symbol.name] = builder.fresh_size(symbol.lower)
        emit_again(builder, node, values, sizes)
    return tuple(values[value] for value in graph.outputs)


def emit_again(builder: GraphBuilder, node: Node, values: dict[Value, Value], sizes: Mapping[str, Dim]) -> None:
    """Emit a node on what stands for its inputs, sizes in place of symbols, and note what stands for its results."""
    attrs = {name: substituted(value, sizes) for name, value in node.attrs.items()}
    given = [None if value is None else values.get(value, value) for value in node.inputs]
    # The place of the node in the user's model, or else that of the operator that holds the sub-graph.
    with builder.at(node.loc or builder.loc):
        made = builder.emit_all(node.op, given, attrs)
    values.update(zip(node.outputs, made, strict=True))


def bind_sizes(inner: ValueType, outer: ValueType, sizes: dict[str, Dim], only: Container[str] | None = None) -> None:
    """Note what the symbols that are whole extents of `inner` are in `outer`: all of them, or those in `only`."""
    for mine, theirs in zip(dims_of(_plain(inner)), dims_of(_plain(outer)), strict=False):
        if isinstance(mine, DimExpr):
            (symbol, *others) = symbols(mine)
            is_plain = not others and mine == as_dim(symbol) and symbol.name not in sizes
            if is_plain and (only is None or symbol.name in only):
                _require_admitted(symbol, theirs)
                sizes[symbol.name] = theirs


def _plain(type_: ValueType) -> ValueType:
    return TensorType(type_.dtype, type_.shape) if isinstance(type_, TensorType) else type_


def _require_admitted(symbol: Symbol, size: Dim) -> None:
    if isinstance(size, int) and not symbol.admits(size):
        raise ShapeError(f"a sub-graph takes {symbol.facts()}, got {size}")


def substituted(thing: Any, sizes: Mapping[str, Dim]) -> Any:
    """An attribute value, type or sub-graph with symbols replaced by sizes."""
    if not sizes:
        return thing
    if isinstance(thing, DimExpr):
        return substitute(thing, sizes)
    if isinstance(thing, tuple):
        return tuple(substituted(item, sizes) for item in thing)
    if isinstance(thing, TensorType):
        strides = substituted(thing.strides, sizes)
        return TensorType(thing.dtype, substituted(thing.shape, sizes), strides, thing.device, thing.alignment)
    if isinstance(thing, DimType):
        return DimType(substituted(thing.dim, sizes))
    if isinstance(thing, SequenceType | OptionalType):
        return type(thing)(substituted(thing.element, sizes))
    return _substituted_graph(thing, sizes) if isinstance(thing, Graph) else thing


def _substituted_graph(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """A sub-graph in whose types and attributes the symbols around it are replaced."""
    used = symbol_names(graph)
    changed = {name: size for name, size in sizes.items() if name in used}
    if not changed:
        return graph
    builder = GraphBuilder({}, graph.name)
    values: dict[Value, Value] = {}
    for value in graph.inputs:
        values[value] = builder.input(substituted(value.type, changed), value.name)
    values.update((v, builder.constant(c.data, v.tensor.dtype, v.name)) for v, c in graph.constants.items())
    for node in graph.nodes:
        emit_again(builder, node, values, changed)
    return builder.build([values[value] for value in graph.outputs])
