"""Convolutions of images of few channels that step over columns: what a filter sees of a line of pixels as channels.

The first layers of image models have three channels, of which threads would gather tap after tap. Where pixels of four
channels lie behind each other, `_TAPS` of them are `_DEPTH` neighbours, and each window begins at a multiple of 16
bytes: a view of the padded image, whose pixels overlap. TMA brings them as columns of pixels (PTX ISA, "Im2col mode").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views
from hidet.graph.types import TensorType
from hidet.operators.windows import per_axis, side_pairs
from hidet.passes.graph.assign_layout import channels_last_strides
from hidet.passes.rewriter import GraphRewriter
from hidet.target import gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

_CHANNELS, _TAPS = 4, 8
"""Of windows; channels and taps that are missing are zeros."""
_DEPTH = _CHANNELS * _TAPS
_EVEN = 2
"""Steps whose windows begin at multiples of 16 bytes are multiples of this."""


@dataclass(frozen=True)
class WindowsAsChannels:
    """Convolutions of at most four channels of 16-bit floats become ones of 32 channels, with one tap a line."""

    name: ClassVar[str] = "cuda-windows-as-channels"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; the same graph where TMA copies no pixels."""
        if not gpu_target(ctx.target).has("wgmma"):
            return graph
        return replace_results(graph, ctx, _has_few_channels, _convolved)


def _has_few_channels(node: Node) -> bool:
    """Whether a node is a convolution of images of few channels, with windows for all taps along a line."""
    if node.op.name != "conv" or node.attrs["groups"] != 1:
        return False
    image, weight, *_ = node.values
    if image.tensor.rank != 4 or image.tensor.dtype.nbytes != 2:
        return False
    channels, taps = image.tensor.shape[1], weight.tensor.shape[3]
    (_, step), (_, spread) = (per_axis("conv", what, node.attrs[what], 2, 1) for what in ("stride", "dilation"))
    is_narrow = isinstance(channels, int) and channels <= _CHANNELS and isinstance(taps, int) and 1 < taps <= _TAPS
    return is_narrow and step % _EVEN == 0 and spread == 1 and dims.prove_le(0, _right_pad(node)) is True


def _width(node: Node) -> dims.Dim:
    """Pixels of a padded line: those of all windows."""
    _, step = per_axis("conv", "stride", node.attrs["stride"], 2, 1)
    return (node.outputs[0].tensor.shape[3] - 1) * step + _TAPS


def _right_pad(node: Node) -> dims.Dim:
    image = node.values[0]
    _, (left, _) = side_pairs("conv", node.attrs["padding"], 2)
    return _width(node) - image.tensor.shape[3] - left


def _convolved(rewriter: GraphRewriter, node: Node, views: Views) -> Value:
    """conv(windows of the padded image, filters with as many channels)."""
    image, weight, *bias = node.values
    images, _, lines, _ = image.tensor.shape
    filters, _, taps, _ = weight.tensor.shape
    width = _width(node)
    (step, step_along), (spread, _) = (
        per_axis("conv", what, node.attrs[what], 2, 1) for what in ("stride", "dilation")
    )
    above_and_below, (left, _) = side_pairs("conv", node.attrs["padding"], 2)
    pixels = _padded(rewriter, node, image, width, left)
    rows = rewriter.emit("reshape", pixels, at=node, shape=(images, lines, width * _CHANNELS))
    windows = rewriter.emit("unfold", rows, at=node, axis=2, size=_DEPTH, step=step_along * _CHANNELS)
    seen = rewriter.emit("transpose", windows, at=node, perm=(0, 3, 1, 2))
    tapped = _padded(rewriter, node, weight, _TAPS, 0)
    lines_of_taps = rewriter.emit("reshape", tapped, at=node, shape=(filters, taps, 1, _DEPTH))
    deep = rewriter.emit("transpose", lines_of_taps, at=node, perm=(0, 3, 1, 2))
    attrs = {
        **node.attrs,
        "stride": (step, 1),
        "dilation": (spread, 1),
        "padding": (above_and_below, (0, 0)),
    }
    (made,) = rewriter.emit_all(node.op, [seen, deep, *bias], attrs, node, [node.outputs[0].tensor])
    return made


def _padded(rewriter: GraphRewriter, node: Node, value: Value, width: dims.Dim, left: int) -> Value:
    """[n, h, width, _CHANNELS] of a tensor [n, c, h, w], whose columns begin behind `left` columns of zeros."""
    count, channels, lines, columns = value.tensor.shape
    wanted = TensorType(value.tensor.dtype, (count, _CHANNELS, lines, width), None, value.tensor.device)
    wanted = wanted.with_strides(channels_last_strides(wanted))
    pads = [(0, 0), (0, _CHANNELS - channels), (0, 0), (left, width - columns - left)]
    attrs = {"pads": pads, "mode": "constant", "value": 0}
    (padded,) = rewriter.emit_all("pad", [value], attrs, node, [wanted])
    return rewriter.emit("transpose", padded, at=node, perm=(0, 2, 3, 1))
