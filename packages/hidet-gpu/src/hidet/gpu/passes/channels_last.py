"""Convolutions read channels-last images and filters, with enough channels for wide copies.

Most images do already (`assign-layout`); those that come from the caller, and filters, are copied. Copies of filters
are made once, because `split-prepare` moves them out of the call. Few channels of 16-bit floats are padded with zeros:
copies in the background have at least 8 bytes that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.gpu.passes.replace import repeated, replace_results
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.storage import Views, layout_of
from hidet.graph.types import TensorType
from hidet.passes.graph.assign_layout import channels_last_strides
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext

# Channels of 16-bit floats: as they are if they are few, else a multiple of 16 bytes.
_FEW, _MULTIPLE = 4, 8


@dataclass(frozen=True)
class ChannelsLast:
    """Channels-last copies of images and filters that lie otherwise, before convolutions that are matrix products."""

    name: ClassVar[str] = "gpu-channels-last"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order; convolutions of the same image share its copy."""
        made: dict[tuple[Value, int], Value] = {}

        def of_copies(rewriter: GraphRewriter, node: Node, views: Views) -> Value | None:
            inputs = list(node.inputs)
            for position, is_ready in enumerate((_is_image_ready, _is_filter_ready)):
                value = inputs[position]
                assert value is not None
                type_ = layout_of(value, views)
                missing = _missing(node, type_)
                if missing or not is_ready(type_):
                    if (value, missing) not in made:
                        made[value, missing] = _copy(rewriter, value, missing, node)
                    inputs[position] = made[value, missing]
            return None if inputs == list(node.inputs) else repeated(rewriter, node, inputs)

        return replace_results(graph, ctx, lambda node: node.op.name == "conv" and is_product(node), of_copies)


def is_product(node: Node) -> bool:
    """Whether a group has channels enough to be multiplied as a matrix."""
    weight = node.inputs[1]
    assert weight is not None
    channels = weight.tensor.shape[1]
    return node.attrs["groups"] == 1 or (isinstance(channels, int) and channels * weight.tensor.dtype.nbytes % 16 == 0)


def lacks_channels(node: Node, type_: TensorType) -> bool:
    """Whether channels of zeros are added to an image of this type."""
    return _missing(node, type_) > 0


def _missing(node: Node, type_: TensorType) -> int:
    """Channels of zeros to be added."""
    channels = type_.shape[1]
    if node.attrs["groups"] != 1 or type_.dtype.nbytes != 2 or not isinstance(channels, int):
        return 0
    return _FEW - channels if channels <= _FEW else -channels % _MULTIPLE


def _is_image_ready(type_: TensorType) -> bool:
    """Whether the channels of a position are neighbours."""
    return type_.shape[1] == 1 or type_.element_strides[1] == 1


def _is_filter_ready(type_: TensorType) -> bool:
    """Whether a filter is one row of memory: position after position, the channels of each next to each other."""
    given = zip(type_.shape[1:], type_.element_strides[1:], channels_last_strides(type_)[1:], strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in given)


def _copy(rewriter: GraphRewriter, value: Value, missing: int, node: Node) -> Value:
    """The tensor with its channels innermost, `missing` channels of zeros behind its own."""
    type_ = value.tensor
    shape = (type_.shape[0], type_.shape[1] + missing, *type_.shape[2:])
    wanted = TensorType(type_.dtype, shape, None, type_.device)
    wanted = wanted.with_strides(channels_last_strides(wanted))
    if not missing:
        return rewriter.copy(value, wanted, node)
    pads = [(0, missing if axis == 1 else 0) for axis in range(type_.rank)]
    (padded,) = rewriter.emit_all("pad", [value], {"pads": pads, "mode": "constant", "value": 0}, node, [wanted])
    return padded
