"""Large products read matrices whose leading dimension is a multiple of 16 bytes; others are copied with padding.

Rows that start anywhere are read element by element, which takes longer than the products themselves; TMA
does not read them at all. A copy with room behind each row costs one pass over the matrix, and none in the call where
it is a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dims, dtypes
from hidet.cuda.schedules.tiling import (
    TILES,
    WARP_SPECIALIZED_TILES,
    choose_tiling,
    copy_cycles,
    cycles,
    with_bytes_along_k,
)
from hidet.dims import Dim
from hidet.gpu.passes.replace import repeated, replace_results
from hidet.gpu.schedules.product import ALIGN
from hidet.gpu.schedules.strides import strides_with_room
from hidet.gpu.schedules.tiling import Extents
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.graph.split_prepare import may_be_prepared
from hidet.passes.rewriter import GraphRewriter
from hidet.target import GpuTarget, gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

_PRODUCTS = ("matmul", "linear")


@dataclass(frozen=True)
class PadLeadingDim:
    """Copies operands of products whose rows lie at other distances, where copies and product take less time together
    than the product alone, by the model that chooses tiles. Sizes have to be known."""

    name: ClassVar[str] = "cuda-pad-leading-dim"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; products of the same matrix share its copy."""
        target, steady = gpu_target(ctx.target), _steady(graph)
        copies: dict[Value, Value] = {}

        def of_copies(rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
            types = {value: layout_of(value, views) for value in node.inputs[:2] if value is not None}
            padded = _padded(types)
            if not padded or not _pays(node, types, padded, steady, target):
                return None
            for value, type_ in padded.items():
                if value not in copies:
                    copies[value] = rewriter.copy(value, type_, node)
            return repeated(rewriter, node, [copies[value] if value in padded else value for value in node.inputs])

        return replace_results(graph, ctx, lambda node: node.op.name in _PRODUCTS, of_copies)


def _steady(graph: Graph) -> set[Value]:
    """Values that do not change from call to call: constants, and what is prepared of them."""
    steady = set(graph.constants)
    for node in graph.nodes:
        if steady.issuperset(node.values) and may_be_prepared(node):
            steady.update(node.outputs)
    return steady


def _padded(types: dict[Value, TensorType]) -> dict[Value, TensorType]:
    """The operands whose rows start anywhere, with room behind each row; none where not all can be copied so."""
    found: dict[Value, TensorType] = {}
    for value, type_ in types.items():
        if type_.rank < 2 or not all(isinstance(size, int) for size in (*type_.shape, *type_.element_strides)):
            return {}
        extents: list[int] = [size for size in type_.shape if isinstance(size, int)]
        strides: list[int] = [size for size in type_.element_strides if isinstance(size, int)]
        fast = next((axis for axis in (type_.rank - 1, type_.rank - 2) if strides[axis] == 1), None)
        if fast is None or 0 in extents:
            return {}
        others = [axis for axis in range(type_.rank) if axis != fast]
        nbytes = type_.dtype.nbytes
        if any(strides[axis] * nbytes % ALIGN for axis in others if extents[axis] > 1):
            found[value] = type_.with_strides(strides_with_room(extents, fast, ALIGN // nbytes))
    return found


def _pays(
    node: Node,
    types: dict[Value, TensorType],
    padded: dict[Value, TensorType],
    steady: set[Value],
    target: GpuTarget,
) -> bool:
    """Whether products of aligned rows are faster by more than the copies of what changes from call to call take."""
    left, right = node.inputs[:2]
    assert left is not None and right is not None
    dtype, result = left.tensor.dtype, node.outputs[0].tensor.shape
    is_tf32 = dtype is dtypes.f32 and node.attrs["fp32_precision"] == "tf32"
    if dtype not in dtypes.FLOATS_OF_16_BITS and not is_tf32:
        return False
    *batch, m, n = result
    if right.tensor.rank == 2:
        # Rows of all matrices are multiplied with one.
        m, batch = dims.product([*batch, m]), []
    k = left.tensor.shape[-2 if node.attrs.get("trans_a", False) else -1]
    extents = Extents(_number(dims.product(batch)), _number(m), _number(n), _number(k), dtype.nbytes)
    along_k = not node.attrs.get("trans_a", False) and (node.op.name == "linear" or node.attrs["trans_b"])
    is_warp_specialized = target.has("wgmma") and (not is_tf32 or along_k)

    def fastest(tiles: Sequence[MatmulTiles], specialized: bool, extents: Extents = extents) -> float:
        choices = [with_bytes_along_k(one, dtype.nbytes) for one in tiles]
        tiling = choose_tiling(extents, choices, target, is_warp_specialized=specialized)
        return cycles(extents, tiling, target, specialized)

    moved = [_number(dims.product(types[value].shape)) * dtype.nbytes for value in padded if value not in steady]
    aligned = fastest(WARP_SPECIALIZED_TILES if is_warp_specialized else TILES, is_warp_specialized) + sum(
        map(copy_cycles, moved)
    )
    return aligned < fastest(TILES, False, replace(extents, copied="shifted"))


def _number(size: Dim) -> int:
    assert isinstance(size, int)
    return size
