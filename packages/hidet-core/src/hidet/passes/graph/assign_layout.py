"""Layout assignment: which memory order each tensor gets. Logical shapes never change.

Convolutions want their channels innermost, because a pixel's channels are then one vector. Their results and whatever
is computed element by element, pooled or normalised from them keep that order; graph inputs and outputs keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType, strides_of_order

if TYPE_CHECKING:
    from hidet.context import CompileContext

# operators whose result gets channels-last strides whatever their input has
_PREFERS = frozenset({"conv", "conv_transpose", "cpu.conv_packed"})
# operators that take over the order of their first input although they are not element-wise
_FOLLOWS = frozenset(
    {
        "max_pool",
        "max_pool_with_indices",
        "avg_pool",
        "adaptive_avg_pool",
        "adaptive_max_pool",
        "lp_pool",
        "interpolate",
        "concat",
        "pad",
        "group_norm",
        "instance_norm",
        "batch_norm",
        "copy",
    }
)


@dataclass(frozen=True)
class AssignLayout:
    """Give channels-last strides (N, space, C in memory) to rank 3 to 5 values around convolutions."""

    name: ClassVar[str] = "assign-layout"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; a node whose output type changes is rebuilt around a new value."""
        if not ctx.target.prefers_channels_last or not any(n.op.name in _PREFERS for n in graph.nodes):
            return graph
        fixed = set(graph.outputs)
        mapping: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            inputs = tuple(None if v is None else mapping.get(v, v) for v in node.inputs)
            outputs = node.outputs
            if any(value not in fixed for value in outputs) and self._wants_channels_last(node, inputs):
                outputs = tuple(v if v in fixed else _channels_last(v) for v in outputs)
                mapping.update((old, new) for old, new in zip(node.outputs, outputs, strict=True) if old is not new)
            nodes.append(replace(node, inputs=inputs, outputs=outputs))
        return graph.with_nodes(tuple(nodes)) if mapping else graph

    @staticmethod
    def _wants_channels_last(node: Node, inputs: Sequence[Value | None]) -> bool:
        rank = node.outputs[0].tensor.rank if isinstance(node.outputs[0].type, TensorType) else 0
        if not 3 <= rank <= 5:
            return False
        if node.op.name in _PREFERS:
            return True
        if node.op.name in _FOLLOWS:
            return inputs[0] is not None and is_channels_last(inputs[0])
        definition = node.definition
        if node.op.kind != "compute" or definition is None or not definition.is_injective:
            return False
        shape = node.outputs[0].tensor.shape
        same = [v for v in inputs if v is not None and isinstance(v.type, TensorType) and v.tensor.shape == shape]
        return any(is_channels_last(v) for v in same)


def is_channels_last(value: Value) -> bool:
    """Whether a value has been given channels-last strides."""
    type_ = value.type
    return (
        isinstance(type_, TensorType)
        and type_.strides is not None
        and type_.rank >= 3
        and type_.strides == channels_last_strides(type_)
    )


def channels_last_strides(type_: TensorType) -> tuple[object, ...]:
    """Strides with axis 1 innermost."""
    return strides_of_order(type_.shape, (0, *range(2, type_.rank), 1))


def _channels_last(value: Value) -> Value:
    type_ = value.tensor
    return Value(value.name, type_.with_strides(strides_of_order(type_.shape, (0, *range(2, type_.rank), 1))))
