"""Products by cuBLAS's lightweight interface, cublasLt, by each of the algorithms that it proposes (cuBLAS Library,
"cublasLt API"): the peer of products, where torch takes the first one that cuBLAS proposes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

_WORKSPACE_BYTES = 64 << 20
_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}
"""cudaDataType_t."""
_COMPUTE_F32, _COMPUTE_F64, _COMPUTE_TF32 = 68, 70, 77
"""cublasComputeType_t."""
_TRANSPOSED_A, _TRANSPOSED_B = 3, 4
"""cublasLtMatmulDescAttributes_t."""
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
"""cublasLtMatrixLayoutAttribute_t."""
_MOST_WORKSPACE = 1
"""cublasLtMatmulPreferenceAttributes_t."""


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def _library() -> Any:
    """That of torch, which has loaded it."""
    return ctypes.CDLL(f"libcublasLt.so.{str(torch.version.cuda).partition('.')[0]}")


@cache
def _handle() -> c_void_p:
    handle = c_void_p()
    _call("cublasLtCreate", byref(handle))
    return handle


@cache
def _workspace() -> Tensor:
    return torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} ends with status {status}")


def products(a: Tensor, b: Tensor, order: str, *, is_tf32: bool, most: int) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Functions that multiply matrices like `a` and `b`, by one proposed algorithm each, the first one first.

    a, b: [..., m, k] and [..., k, n] as they lie in memory, row-major, with one axis of a batch at most. order: whether
    each lies so (N) or transposed (T). most: algorithms that are asked for. RuntimeError for what cuBLAS refuses.
    """
    left, right = (a if order[0] == "N" else a.mT), (b if order[1] == "N" else b.mT)
    described, sizes = c_void_p(), (*a.shape[:-2], left.shape[-2], right.shape[-1])
    compute = _COMPUTE_F64 if a.dtype is torch.float64 else _COMPUTE_TF32 if is_tf32 else _COMPUTE_F32
    is_wide = a.dtype is torch.float64
    _call("cublasLtMatmulDescCreate", byref(described), compute, _TYPES[torch.float64 if is_wide else torch.float32])
    # cuBLAS counts along columns: to it, what lies in memory is transposed, and the result is that of (b a).
    for attribute, turn in ((_TRANSPOSED_A, order[1]), (_TRANSPOSED_B, order[0])):
        _call("cublasLtMatmulDescSetAttribute", described, attribute, byref(c_int(turn == "T")), c_size_t(4))
    layouts = [_layout(shape, a.dtype) for shape in (b.shape, a.shape, sizes)]
    preference = c_void_p()
    _call("cublasLtMatmulPreferenceCreate", byref(preference))
    limit = c_uint64(_WORKSPACE_BYTES)
    _call("cublasLtMatmulPreferenceSetAttribute", preference, _MOST_WORKSPACE, byref(limit), c_size_t(8))
    found, count = (_Proposal * most)(), c_int()
    both = (layouts[2], layouts[2])
    _call(
        "cublasLtMatmulAlgoGetHeuristic",
        *(_handle(), described, layouts[0], layouts[1], *both, preference, most, found, byref(count)),
    )
    scalar = ctypes.c_double if is_wide else c_float
    one, zero = scalar(1), scalar(0)

    def by(proposal: _Proposal) -> Callable[[Tensor, Tensor], Tensor]:
        def multiply(x: Tensor, y: Tensor) -> Tensor:
            result = torch.empty(sizes, dtype=x.dtype, device=x.device)
            place, stream = c_void_p(result.data_ptr()), c_void_p(torch.cuda.current_stream().cuda_stream)
            operands = (c_void_p(y.data_ptr()), layouts[0], c_void_p(x.data_ptr()), layouts[1])
            space = (c_void_p(_workspace().data_ptr()), c_size_t(_WORKSPACE_BYTES), stream)
            _call(
                "cublasLtMatmul",
                *(_handle(), described, byref(one), *operands, byref(zero)),
                *(place, layouts[2], place, layouts[2], byref(proposal, 0), *space),
            )
            return result

        return multiply

    return [by(proposal) for proposal in found[: count.value] if proposal.state == 0]


def _layout(shape: Sequence[int], dtype: torch.dtype) -> c_void_p:
    """A matrix, or some, whose rows cuBLAS takes for columns."""
    *batch, rows, columns = shape
    layout = c_void_p()
    _call(
        "cublasLtMatrixLayoutCreate",
        *(byref(layout), _TYPES[dtype], c_uint64(columns), c_uint64(rows), c_int64(columns)),
    )
    if batch:
        _call("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_COUNT, byref(c_int(batch[0])), c_size_t(4))
        offset = c_int64(rows * columns)
        _call("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_OFFSET, byref(offset), c_size_t(8))
    return layout
