"""Matrix products.

aten flattens batches: a linear layer on [b, s, k] comes as view, addmm, view, and a product of heads as expand, view,
bmm, view. Here the views are looked through, so that core sees one `linear` or `matmul` on the shapes of the model;
weights are read as they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.dims import DimExpr
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.graph.types import same_shape
from hidet.torch.emitter import Operand, TorchEmitter
from hidet.torch.mapping.elementwise import arithmetic


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.mm.default": _mm,
        "aten.addmm.default": _addmm,
        "aten.bmm.default": _bmm,
        "aten.baddbmm.default": _baddbmm,
        "aten.linear.default": _linear,
        "aten.matmul.default": _matmul,
        "aten.mv.default": _mv,
        "aten.addmv.default": _addmv,
        "aten.dot.default": _dot,
        "aten.vdot.default": _dot,
    }


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def as_stored(e: TorchEmitter, matrix: Value) -> tuple[Value, bool]:
    """The matrices as they lie in memory, and whether `matrix` is their transpose."""
    node = e.made_by(matrix, "transpose")
    rank = matrix.tensor.rank
    if node is not None and node.attrs["perm"][-2] == rank - 1:
        return e.transpose(matrix, _swapped(rank)), True
    return matrix, False


def _before_merging(e: TorchEmitter, x: Value, kept: int) -> Value:
    """The value whose leading axes a reshape merged to give `x`, keeping the last `kept`; else `x`."""
    node = e.made_by(x, "reshape")
    if node is not None:
        (source,) = node.values
        merges = source.tensor.rank > x.tensor.rank
        if merges and same_shape(source.tensor.shape[-kept:], x.tensor.shape[-kept:]):
            return source
    return x


def _rows_times_matrix(e: TorchEmitter, x: Value, matrix: Value, bias: Value | None) -> Value:
    """x[..., k] @ matrix[k, n] + bias[n]."""
    weight, is_transposed = as_stored(e, matrix)
    if is_transposed:
        return e.emit("linear", x, weight, bias)
    product = e.emit("matmul", x, matrix)
    return product if bias is None else e.emit("add", product, bias)


def _mm(e: TorchEmitter, a: Value, b: Value) -> Value:
    rows = _before_merging(e, a, kept=1)
    return e.reshape(_rows_times_matrix(e, rows, b, None), e.result.shape)


def _addmm(e: TorchEmitter, c: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    if alpha == 1 and beta == 1 and c.tensor.rank == 1 and same_shape(c.tensor.shape, b.tensor.shape[-1:]):
        rows = _before_merging(e, a, kept=1)
        return e.reshape(_rows_times_matrix(e, rows, b, c), e.result.shape)
    return _scaled_sum(e, c, _mm(e, a, b), beta, alpha)


def _scaled_sum(e: TorchEmitter, c: Value, product: Value, beta: Number | DimExpr, alpha: Number | DimExpr) -> Value:
    """beta * c + alpha * product; with beta 0 the values of c do not matter, not even NaN."""
    if alpha != 1:
        product = arithmetic(e, "mul", product, alpha)
    if isinstance(beta, DimExpr):
        c, beta = arithmetic(e, "mul", c, beta), 1
    return product if beta == 0 else arithmetic(e, "add", product, c, alpha=beta)


def _bmm(e: TorchEmitter, a: Value, b: Value) -> Value:
    left, right = _before_merging(e, a, kept=2), _before_merging(e, b, kept=2)
    if not same_shape(left.tensor.shape[:-2], right.tensor.shape[:-2]):
        left, right = a, b
    return e.reshape(multiply(e, left, right), e.result.shape)


def multiply(e: TorchEmitter, a: Value, b: Value, **attrs: Any) -> Value:
    """a[..., m, k] @ b[..., k, n] with numpy's broadcasting of leading axes. attrs: more of those of `matmul`."""
    left, trans_a = as_stored(e, a)
    right, trans_b = as_stored(e, b)
    return e.emit("matmul", left, right, trans_a=trans_a, trans_b=trans_b, **attrs)


def _baddbmm(e: TorchEmitter, c: Value, a: Value, b: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    return _scaled_sum(e, c, _bmm(e, a, b), beta, alpha)


def _linear(e: TorchEmitter, x: Value, weight: Value, bias: Value | None = None) -> Value:
    return e.emit("linear", x, weight, bias)


def _matmul(e: TorchEmitter, a: Value, b: Value) -> Value:
    left, right = a, b
    if a.tensor.rank == 1:
        left = e.unsqueeze(a, (0,))
    if b.tensor.rank == 1:
        right = e.unsqueeze(b, (1,))
    if b.tensor.rank == 2:
        product = _rows_times_matrix(e, left, right, None)
    else:
        product = multiply(e, left, right)
    return e.reshape(product, e.result.shape)


def _mv(e: TorchEmitter, matrix: Value, vector: Value) -> Value:
    return e.emit("mv", matrix, vector)


def _addmv(e: TorchEmitter, c: Operand, matrix: Value, vector: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    return _scaled_sum(e, e.operand(c, e.result.dtype), _mv(e, matrix, vector), beta, alpha)


def _dot(e: TorchEmitter, a: Value, b: Value) -> Value:
    return e.emit("dot", a, b)
