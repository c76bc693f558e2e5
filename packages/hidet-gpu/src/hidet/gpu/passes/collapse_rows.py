"""Batch axes collapse into rows: results of products with one matrix lie as the rows that they are computed from.

Attention modules of some libraries see their batch as axis 1 of what lies in memory batch by batch. A product whose
result lies as its operand does is one matrix; in logical order it would be a small one for each position. Products of
many matrices lie as a transpose sees them that alone reads them: heads next to each other, in attention that is written
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.gpu.schedules.operands import rows_of
from hidet.gpu.schedules.strides import single_stride
from hidet.graph.builder import rebuild_node
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.storage import Place, Views, add_view, find_views, layout_of
from hidet.graph.types import TensorType, order_of_strides, same_shape, strides_of_order

if TYPE_CHECKING:
    from hidet.context import CompileContext

_ANY_STRIDES = frozenset({"attention", "softmax", "normalization"})
"""Families of operators besides element-wise ones that read rows wherever they lie."""


@dataclass(frozen=True)
class CollapseRows:
    """Gives results of linear layers and their like, and what is element-wise on them, the order of axes of their rows,
    and other products that of the transpose that reads them.

    Results of the graph keep their order, and so does what somebody reads whose schedule wants rows at a regular
    distance, or through a view that would become a copy.
    """

    name: ClassVar[str] = "gpu-collapse-rows"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order, and one more for each set of values that have to keep their order."""
        if not any(node.op.family == "matmul" for node in graph.nodes):
            return graph
        views = find_views(graph)
        kept = {*graph.outputs, *_read_otherwise(graph, views)}
        while True:
            changed = _reordered(graph, kept)
            lost = views.keys() - find_views(changed).keys()
            if changed is graph or not lost:
                return changed
            kept |= {views[value].root for value in lost}


def _read_otherwise(graph: Graph, views: Views) -> Iterator[Value]:
    """Values whose memory is read by operators that do not take any strides."""
    for node in graph.nodes:
        is_injective = node.definition is not None and node.definition.is_injective
        if not is_injective and node.op.family not in _ANY_STRIDES:
            rows = rows_of(node)
            yield from (views[value].root if value in views else value for value in node.values if value is not rows)


def _reordered(graph: Graph, kept: set[Value]) -> Graph:
    """The graph with results in the order of rows, but those in `kept`."""
    mapping: dict[Value, Value] = {}
    views: dict[Value, Place] = {}
    orders: dict[Value, tuple[int, ...]] = {}
    nodes: list[Node] = []
    table = readers(graph)
    for node in graph.nodes:
        new = rebuild_node(node, mapping)
        order = _order(new, views, orders) or _seen_order(node, table)
        if order is not None and node.outputs[0] not in kept:
            old = new.outputs[0]
            moved = Value(old.name, old.tensor.with_strides(strides_of_order(old.tensor.shape, order)))
            mapping[node.outputs[0]], orders[moved] = moved, order
            new = Node(node.op, new.inputs, node.attrs, (moved,), node.loc, node.definition)
        nodes.append(new)
        add_view(new, views)
    return graph.with_nodes(tuple(nodes)) if mapping else graph


def _order(node: Node, views: Views, orders: Mapping[Value, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The order of axes that a node's result is to get; None for the one it has."""
    rows = rows_of(node)
    if rows is not None:
        return _row_order(layout_of(rows, views))
    is_injective = node.definition is not None and node.definition.is_injective
    if not is_injective or node.op.kind == "view" or len(node.outputs) != 1:
        return None
    shape = node.outputs[0].tensor.shape
    return next((orders[v] for v in node.values if v in orders and same_shape(v.tensor.shape, shape)), None)


def _seen_order(node: Node, table: Mapping[Value, Sequence[Node]]) -> tuple[int, ...] | None:
    """The order in which a transpose sees the result of a product of many matrices, if nobody else reads it."""
    if node.op.name != "matmul" or rows_of(node) is not None:
        return None
    result = node.outputs[0]
    (*others, reader) = table.get(result, [None])
    if others or reader is None or reader.op.name != "transpose":
        return None
    last = result.tensor.rank - 1
    perm = tuple(axis % (last + 1) for axis in reader.attrs["perm"])
    return perm if perm[-1] == last else None


def _row_order(type_: TensorType) -> tuple[int, ...] | None:
    """The axes of a tensor as they lie in memory, the last one innermost, if its rows are walked as one in that order
    and not in the logical one."""
    shape, strides = type_.shape[:-1], type_.element_strides[:-1]
    order = order_of_strides(strides)
    if order is None or single_stride(shape, strides) is not None:
        return None
    if single_stride([shape[axis] for axis in order], [strides[axis] for axis in order]) is None:
        return None
    return (*order, len(shape))
