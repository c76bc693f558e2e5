"""Moving work on constants into the `prepare` graph, which runs once and for all.

Work on parameters stays: nothing proves that nobody has written to them since the call before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node, Prepare, Value
from hidet.graph.operator import is_foreign
from hidet.graph.storage import Place, add_view
from hidet.graph.symbols import depends_on_sizes
from hidet.graph.types import TensorType

if TYPE_CHECKING:
    from hidet.compute.definition import Definition
    from hidet.context import CompileContext


@dataclass(frozen=True)
class SplitPrepare:
    """Nodes that depend on constants alone leave the main graph.

    Views stay where they are read: they cost nothing there, while moving them would copy what they look at. So do nodes
    that make graph outputs, because prepared memory must not be handed out, and nodes without inputs, which fuse into
    their readers; prepare has its own copy of those it needs.
    """

    name: ClassVar[str] = "split-prepare"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order finds the nodes, one more what the main graph still reads of them."""
        if graph.prepare is not None:
            return graph
        steady = {value for value in graph.constants if isinstance(value.type, TensorType)}
        views: dict[Value, Place] = {}
        free: list[Node] = []
        moved: list[Node] = []
        stays: set[Node] = set()
        outputs = set(graph.outputs)
        # Equal nodes have the same definition.
        known: dict[Definition | None, bool] = {}
        for node in graph.nodes:
            if not steady.issuperset(node.values) or not outputs.isdisjoint(node.outputs):
                continue
            if node.definition is None or node.definition not in known:
                known[node.definition] = may_be_prepared(node)
            if not known[node.definition]:
                continue
            steady.update(node.outputs)
            if node.op.kind == "view":
                add_view(node, views)
            if not node.inputs:
                free.append(node)
                continue
            moved.append(node)
            if node.outputs[0] in views:
                stays.add(node)
        moved_set = set(moved) - stays
        main = tuple(node for node in graph.nodes if node not in moved_set)
        wanted = {v for node in main for v in node.values} | outputs
        results = tuple(value for node in moved if node not in stays for value in node.outputs if value in wanted)
        return _split(graph, [*free, *moved], main, results) if results else graph


def may_be_prepared(node: Node) -> bool:
    """Whether a node does the same at every call if its inputs are the same: prepare knows no sizes of a call."""
    if node.op.is_random or node.op.expands or (node.op.kind != "check" and is_foreign(node)):
        return False
    return not depends_on_sizes(node)


def _split(graph: Graph, candidates: Sequence[Node], main: tuple[Node, ...], results: tuple[Value, ...]) -> Graph:
    needed: set[Value] = set(results)
    nodes: list[Node] = []
    for node in reversed(candidates):
        if node.op.has_effect or not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.values)
    prepare = Graph(
        name=f"{graph.name}_prepare",
        inputs=(),
        nodes=tuple(reversed(nodes)),
        outputs=results,
        constants={value: data for value, data in graph.constants.items() if value in needed},
    )
    read = {v for node in main for v in node.values} | set(graph.outputs)
    constants = {value: data for value, data in graph.constants.items() if value in read}
    return replace(graph, nodes=main, constants=constants, prepare=Prepare(prepare, results))
