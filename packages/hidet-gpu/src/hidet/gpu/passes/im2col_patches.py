"""im2col for convolutions of patches that lie side by side: products of a matrix with a patch a row.

Vision transformers see an image that way: the patches of few channels, which `gpu-channels-last` would pad and
gather, are copied to rows once, and multiplied by boxes of them. Filters need no copy: a filter is a row as it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.gpu.passes.channels_last import lacks_channels
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import TensorType
from hidet.operators.windows import per_axis, side_pairs
from hidet.passes.graph.assign_layout import is_channels_last
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class Im2colPatches:
    """Copies the patches of such convolutions to rows, where their channels are too few for wide copies."""

    name: ClassVar[str] = "gpu-im2col-patches"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        return replace_results(graph, ctx, _sees_patches, _product_of_few_channels)


def _product_of_few_channels(rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
    image = node.inputs[0]
    assert image is not None
    return _product(rewriter, node, image) if lacks_channels(node, layout_of(image, views)) else None


def _sees_patches(node: Node) -> bool:
    """Whether a node is a convolution whose filters see each element of an image once, and whose result lies pixel by
    pixel."""
    if node.op.name != "conv":
        return False
    image, weight, result = node.inputs[0], node.inputs[1], node.outputs[0].tensor
    assert image is not None and weight is not None
    taps = weight.tensor.shape[2:]
    count = len(taps)
    steps, spreads = (per_axis("conv", what, node.attrs[what], count, 1) for what in ("stride", "dilation"))
    pads = side_pairs("conv", node.attrs["padding"], count)
    return (
        node.attrs["groups"] == 1
        and steps == taps
        and set(spreads) == {1}
        and not any(side for pair in pads for side in pair)
        and is_channels_last(result)
        and all(
            dims.prove_equal(size, places * tap) is True
            for size, places, tap in zip(image.tensor.shape[2:], result.shape[2:], taps, strict=True)
        )
    )


def _product(rewriter: GraphRewriter, node: Node, image: Value) -> Value:
    """linear(patches, filters) with the channels of the result as axis 1."""
    weight, result = node.inputs[1], node.outputs[0].tensor
    assert weight is not None
    images, channels, *_ = image.tensor.shape
    filters, _, *taps = weight.tensor.shape
    places, count = result.shape[2:], len(taps)
    apart = [size for pair in zip(places, taps, strict=True) for size in pair]
    split = rewriter.emit("reshape", image, at=node, shape=(images, channels, *apart))
    perm = (0, *range(2, 2 + 2 * count, 2), 1, *range(3, 3 + 2 * count, 2))
    transposed = rewriter.emit("transpose", split, at=node, perm=perm)
    shape = tuple(transposed.tensor.shape)
    patches = rewriter.copy(
        transposed, TensorType(transposed.tensor.dtype, shape, None, transposed.tensor.device), node
    )
    depth = dims.product([channels, *taps])
    rows = rewriter.emit("reshape", patches, at=node, shape=(images, *places, depth))
    matrix = rewriter.emit("reshape", weight, at=node, shape=(filters, depth))
    product = rewriter.emit("linear", rows, matrix, *node.inputs[2:], at=node)
    return rewriter.emit("transpose", product, at=node, perm=(0, count + 1, *range(1, count + 1)))
