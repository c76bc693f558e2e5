"""Control flow that is decided at compile time: branches taken, loops unrolled, sizes read from constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hidet.dims import Dim, DimExpr, symbols
from hidet.graph.builder import GraphBuilder, rebuild_node
from hidet.graph.control import defined_sizes, scan_as_while
from hidet.graph.graph import Graph, Node, Value, subgraphs_of
from hidet.graph.inline import bind_sizes, emit_again, inline
from hidet.graph.symbols import names_used, symbol_names
from hidet.graph.types import TensorType
from hidet.passes.graph.fold_constants import FoldConstants
from hidet.passes.rewriter import next_number

if TYPE_CHECKING:
    from hidet.context import CompileContext

# Unrolling and folding reveal each other's conditions; more rounds than nested loops of a model are never needed.
_MAX_ROUNDS = 16


@dataclass(frozen=True)
class UnfoldControl:
    """Put sub-graphs in place of their operators where it is known how often they run.

    Loops are unrolled if that makes at most `max_nodes` nodes, those of inner loops counted once.
    """

    name: ClassVar[str] = "unfold-control"
    max_nodes: int = 256

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Rounds of constant folding and unfolding until nothing changes; a graph without control flow stays as is."""
        for _ in range(_MAX_ROUNDS):
            if not any(node.op.kind == "control" for node in graph.nodes):
                return graph
            folded = FoldConstants().run(graph, ctx)
            unfolded = _Unfolder(folded, self.max_nodes, ctx).run()
            if unfolded is folded:
                return folded
            graph = unfolded
        return graph


class _Unfolder:
    """One walk. `values`: what stands for a value now; `sizes`: what stands for a symbol."""

    def __init__(self, graph: Graph, max_nodes: int, ctx: CompileContext) -> None:
        self.graph = graph
        self.max_nodes = max_nodes
        self.builder = GraphBuilder(ctx.registry.operators, graph.name, next_number(graph), symbol_names(graph))
        self.values: dict[Value, Value] = {}
        self.sizes: dict[str, Dim] = {}
        self.fills: dict[Value, object] = {}
        self.changed = False

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op.name == "full" and isinstance(node.attrs["value"], int | float):
                self.fills[node.outputs[0]] = node.attrs["value"]
            made = self._unfolded(node) if node.op.kind == "control" else None
            if made is None:
                self._keep(node)
                continue
            self.changed = True
            own = symbol_names(defined_sizes(node))
            for old, new in zip(node.outputs, made, strict=True):
                bind_sizes(old.type, new.type, self.sizes, only=own)
                self.values[old] = new
        if not self.changed:
            return self.graph
        return replace(
            self.graph,
            nodes=self.builder.nodes,
            outputs=tuple(self.values.get(value, value) for value in self.graph.outputs),
            constants={**self.graph.constants, **self.builder.constants},
        )

    def _keep(self, node: Node) -> None:
        """The node as it is, or emitted anew where sizes or types it depends on are known better."""
        retyped = any(self.values[v].type != v.type for v in node.values if v in self.values)
        if not retyped and (not self.sizes or self.sizes.keys().isdisjoint(names_used(node))):
            self.builder.append(rebuild_node(node, self.values))
        else:
            emit_again(self.builder, node, self.values, self.sizes)

    def _unfolded(self, node: Node) -> Sequence[Value] | None:
        """What stands for the results of a control operator; None for one that stays."""
        inputs = [None if value is None else self.values.get(value, value) for value in node.inputs]
        given = [value for value in inputs if value is not None]
        name = node.op.name
        with self.builder.at(node.loc):
            if name == "read_sizes":
                return self._read_sizes(node, given[0])
            if name == "call":
                return inline(self.builder, node.attrs["body"], given)
            if name == "if":
                taken = self._number(node.inputs[0])
                branch = None if taken is None else node.attrs["then" if taken else "otherwise"]
                return None if branch is None else inline(self.builder, branch, given[1:])
            if name == "scan":
                return scan_as_while(
                    self.builder, node.attrs["body"], given, node.attrs["carried"], node.attrs["scanned"]
                )
            return self._unrolled(node, inputs) if name == "while" else None

    def _read_sizes(self, node: Node, source: Value) -> tuple[Value, ...] | None:
        """Numbers in place of the symbols. The sizes themselves are read by nobody but other control operators."""
        constant = self.graph.constants.get(source) or self.builder.constants.get(source)
        if constant is None or any(value in self.graph.outputs for value in node.outputs):
            return None
        numbers = [int(value) for value in np.ravel(constant.numpy())]
        admitted = [s.admits(n) for size, n in zip(node.attrs["defines"], numbers, strict=True) for s in symbols(size)]
        if not all(admitted) or any(value in other.values for other in self.graph.nodes for value in node.outputs):
            return None
        self.sizes.update((name, n) for s, n in zip(node.attrs["defines"], numbers, strict=True) for name in _names(s))
        return node.outputs

    def _unrolled(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value] | None:
        attrs, body = node.attrs, node.attrs["body"]
        starts = True if inputs[1] is None else self._number(node.inputs[1])
        limit = attrs["count"] if inputs[0] is None else self._number(node.inputs[0])
        if starts is None or (starts and (attrs["tests"] or not isinstance(limit, int))):
            return None
        trips = max(limit, 0) if starts and isinstance(limit, int) else 0
        types = [value.tensor for value in node.outputs[attrs["carried"] :]]
        has_shape = all(not isinstance(extent, DimExpr) for type_ in types for extent in type_.shape[1:])
        if trips * max(_node_count(body), 1) > self.max_nodes or (trips == 0 and not has_shape):
            return None
        state = [value for value in inputs[2 : 2 + attrs["carried"]] if value is not None]
        captures = [value for value in inputs[2 + attrs["carried"] :] if value is not None]
        rows: list[list[Value]] = []
        for trip in range(trips):
            iteration = self.builder.constant(np.array(trip, np.int64))
            made = inline(self.builder, body, [iteration, *state, *captures])
            state = list(made[: len(state)])
            rows.append([self.builder.emit("unsqueeze", value, axes=(0,)) for value in made[len(state) :]])
        stacks = [self._stacked([row[n] for row in rows], type_) for n, type_ in enumerate(types)]
        return [*state, *stacks]

    def _stacked(self, rows: Sequence[Value], type_: TensorType) -> Value:
        if not rows:
            return self.builder.emit("full", shape=(0, *type_.shape[1:]), value=0, dtype=type_.dtype)
        return rows[0] if len(rows) == 1 else self.builder.emit_all("concat", rows, {"axis": 0})[0]

    def _number(self, value: Value | None) -> object:
        """The element of a value of one element that is known; None for any other value."""
        if value is None:
            return None
        if value in self.fills:
            return self.fills[value]
        current = self.values.get(value, value)
        constant = self.graph.constants.get(current) or self.builder.constants.get(current)
        return None if constant is None else constant.numpy().item()


def _names(size: Dim) -> list[str]:
    return [symbol.name for symbol in symbols(size)]


def _node_count(graph: Graph) -> int:
    return len(graph.nodes) + sum(_node_count(inner) for node in graph.nodes for inner in subgraphs_of(node))
