"""Attention of packed sequences (`torch.nn.attention.varlen.varlen_attn`).

What torch calls for it is private, and its arguments differ from version to version: they are told by their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch import compat
from hidet.torch.emitter import TorchEmitter

_NAME = "torch_attn._varlen_attn.default"


_ARGUMENTS = frozenset(
    {
        *("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k", "is_causal", "scale", "window_size"),
        *("enable_gqa", "num_splits"),
    }
)


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {_NAME: _varlen_attn}


def _varlen_attn(e: TorchEmitter, *args: Any, **kwargs: Any) -> tuple[Value | None, ...]:
    schema = compat.operators_of((_NAME,))[_NAME]._schema
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    unknown = [name for name, x in given.items() if name not in _ARGUMENTS and x is not None]
    if unknown:
        raise UnsupportedOp(f"attention of packed sequences with {unknown[0]}")
    return _attention(e, **{name: x for name, x in given.items() if name in _ARGUMENTS})


def _attention(
    e: TorchEmitter,
    query: Value,
    key: Value,
    value: Value,
    cu_seq_q: Value,
    cu_seq_k: Value | None,
    max_q: Dim,
    max_k: Dim,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Sequence[int] | None = None,
    enable_gqa: bool = False,
    num_splits: int | None = None,
) -> tuple[Value | None, ...]:
    """Output, log-sum-exp and the state of random numbers, which nothing draws.

    enable_gqa allows what numbers of heads say themselves. num_splits=1 promises that no other sequence changes a
    digit: on a GPU the sizes of the batch choose the kernel.
    """
    if cu_seq_k is None:
        raise UnsupportedOp("attention of packed sequences without cu_seq_k")
    if num_splits is not None and (num_splits != 1 or e.device != "cpu"):
        raise UnsupportedOp(f"attention of packed sequences with num_splits={num_splits}")
    operands = (query, key, value, cu_seq_q, cu_seq_k)
    window = (-1, -1) if window_size is None else tuple(window_size)
    attrs = {"max_q": max_q, "max_k": max_k, "scale": scale, "is_causal": is_causal, "window": window}
    state = e.emit("full", shape=(2,), value=0, dtype=dtypes.u64) if e.is_read(2) else None
    if not e.is_read(1):
        return e.emit("varlen_attention", *operands, **attrs), None, state
    result, logarithms = e.emit_all("varlen_attention_with_logsumexp", operands, attrs)
    # The backward pass of torch's kernels takes exponents less these: a row without keys has +inf there.
    infinite = e.constant(math.inf, logarithms.tensor.dtype)
    logarithms = e.emit("where", e.emit("isneginf", logarithms), infinite, logarithms)
    return result, e.cast(logarithms, dtypes.f32), state
