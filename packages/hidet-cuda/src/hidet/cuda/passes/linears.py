"""Which linears passes may put together."""

from __future__ import annotations

from hidet import dims, dtypes
from hidet.gpu.schedules.product import ALIGN
from hidet.graph.graph import Node, Value


def is_by_aligned_weight(node: Node | None, stored: frozenset[Value]) -> bool:
    """Whether a node is a linear of 16-bit floats by a weight, and a bias, that no step writes, whose rows begin at
    multiples of 16 bytes, as matrix units read them. stored: what no step writes."""
    if node is None or node.op.name != "linear" or not stored.issuperset(node.values[1:]):
        return False
    weight = node.values[1].tensor
    columns = weight.shape[1]
    is_aligned = columns != 0 and dims.divisibility(columns) * weight.dtype.nbytes % ALIGN == 0
    return weight.dtype in dtypes.FLOATS_OF_16_BITS and is_aligned
