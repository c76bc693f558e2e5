"""Giving every output memory of its own where sharing would hand out someone else's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import DimType, TensorType, is_host_value
from hidet.passes.graph.split_prepare import may_be_prepared
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class MaterializeOutputs:
    """Outputs that are copied:

    - one that is, or is a view of, an input, a constant or something computed from constants alone: the caller would
      get the memory of its own argument, or of what later calls read;
    - one that overwrites an input but is a view, shares memory with another output, or is laid out otherwise.

    Values on the host never change, so that sharing one goes unnoticed.

    Outputs that are views of one computed value keep sharing memory, as eager execution has it: `common-subexpr` leaves
    apart what the model computes twice and returns.
    """

    name: ClassVar[str] = "materialize-outputs"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Follow views from each output back to where its memory comes from."""
        roots, foreign = _roots(graph)
        overwritten = {output: graph.inputs[source] for source, output in graph.mutates}
        sharing: dict[Value, int] = {}
        for value in graph.outputs:
            sharing[roots.get(value, value)] = sharing.get(roots.get(value, value), 0) + 1
        layouts: list[TensorType | None] = []
        for position, value in enumerate(graph.outputs):
            target, root = overwritten.get(position), roots.get(value, value)
            if is_host_value(value.type) or isinstance(value.type, DimType):
                layouts.append(None)
            elif target is not None:
                fits = root is value and root not in foreign and sharing[root] == 1 and _same_layout(value, target)
                layouts.append(None if fits else target.tensor)
            else:
                layouts.append(value.tensor if root in foreign else None)
        return graph if layouts.count(None) == len(layouts) else _with_copies(graph, layouts, ctx)


def _with_copies(graph: Graph, layouts: Sequence[TensorType | None], ctx: CompileContext) -> Graph:
    """The graph with a copy, of this layout, in the place of each output that has one here."""
    rewriter = GraphRewriter(graph, ctx.registry.operators)
    for node in graph.nodes:
        rewriter.keep(node)
    last = graph.nodes[-1] if graph.nodes else None
    overwriting = {output for _, output in graph.mutates}
    copies: dict[Value, Value] = {}
    outputs: list[Value] = []
    for number, (value, layout) in enumerate(zip(graph.outputs, layouts, strict=True)):
        if layout is None:
            outputs.append(value)
        elif number in overwriting:
            outputs.append(rewriter.copy(value, layout, last))
        else:
            if value not in copies:
                copies[value] = rewriter.copy(value, layout, last)
            outputs.append(copies[value])
    return rewriter.finish(outputs)


def _roots(graph: Graph) -> tuple[dict[Value, Value], set[Value]]:
    """For results of views: whose memory they (may) lie in. And the values whose memory is not the caller's to keep."""
    roots: dict[Value, Value] = {}
    given = set(graph.constants)
    fixed = set(given)
    for node in graph.nodes:
        if node.op.kind == "view" and node.inputs[0] is not None:
            roots.update(dict.fromkeys(node.outputs, roots.get(node.inputs[0], node.inputs[0])))
        if fixed.issuperset(node.values):
            fixed.update(node.outputs)
    foreign: set[Value] = {*graph.inputs, *graph.constants}
    returned = set(graph.outputs)
    # Mostly all outputs depend on the call, and nothing has to be asked of the nodes on constants.
    if fixed.isdisjoint([roots.get(value, value) for value in returned]):
        return roots, foreign
    steady = set(given)
    for node in graph.nodes:
        if _is_prepared(node, steady, returned):
            steady.update(node.outputs)
            foreign.update(node.outputs)
    return roots, foreign


def _is_prepared(node: Node, steady: set[Value], returned: set[Value]) -> bool:
    """Whether `split-prepare` would move the node. It leaves the copies that this pass puts before outputs."""
    is_own_copy = node.op.name == "copy" and node.outputs[0] in returned
    # Most nodes are not steady, which is seen sooner than anything else.
    return steady.issuperset(node.values) and bool(node.inputs) and not is_own_copy and may_be_prepared(node)


def _same_layout(value: Value, target: Value) -> bool:
    return value.tensor.element_strides == target.tensor.element_strides
