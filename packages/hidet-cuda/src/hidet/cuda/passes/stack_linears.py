"""Linears of the same rows become one, as those that make queries, keys and values of a model's activations.

Each of them alone has too few tiles for the device, and reads the rows again. Their weights stay where they lie: a
kernel multiplies with one after the other, and each result is a part of the rows of one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.cuda.passes.linears import is_by_aligned_weight
from hidet.cuda.schedules.product_tiles import STACKED_ROWS
from hidet.fusion.fuse import foreign_rule_for
from hidet.fusion.group import reads_identically
from hidet.graph.graph import Graph, Node, Value, readers, stored_values
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

_MOST = 4
"""Linears that become one: a kernel takes a tensor map of each weight, and results are kept until all were read."""

_WITHOUT_BIAS = 2
"""Operands of a linear that has no bias."""


@dataclass(frozen=True)
class StackLinears:
    """Joins linears of 16-bit floats with weights of the caller's that follow each other, with no other product,
    attention or norm between them: what is needed later may be computed beside other kernels. Nothing element-wise
    follows their results, which their own kernels would compute."""

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
    stored, table, outputs = stored_values(graph), readers(graph), set(graph.outputs)
    found: list[Sequence[Node]] = []
    anchors = [node for node in graph.nodes if node.op.kind == "anchor"]
    for _, run in groupby(anchors, lambda node: (node.op.name == "linear", node.inputs[0])):
        alike: dict[Hashable, list[Node]] = {}
        for node in run:
            result = node.outputs[0]
            can_be_stacked = is_by_aligned_weight(node, stored) and _has_whole_tiles(node)
            if can_be_stacked and result not in outputs and not _is_finished(result, table.get(result, ())):
                key = (node.values[1].tensor.element_strides, tuple(node.attrs.items()))
                alike.setdefault(key, []).append(node)
        found += [nodes[at : at + _MOST] for nodes in alike.values() for at in range(0, len(nodes), _MOST)]
    return {part[0]: part for part in found if len(part) > 1 and foreign_rule_for(part[0], ctx) is None}


def _has_whole_tiles(linear: Node) -> bool:
    """Whether tiles of any kernel lie within a linear's weight or another one."""
    return dims.divisibility(linear.values[1].tensor.shape[0]) % STACKED_ROWS == 0


def _is_finished(result: Value, by: Sequence[Node]) -> bool:
    """Whether the only reader of a result computes each element from the one at its place."""
    if len(by) != 1 or by[0].op.kind != "compute" or len(by[0].outputs) != 1:
        return False
    definition = by[0].definition
    return definition is not None and definition.is_injective and reads_identically(by[0], result)


def _bias_of(rewriter: GraphRewriter, node: Node) -> Value:
    """The bias of a node, zeros where it has none."""
    *_, last = node.values
    if len(node.values) > _WITHOUT_BIAS:
        return last
    result = node.outputs[0].tensor
    return rewriter.emit("full", at=node, shape=result.shape[-1:], value=0, dtype=result.dtype)


def _stacked(rewriter: GraphRewriter, nodes: Sequence[Node]) -> list[Value]:
    """What stands for the result of each node."""
    first = nodes[0]
    x, weight, *others = first.inputs[0], *(node.inputs[1] for node in nodes)
    bias = None
    if any(len(node.values) > _WITHOUT_BIAS for node in nodes):
        bias = rewriter.emit("concat", *[_bias_of(rewriter, node) for node in nodes], at=first, axis=0)
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
