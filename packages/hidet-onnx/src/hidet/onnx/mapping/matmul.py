"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.errors import ImportFailed
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {("MatMul", 1): matmul, ("Gemm", 1): _legacy_gemm, ("Gemm", 7): _gemm}


def matmul(e: Emitter, a: Value, b: Value) -> Value:
    """numpy.matmul: an operand with one axis is a row on the left, a column on the right, and that axis disappears."""
    left, right = a.tensor.rank == 1, b.tensor.rank == 1
    if not a.tensor.rank or not b.tensor.rank:
        raise ImportFailed(f"MatMul takes operands with axes, got {a.type} and {b.type}")
    result = e.emit("matmul", e.unsqueeze(a, (0,)) if left else a, e.unsqueeze(b, (1,)) if right else b)
    gone = ([result.tensor.rank - 2] if left else []) + ([result.tensor.rank - 1] if right else [])
    shape = [extent for axis, extent in enumerate(result.tensor.shape) if axis not in gone]
    return e.reshape(result, shape) if gone else result


def _gemm(
    e: Emitter,
    a: Value,
    b: Value,
    c: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    dtype = a.tensor.dtype
    product = e.emit("matmul", a, b, trans_a=bool(transA), trans_b=bool(transB))
    if alpha != 1.0:
        product = e.emit("mul", product, e.constant(_number(alpha, dtype.is_float), dtype))
    if c is None or beta == 0.0:
        return product
    addend = c if beta == 1.0 else e.emit("mul", c, e.constant(_number(beta, dtype.is_float), dtype))
    return e.emit("add", product, addend)


def _number(value: float, is_float: bool) -> float | int:
    if not is_float and not value.is_integer():
        raise ImportFailed(f"Gemm of integers with a factor of {value}")
    return value if is_float else int(value)


def _legacy_gemm(
    e: Emitter,
    a: Value,
    b: Value,
    c: Value,
    broadcast: int = 0,
    **more: Any,
) -> Value:
    """Version 1 broadcasts only where `broadcast` says so, by the same rule."""
    return _gemm(e, a, b, c, **more)
