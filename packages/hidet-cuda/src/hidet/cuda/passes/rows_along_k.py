"""Products of 8-bit numbers read rows along k that start at multiples of 16 bytes, as matrix units take them.

Matrices that lie otherwise are copied. 8-bit floats become f16, which holds all of them, where a device has no matrix
units for them and where the factors' types differ; with scales of blocks, f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.cuda.schedules.product_tiles import has_units_of, has_whole_blocks
from hidet.gpu.passes.replace import repeated, replace_results
from hidet.gpu.schedules.product import ALIGN, FACTORS_OF_8_BITS, known_align
from hidet.gpu.schedules.strides import strides_with_room
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter
from hidet.target import GpuTarget, gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class RowsAlongK:
    """Copies or widens operands of products of 8-bit numbers whose result has another type."""

    name: ClassVar[str] = "cuda-rows-along-k"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        has_units = bool(ctx.option("cuda.matrix_units"))
        made = partial(_of_rows, gpu_target(ctx.target), has_units)
        return replace_results(graph, ctx, _is_product_of_bytes, made)


def _is_product_of_bytes(node: Node) -> bool:
    return node.op.name == "block_scaled_matmul" or (
        node.op.name == "matmul"
        and node.attrs["dtype"] is not None
        and any(value.tensor.dtype in FACTORS_OF_8_BITS for value in node.values)
    )


def _of_rows(target: GpuTarget, has_units: bool, rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
    operands = node.values[:2]
    factors = {value.tensor.dtype for value in operands}
    is_multiplied = has_units and len(factors) == 1 and has_units_of(next(iter(factors)), target)
    if node.op.name == "block_scaled_matmul" and not (is_multiplied and has_whole_blocks(node)):
        (made,) = rewriter.decompose(node)
        return made
    if not has_units:
        return None
    if not is_multiplied:
        wide = dtypes.f16 if all(dtype.is_float for dtype in factors) else None
        if wide is None or not factors <= {*FACTORS_OF_8_BITS, wide}:
            return None
        return repeated(rewriter, node, [rewriter.emit("cast", value, at=node, dtype=wide) for value in operands])
    axes = (-2 if node.attrs.get("trans_a", False) else -1, -1 if node.attrs["trans_b"] else -2)
    types = [_type_along(layout_of(value, views), axis) for value, axis in zip(operands, axes, strict=True)]
    if types == [None, None]:
        return None
    copies = [
        value if type_ is None else rewriter.copy(value, type_, node)
        for value, type_ in zip(operands, types, strict=True)
    ]
    return repeated(rewriter, node, [*copies, *node.inputs[2:]])


def _type_along(type_: TensorType, axis: int) -> TensorType | None:
    """A type with room behind rows along an axis up to multiples of 16 bytes; None where a tensor lies like that."""
    strides = type_.element_strides
    axis %= type_.rank
    others = [stride for at, stride in enumerate(strides) if at != axis and type_.shape[at] != 1]
    if strides[axis] == 1 and known_align(type_.dtype.nbytes, *others) == ALIGN:
        return None
    return type_.with_strides(strides_with_room(type_.shape, axis, ALIGN // type_.dtype.nbytes))
