"""Attention of few queries over keys that are put together of two parts, as a cache and what a step adds to it.

Each part is read where it lies, and no longer copied behind the other: attention over each, and the sum of both results
by the weights of their parts, which the logarithms of the sums of exponentials tell (as of splits of keys: Dao et al.,
"Flash-Decoding", 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet import dims
from hidet.dims import Dim
from hidet.gpu.passes.replace import replace_results
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.storage import Views
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.rewriter import GraphRewriter
from hidet.schedule.cost import extent_estimate

if TYPE_CHECKING:
    from hidet.context import CompileContext

_MOST_QUERIES = 16
"""Of a head: more are multiplied in tiles, of which each part would have some that are not full."""

Parts = tuple[tuple[Value, Value], tuple[Value, Value]]
"""The parts of keys and of values, in their order."""


@dataclass(frozen=True)
class AttentionOverParts:
    """Keys and values of fewer than `least_bytes` bytes are put together: two more kernels, for the second part and for
    the sum, take longer than to copy them. Where a call tells how many there are, they count as many as there may be:
    one graph serves short and long caches, and copies of long ones take longer than all else."""

    name: ClassVar[str] = "gpu-attention-over-parts"
    least_bytes: int = 16 << 20

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""

        def concerns(node: Node) -> bool:
            return _may_be_over_parts(node) and _bytes_of(node) >= self.least_bytes

        return replace_results(graph, ctx, concerns, _over_parts)


def _may_be_over_parts(node: Node) -> bool:
    """Whether a node is attention of few queries, all of which see all keys."""
    if node.op.name != "attention" or node.attrs["is_causal"]:
        return False
    q, *others = node.inputs
    has_mask = len(others) > 2 and others[2] is not None
    return q is not None and not has_mask and extent_estimate(q.tensor.shape[-2]) <= _MOST_QUERIES


def _bytes_of(node: Node) -> float:
    """Bytes of the keys and values of attention at most."""
    read = [value.tensor for value in node.inputs[1:3] if value is not None]
    return sum(_most_elements(tensor.shape) * tensor.dtype.nbytes for tensor in read)


def _most_elements(shape: Sequence[Dim]) -> float:
    extents = [dims.bounds(extent) for extent in shape]
    if any(most == 0 for _, most in extents):
        return 0
    return math.prod(math.inf if most is None else most for _, most in extents)


def _parts_of(rewriter: GraphRewriter, node: Node) -> Parts | None:
    """What the keys and the values are put together of for this node alone; None where they are not, where their parts
    differ in length, and where both may be empty."""
    keys, values = (_parts_along_rows(rewriter, node, value) for value in node.inputs[1:3])
    if keys is None or values is None:
        return None
    lengths = [(a.tensor.shape[-2], b.tensor.shape[-2]) for a, b in zip(keys, values, strict=True)]
    same = [dims.prove_equal(*pair) for pair in lengths]
    # Keys are as many as values: where some parts are as long as each other, so are the others.
    is_same = True in same and False not in same
    # Parts without a key have no weight, of which two would have none at all.
    has_keys = any(dims.prove_le(1, length) is True for length, _ in lengths)
    return (keys, values) if is_same and has_keys else None


def _parts_along_rows(rewriter: GraphRewriter, reader: Node, value: Value | None) -> tuple[Value, Value] | None:
    assert value is not None
    graph, node = rewriter.graph, rewriter.producer(rewriter.current(value))
    if node is None or node.op.name != "concat" or len(node.values) != 2:
        return None
    is_read_once = list(readers(graph)[value]) == [reader] and reader.inputs.count(value) == 1
    rank = value.tensor.rank
    if not is_read_once or value in graph.outputs or node.attrs["axis"] % rank != rank - 2:
        return None
    first, second = node.values
    return first, second


def _over_parts(rewriter: GraphRewriter, node: Node, _: Views) -> Value | None:
    """What stands for the result."""
    parts = _parts_of(rewriter, node)
    if parts is None:
        return None
    result = node.outputs[0].tensor
    shape = result.shape
    attrs = {**node.attrs, "dtype": arithmetic_dtype(result.dtype)}
    (first, of_first), (second, of_second) = (
        rewriter.emit_all("attention_with_logsumexp", [node.inputs[0], *part], attrs, node)
        for part in zip(*parts, strict=True)
    )
    # e ** a / (e ** a + e ** b), of any a and b that are not both -inf; of each element anew, which takes no time
    # beside the kernel that would compute it once.
    a, b = (
        rewriter.emit("expand", rewriter.emit("unsqueeze", of, at=node, axes=[of.tensor.rank]), at=node, shape=shape)
        for of in (of_first, of_second)
    )
    share = rewriter.emit("sigmoid", rewriter.emit("sub", a, b, at=node), at=node)
    away = rewriter.emit("mul", rewriter.emit("sub", first, second, at=node), share, at=node)
    total = rewriter.emit("add", second, away, at=node)
    return rewriter.emit("cast", total, at=node, dtype=result.dtype)
