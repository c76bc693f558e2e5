"""Convolutions of images of few channels that step over columns: what a filter sees of a line of pixels as channels.

The first layers of image models have three channels, of which threads would gather tap after tap. Where pixels of four
channels lie behind each other, those of a filter's line are neighbours, and each window begins at a multiple of 16
bytes: a view of the padded image, whose pixels overlap. TMA brings them as columns of pixels (PTX ISA, "Im2col mode"),
with zeros behind the last tap, because filters have a whole number of steps of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views
from hidet.graph.types import TensorType
from hidet.operators.windows import Windows, windows_of
from hidet.passes.graph.assign_layout import channels_last_strides
from hidet.passes.rewriter import GraphRewriter
from hidet.target import gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

_CHANNELS = 4
"""Of pixels, zeros behind those of the image."""
_DEPTH = 32
"""Channels of filters: of 16-bit floats, what a step of a kernel multiplies at least."""
_EVEN = 2
"""Steps whose windows begin at multiples of 16 bytes are multiples of this, and so are lengths of lines."""
_MOST_LINES = 64
"""Lines from one end of a filter to the other, as tensor maps have room for (PTX ISA, "Im2col mode")."""


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
    channels, (lines, taps) = image.tensor.shape[1], weight.tensor.shape[2:]
    if not (isinstance(channels, int) and isinstance(lines, int) and isinstance(taps, int)):
        return False
    windows = _windows(node)
    (_, step), (apart, spread), (above_and_below, _) = windows.strides, windows.dilations, windows.pads
    fits = channels <= _CHANNELS and 1 < taps <= _DEPTH // _CHANNELS and lines * apart <= _MOST_LINES
    is_near = max(above_and_below) <= lines * apart
    return fits and is_near and step % _EVEN == 0 and spread == 1 and dims.prove_le(0, _right_pad(node)) is True


def _windows(node: Node) -> Windows:
    """Those of a convolution of images."""
    image, weight, *_ = node.values
    window = (node.attrs[what] for what in ("stride", "padding", "dilation"))
    return windows_of("conv", image.tensor.shape, weight.tensor.shape[2:], *window)


def _width(node: Node) -> dims.Dim:
    """Pixels of a padded line: those of all windows, and one more where that is odd."""
    _, step = _windows(node).strides
    taps = node.values[1].tensor.shape[3]
    assert isinstance(taps, int)
    return (node.outputs[0].tensor.shape[3] - 1) * step + taps + taps % _EVEN


def _right_pad(node: Node) -> dims.Dim:
    image = node.values[0]
    _, (left, _) = _windows(node).pads
    return _width(node) - image.tensor.shape[3] - left


def _convolved(rewriter: GraphRewriter, node: Node, views: Views) -> Value:
    """The convolution of windows of the padded image, with filters of `_DEPTH` channels."""
    image, weight, *bias = node.values
    images, channels, lines, _ = image.tensor.shape
    filters, _, down, along = weight.tensor.shape
    width, dtype = _width(node), image.tensor.dtype
    given = _windows(node)
    (step, step_along), (spread, _), (above_and_below, (left, _)) = given.strides, given.dilations, given.pads
    assert isinstance(channels, int) and isinstance(along, int)
    more = (0, _CHANNELS - channels)
    wanted = TensorType(dtype, (images, _CHANNELS, lines, width), None, image.tensor.device)
    pads = [(0, 0), more, (0, 0), (left, _right_pad(node))]
    pixels = _padded(rewriter, node, image, wanted, pads)
    in_lines = rewriter.emit("transpose", pixels, at=node, perm=(0, 2, 3, 1))
    rows = rewriter.emit("reshape", in_lines, at=node, shape=(images, lines, width * _CHANNELS))
    windows = rewriter.emit("unfold", rows, at=node, axis=2, size=along * _CHANNELS, step=step_along * _CHANNELS)
    seen = rewriter.emit("transpose", windows, at=node, perm=(0, 3, 1, 2))
    wanted = TensorType(dtype, (filters, _CHANNELS, down, _DEPTH // _CHANNELS), None, weight.tensor.device)
    taps = _padded(rewriter, node, weight, wanted, [(0, 0), more, (0, 0), (0, _DEPTH // _CHANNELS - along)])
    in_taps = rewriter.emit("transpose", taps, at=node, perm=(0, 2, 3, 1))
    deep = rewriter.emit("reshape", in_taps, at=node, shape=(filters, down, 1, _DEPTH))
    turned = rewriter.emit("transpose", deep, at=node, perm=(0, 3, 1, 2))
    attrs = {"stride": (step, 1), "dilation": (spread, 1), "padding": (above_and_below, (0, 0))}
    inputs = [seen, turned, *bias]
    (made,) = rewriter.emit_all("conv_padded_channels", inputs, attrs, node, [node.outputs[0].tensor])
    return made


def _padded(
    rewriter: GraphRewriter, node: Node, value: Value, wanted: TensorType, pads: Sequence[tuple[dims.Dim, dims.Dim]]
) -> Value:
    """A tensor with zeros around it, its channels innermost."""
    wanted = wanted.with_strides(channels_last_strides(wanted))
    (padded,) = rewriter.emit_all("pad", [value], {"pads": pads, "mode": "constant", "value": 0}, node, [wanted])
    return padded
