"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.dtypes import DType
from hidet.frontend import Emitter, Handler, einsum
from hidet.graph import Value


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BatchMatMul": _batched,
        "BatchMatMulV2": _batched,
        "BatchMatMulV3": _batched,
        "Einsum": lambda e, *inputs, equation: einsum(e, equation, inputs),
        "MatMul": _plain,
    }


def _plain(e: Emitter, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False, **_: Any) -> Value:
    return e.emit("matmul", a, b, trans_a=transpose_a, trans_b=transpose_b)


def _batched(
    e: Emitter, a: Value, b: Value, adj_x: bool = False, adj_y: bool = False, Tout: DType | None = None, **_: Any
) -> Value:
    """Operands of narrow integers are widened to the type of the result."""
    if Tout is not None:
        a, b = e.cast(a, Tout), e.cast(b, Tout)
    return e.emit("matmul", a, b, trans_a=adj_x, trans_b=adj_y)
