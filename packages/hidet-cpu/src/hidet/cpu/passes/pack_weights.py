"""Packing of weights: products and convolutions by constant weights become operators that read packed ones.

The packing is a node of its own, on constants alone, so that `split-prepare` moves it out of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hidet.cpu.schedules.gemm_tile import tile_shape
from hidet.cpu.target import CpuTarget
from hidet.dims import DimExpr
from hidet.fusion.fuse import foreign_rule_for
from hidet.graph.attrs import Attrs
from hidet.graph.builder import node_meaning
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.operator import OperatorSpec, is_foreign
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.compute.definition import Definition
    from hidet.context import CompileContext
    from hidet.cpu.target import CpuTarget


@dataclass(frozen=True)
class PackWeights:
    """Rewrites operators whose weight depends on constants alone and has a fixed shape."""

    name: ClassVar[str] = "cpu-pack-weights"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; two readers of a weight share its packed form."""
        assert isinstance(ctx.target, CpuTarget)
        steady = set(graph.constants)
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        packed: dict[tuple[object, ...], Value] = {}
        known: dict[int, _Rewrite | None] = {}
        for node in graph.nodes:
            if steady.issuperset(node.values) and _is_steady(node):
                steady.update(node.outputs)
            weight = node.inputs[1] if node.op.name in _REWRITES else None
            if weight is None or weight not in steady:
                rewriter.keep(node)
                continue
            # Equal nodes have the same definition.
            if id(node.definition) not in known:
                known[id(node.definition)] = _rewrite(node, weight, ctx)
            rewrite = known[id(node.definition)]
            if rewrite is None:
                rewriter.keep(node)
                continue
            key = (weight, *rewrite.key)
            if key not in packed:
                plan = rewrite.plan
                packed[key] = rewriter.emit(plan.pack, weight, at=node, like=rewrite.packing, **plan.pack_attrs)
                rewrite.packing = rewriter.producer(packed[key])
                rewriter.changed = True
            inputs = (node.inputs[0], packed[key], *node.inputs[2:])
            if rewrite.definition is None:
                rewrite.definition, _ = node_meaning(rewrite.spec, inputs, rewrite.attrs)
            rewriter.keep(Node(rewrite.spec, inputs, rewrite.attrs, node.outputs, node.loc, rewrite.definition))
        return rewriter.finish()


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to rewrite one node: the packing operator and the packed operator, with their attributes."""

    pack: str
    pack_attrs: Mapping[str, Any]
    op: str
    attrs: Mapping[str, Any]


@dataclass(slots=True)
class _Rewrite:
    """What equal nodes become. packing, definition: the first packing node and the packed operator's definition."""

    plan: _Plan
    key: tuple[object, ...]
    spec: OperatorSpec
    attrs: Attrs
    packing: Node | None = None
    definition: Definition | None = None


def _is_steady(node: Node) -> bool:
    """Whether a node on steady values gives the same result at every call."""
    return not (node.op.is_random or node.op.has_effect or is_foreign(node))


def _rewrite(node: Node, weight: Value, ctx: CompileContext) -> _Rewrite | None:
    """None where a weight has no fixed shape, and where a rule of another plug-in takes the operator as it is."""
    if any(isinstance(extent, DimExpr) for extent in weight.tensor.shape) or foreign_rule_for(node, ctx) is not None:
        return None
    lanes = tile_shape(cast("CpuTarget", ctx.target), arithmetic_dtype(weight.tensor.dtype)).lanes
    plan = _REWRITES[node.op.name](node, weight, lanes)
    if plan is None:
        return None
    spec = ctx.registry.operators[plan.op]
    return _Rewrite(plan, (plan.pack, *plan.pack_attrs.items()), spec, spec.attrs(plan.attrs))


def _linear(node: Node, weight: Value, lanes: int) -> _Plan | None:
    attrs = {"lanes": lanes, "transposed": False}
    return _Plan("cpu.pack_matrix", attrs, "cpu.linear_packed", {"columns": weight.tensor.shape[0]})


def _matmul(node: Node, weight: Value, lanes: int) -> _Plan | None:
    if weight.tensor.rank != 2 or node.attrs["trans_a"] or node.attrs["dtype"] is not None:
        return None
    is_row_major = not node.attrs["trans_b"]
    attrs = {"lanes": lanes, "transposed": is_row_major}
    columns = weight.tensor.shape[1 if is_row_major else 0]
    return _Plan("cpu.pack_matrix", attrs, "cpu.linear_packed", {"columns": columns})


def _conv(node: Node, weight: Value, lanes: int) -> _Plan | None:
    image = node.inputs[0]
    assert image is not None
    channels = image.tensor.shape[1]
    if node.attrs["groups"] == channels == weight.tensor.shape[0] and weight.tensor.rank <= 4 and channels != 1:
        window = {name: node.attrs[name] for name in ("stride", "padding", "dilation")}
        return _Plan("cpu.pack_depthwise", {}, "cpu.depthwise_packed", window)
    attrs = {"lanes": lanes, "groups": node.attrs["groups"], "transposed": False}
    window = {name: node.attrs[name] for name in ("stride", "padding", "dilation")}
    return _Plan("cpu.pack_filters", attrs, "cpu.conv_packed", {"filters": weight.tensor.shape[0], **window})


def _conv_transpose(node: Node, weight: Value, lanes: int) -> _Plan | None:
    groups = node.attrs["groups"]
    attrs = {"lanes": lanes, "groups": groups, "transposed": True}
    window = {name: node.attrs[name] for name in ("stride", "padding", "dilation", "output_padding")}
    filters = weight.tensor.shape[1] * groups
    return _Plan("cpu.pack_filters", attrs, "cpu.conv_transpose_packed", {"filters": filters, **window})


_REWRITES: dict[str, Callable[[Node, Value, int], _Plan | None]] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
