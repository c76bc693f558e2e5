"""Moving work on parameters into the `prepare` graph, which runs once and again when a parameter changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node, Prepare, Value

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class SplitPrepare:
    """Nodes that depend on parameters and constants alone, and on at least one parameter, leave the main graph.

    Views stay where they are read: they cost nothing there, and moving them would copy the parameter.
    """

    name: ClassVar[str] = "split-prepare"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order finds the nodes, one more what the main graph still reads of them."""
        if graph.prepare is not None or not graph.parameters:
            return graph
        mutated = {graph.inputs[position] for position, _ in graph.mutates}
        steady: set[Value] = {p for p in graph.parameters if p not in mutated}
        known: set[Value] = steady | set(graph.constants)
        moved: list[Node] = []
        for node in graph.nodes:
            inputs = node.values
            if node.op.is_random or node.op.has_effect or node.op.kind in ("eager", "host"):
                continue
            if inputs and all(v in known for v in inputs) and any(v in steady for v in inputs):
                moved.append(node)
                known.update(node.outputs)
                steady.update(node.outputs)
        work = {value for node in moved if node.op.kind != "view" for value in node.outputs}
        stays = _views_of_parameters(moved, work)
        moved_set = set(moved)
        main = tuple(node for node in graph.nodes if node not in moved_set or node in stays)
        wanted = {v for node in main for v in node.values} | set(graph.outputs)
        results = tuple(value for node in moved if node not in stays for value in node.outputs if value in wanted)
        if not results:
            return graph
        return _split(graph, moved, main, results)


def _views_of_parameters(moved: list[Node], work: set[Value]) -> set[Node]:
    """Views that look at a parameter directly, through views only."""
    stays: set[Node] = set()
    views: set[Value] = set()
    for node in moved:
        if node.op.kind == "view" and not any(v in work for v in node.values):
            stays.add(node)
            views.update(node.outputs)
        elif node.op.kind == "view":
            work.update(node.outputs)
    return stays


def _split(graph: Graph, moved: list[Node], main: tuple[Node, ...], results: tuple[Value, ...]) -> Graph:
    needed: set[Value] = set(results)
    nodes: list[Node] = []
    for node in reversed(moved):
        if any(value in needed for value in node.outputs):
            nodes.append(node)
            needed.update(node.values)
    inputs = tuple(value for value in graph.inputs if value in needed)
    prepare = Graph(
        name=f"{graph.name}_prepare",
        inputs=inputs,
        nodes=tuple(reversed(nodes)),
        outputs=results,
        constants={value: data for value, data in graph.constants.items() if value in needed},
    )
    read = {v for node in main for v in node.values} | set(graph.outputs)
    constants = {value: data for value, data in graph.constants.items() if value in read}
    return replace(graph, nodes=main, constants=constants, prepare=Prepare(prepare, inputs, results))
