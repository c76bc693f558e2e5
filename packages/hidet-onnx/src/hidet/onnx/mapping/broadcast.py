"""Broadcasting of the first versions of ONNX: one-way, and only where an attribute asks for it."""

from __future__ import annotations

from hidet.errors import ImportFailed
from hidet.frontend import Emitter
from hidet.graph import Value


def legacy_operands(e: Emitter, a: Value, b: Value, broadcast: int, axis: int | None) -> tuple[Value, Value]:
    """The operands of a binary operator before version 7 as ones that numpy's rule broadcasts.

    With `broadcast`, the axes of `b` are those of `a` from `axis` on; None aligns them right. ImportFailed when shapes
    differ and `broadcast` is 0.
    """
    if not broadcast and len(a.tensor.shape) != len(b.tensor.shape):
        raise ImportFailed(
            f"{e.operator} of shapes {list(map(str, a.tensor.shape))} and {list(map(str, b.tensor.shape))} "
            "broadcasts, but its attribute `broadcast` is 0"
        )
    if axis is None or not b.tensor.rank:
        return a, b
    trailing = a.tensor.rank - b.tensor.rank - axis % a.tensor.rank
    if trailing < 0:
        raise ImportFailed(f"{e.operator}: axis {axis} leaves no room for the axes of the second operand")
    return a, e.unsqueeze(b, tuple(range(b.tensor.rank, b.tensor.rank + trailing)))
