"""Patch embeddings as matrix products: convolutions whose windows do not overlap and cover the image.

Such a convolution (ViT, Mixer, CLIP) multiplies each patch once. Its images have so few channels that they would be
copied anyway, channels last; as rows of a matrix, a patch lies as a filter does, so that filters need no other order,
and are packed, or read in place, as those of any product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.graph.graph import Graph, Node
from hidet.operators.windows import windows_of
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

_MOST_CHANNELS = 12
"""Images with more channels are read where they lie, channels last."""
_FEWEST_TAPS = 4
"""Smaller windows are no patches."""


@dataclass(frozen=True)
class MultiplyPatches:
    """Rewrites `conv` to `linear` on patches; its result lies channels last."""

    name: ClassVar[str] = "cpu-multiply-patches"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        rewriter = GraphRewriter(graph, ctx.registry.operators)
        for node in graph.nodes:
            if node.op.name == "conv" and _takes_patches(node):
                _multiply(rewriter, node)
            else:
                rewriter.keep(node)
        return rewriter.finish()


def _takes_patches(node: Node) -> bool:
    """Whether windows lie side by side, all over the image."""
    image, weight = node.inputs[:2]
    assert image is not None and weight is not None
    channels, kernel = image.tensor.shape[1], weight.tensor.shape[2:]
    if node.attrs["groups"] != 1 or not isinstance(channels, int) or channels > _MOST_CHANNELS:
        return False
    placed = (node.attrs[name] for name in ("stride", "padding", "dilation"))
    windows = windows_of("conv", image.tensor.shape, kernel, *placed)
    if windows.strides != kernel or windows.strides[-1] < _FEWEST_TAPS:
        return False
    covered = zip(windows.space, windows.strides, strict=True)
    is_tiled = all(dims.divisibility(extent) % taps == 0 for extent, taps in covered)
    return is_tiled and set(windows.dilations) == {1} and set(windows.pads) == {(0, 0)}


def _multiply(rewriter: GraphRewriter, node: Node) -> None:
    """[n, c, h * p, w * q] as rows [n * h * w, c * p * q], by filters [o, c * p * q], as [n, o, h, w]."""
    image, weight, bias = (*node.inputs, None)[:3]
    assert image is not None and weight is not None
    batch, channels, *space = image.tensor.shape
    filters, _, *kernel = weight.tensor.shape
    counts = [dims.floordiv(extent, taps) for extent, taps in zip(space, kernel, strict=True)]
    depth, rank = dims.product([channels, *kernel]), len(space)
    cut = tuple(extent for pair in zip(counts, kernel, strict=True) for extent in pair)
    split = rewriter.emit("reshape", image, at=node, shape=(batch, channels, *cut))
    order = (0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
    turned = rewriter.emit("transpose", split, at=node, perm=order)
    rows = rewriter.emit("reshape", turned, at=node, shape=(dims.product([batch, *counts]), depth))
    columns = rewriter.emit("reshape", weight, at=node, shape=(filters, depth))
    precision = node.attrs["fp32_precision"]
    product = rewriter.emit("linear", rows, columns, bias, at=node, fp32_precision=precision)
    result = rewriter.emit("reshape", product, at=node, shape=(batch, *counts, filters))
    rewriter.substitute(
        node.outputs[0], rewriter.emit("transpose", result, at=node, perm=(0, rank + 1, *range(1, rank + 1)))
    )
