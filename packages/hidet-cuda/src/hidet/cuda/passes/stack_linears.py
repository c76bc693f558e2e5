"""Linears of the same rows become one, as those that make queries, keys and values of a model's activations.

Each of them alone has too few tiles for the device, and reads the rows again. Their weights stay where they lie: a
kernel multiplies with one after the other, and each result is a part of the rows of one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.cuda.schedules.product_tiles import STACKED_ROWS
from hidet.fusion.fuse import foreign_rule_for
from hidet.gpu.schedules.product import ALIGN
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.types import same_shape
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

_MOST = 4
"""Linears that become one: a kernel takes a tensor map of each weight, and results are kept until all were read."""


@dataclass(frozen=True)
class StackLinears:
    """Joins linears of 16-bit floats with weights of the caller's whose results nothing element-wise follows, which
    their own kernels would compute."""

    name: ClassVar[str] = "cuda-stack-linears"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk to find them, in graph order, and one to replace them."""
        if not ctx.option("cuda.matrix_units"):
            return graph
        stacks = _stacks(graph, ctx)
        if not stacks:
            return graph
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        made: dict[Node, Value] = {}
        for node in graph.nodes:
            if node in stacks:
                made.update(zip(stacks[node], _stacked(rewriter, stacks[node]), strict=True))
            if node in made:
                rewriter.substitute(node.outputs[0], made[node])
            else:
                rewriter.keep(node)
        return rewriter.finish()


def _stacks(graph: Graph, ctx: CompileContext) -> dict[Node, Sequence[Node]]:
    """Linears that become one, by the first of them."""
    written = {graph.inputs[number] for number, _ in graph.mutates}
    stored = {*graph.parameters, *graph.constants} - written
    table, outputs = readers(graph), set(graph.outputs)
    alike: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        if node.op.name != "linear" or node.outputs[0] in outputs or not stored.issuperset(node.values[1:]):
            continue
        if _can_be_stacked(node) and not _is_finished(node.outputs[0], table.get(node.outputs[0], ())):
            x, weight, *bias = node.inputs
            assert x is not None and weight is not None
            key = (x, weight.tensor.element_strides, bias[:1] in ([], [None]), tuple(node.attrs.items()))
            alike.setdefault(key, []).append(node)
    parts = [nodes[at : at + _MOST] for nodes in alike.values() for at in range(0, len(nodes), _MOST)]
    return {part[0]: part for part in parts if len(part) > 1 and foreign_rule_for(part[0], ctx) is None}


def _can_be_stacked(node: Node) -> bool:
    """Whether tiles of any kernel lie within a node's weight or another one, whose rows are aligned."""
    _, weight = node.values[:2]
    rows, columns = weight.tensor.shape
    if weight.tensor.dtype not in (dtypes.f16, dtypes.bf16) or dims.divisibility(rows) % STACKED_ROWS:
        return False
    return columns != 0 and dims.divisibility(columns) * weight.tensor.dtype.nbytes % ALIGN == 0


def _is_finished(result: Value, by: Sequence[Node]) -> bool:
    """Whether the only reader of a result computes each element from one of it."""
    if len(by) != 1 or by[0].op.kind != "compute" or len(by[0].outputs) != 1:
        return False
    return same_shape(by[0].outputs[0].tensor.shape, result.tensor.shape)


def _stacked(rewriter: GraphRewriter, nodes: Sequence[Node]) -> list[Value]:
    """What stands for the result of each node."""
    first = nodes[0]
    weights, biases = ([node.inputs[number] for node in nodes if len(node.inputs) > number] for number in (1, 2))
    given = [bias for bias in biases if bias is not None]
    bias = rewriter.emit("concat", *given, at=first, axis=0) if given else None
    x, weight, *others = first.inputs[0], *weights
    whole = rewriter.emit("stacked_linear", x, weight, bias, *others, at=first, **first.attrs)
    shape = whole.tensor.shape
    ends = accumulate((node.outputs[0].tensor.shape[-1] for node in nodes), initial=0)
    return [
        rewriter.emit(
            "slice",
            whole,
            at=node,
            starts=(*[0] * (len(shape) - 1), start),
            stops=(*shape[:-1], stop),
        )
        for node, (start, stop) in zip(nodes, pairwise(ends), strict=True)
    ]
