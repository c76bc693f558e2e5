"""Scans, sorting and searching."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from hidet import dtypes
from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import Operand, TorchEmitter, promote_operands


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.cumsum.default": _running("cumsum"),
        "aten.cumprod.default": _running("cumprod"),
        "aten.logcumsumexp.default": _running("logcumsumexp"),
        "aten.cummax.default": _cumulative_extreme("cummax"),
        "aten.cummin.default": _cumulative_extreme("cummin"),
        "aten.sort.default": _sort,
        "aten.sort.stable": _stable_sort,
        "aten.topk.default": _topk,
        "aten.kthvalue.default": _kthvalue,
        "aten.median.dim": _median,
        "aten.searchsorted.Tensor": _searchsorted,
        "aten.searchsorted.Scalar": _searchsorted,
        "aten.bucketize.Tensor": _bucketize,
        "aten.bucketize.Scalar": _bucketize,
    }


def _running(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
        wanted = e.result.dtype
        if x.tensor.rank == 0:
            return e.cast(x, wanted)
        return e.cast(e.emit(core, e.cast(x, wanted), axis=dim), wanted)

    return handle


def _cumulative_extreme(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: int) -> tuple[Value, ...]:
        if x.tensor.rank == 0:
            return x, e.constant(0, dtypes.i64)
        return e.emit_all(core, (x,), {"axis": dim})

    return handle


def _sort(e: TorchEmitter, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, ...]:
    return _sorted(e, x, dim, descending)


def _stable_sort(
    e: TorchEmitter, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, ...]:
    return _sorted(e, x, dim, descending)


def _sorted(e: TorchEmitter, x: Value, dim: int, descending: bool) -> tuple[Value, ...]:
    if x.tensor.rank == 0:
        return x, e.constant(0, dtypes.i64)
    return e.emit_all("sort", (x,), {"axis": dim, "descending": descending})


def _topk(
    e: TorchEmitter, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, ...]:
    if x.tensor.rank == 0:
        if k != 1:
            raise UnsupportedOp(f"the {k} largest elements of a tensor without axes")
        return x, e.constant(0, dtypes.i64)
    return e.emit_all("topk", (x,), {"k": k, "axis": dim, "largest": largest})


def _kthvalue(e: TorchEmitter, x: Value, k: Dim, dim: int = -1, keepdim: bool = False) -> tuple[Value, ...]:
    if x.tensor.rank == 0:
        return x, e.constant(0, dtypes.i64)
    return e.emit_all("kthvalue", (x,), {"k": k, "axis": dim, "keepdim": keepdim})


def _median(e: TorchEmitter, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, ...]:
    if x.tensor.rank == 0:
        return x, e.constant(0, dtypes.i64)
    return e.emit_all("median", (x,), {"axis": dim, "keepdim": keepdim})


def _searched(e: TorchEmitter, boundaries: Value, values: Operand, right: bool) -> Value:
    dtype = promote_operands(boundaries, values)
    found = e.emit("searchsorted", e.cast(boundaries, dtype), e.operand(values, dtype), right=right)
    return e.cast(found, e.result.dtype)


def _searchsorted(
    e: TorchEmitter,
    sorted_sequence: Value,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        sorted_sequence = e.emit("gather", sorted_sequence, sorter, axis=-1, wraps=False)
    return _searched(e, sorted_sequence, values, right or side == "right")


def _bucketize(
    e: TorchEmitter, values: Operand, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    return _searched(e, boundaries, values, right)
