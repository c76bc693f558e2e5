"""Attention, and the updates of its caches.

Whatever one fused operator can say becomes core's `attention`; soft caps, scores that are read and softmax in another
type are written out as products and a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hidet import dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.value_types import dtype_of


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Attention", 23): _attention,
        ("TensorScatter", 24): _tensor_scatter,
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where queries and keys lie.

    rows, length: how many there are. offset: how many keys come before the first query: a size, or one a batch entry as
    a tensor [batch, 1, 1, 1].
    """

    rows: Dim
    length: Dim
    offset: Dim | Value

    def query(self, e: Emitter) -> Value:
        """Positions of the queries among the keys: [rows, 1] or [batch, 1, rows, 1]."""
        rows = e.reshape(e.emit("arange", start=0, stop=self.rows, dtype=dtypes.i64), (self.rows, 1))
        offset = self.offset if isinstance(self.offset, Value) else e.size(self.offset)
        return e.emit("add", rows, offset)

    def key(self, e: Emitter) -> Value:
        """Positions of the keys: [length]."""
        return e.emit("arange", start=0, stop=self.length, dtype=dtypes.i64)


def _attention(
    e: Emitter,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    valid: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[Value | None, ...]:
    """Results: the output, all keys, all values, and the scores at the stage that `qk_matmul_output_mode` names."""
    _check(e, q, (past_key, past_value, valid), (q_num_heads, kv_num_heads), (left_window_size, right_window_size))
    is_packed = q.tensor.rank == 3
    if is_packed:
        q = _heads(e, q, q_num_heads)
        k, v = (_heads(e, x, kv_num_heads) for x in (k, v))
    past: Dim = 0
    if past_key is not None and past_value is not None:
        past = past_key.tensor.shape[2]
        k, v = (e.emit("concat", old, new, axis=2) for old, new in ((past_key, k), (past_value, v)))
    rows, length = q.tensor.shape[2], k.tensor.shape[2]
    offset = past if valid is None else _offsets(e, valid, rows)
    is_plain_causal = bool(is_causal) and offset == 0 and not isinstance(offset, Value)
    places = _Places(rows, length, offset)
    allowed = _allowed(e, places, bool(is_causal) and not is_plain_causal, left_window_size, right_window_size, valid)
    precision = None if softmax_precision is None else dtype_of(softmax_precision)
    wants_scores = e.is_read(3)
    is_fused = softcap == 0 and not wants_scores and precision in (None, dtypes.f32, q.tensor.dtype)
    if mask is not None:
        mask = _padded(e, mask, length)
    scores: Value | None = None
    if is_fused:
        bias = _combined(e, mask, allowed, q.tensor.dtype)
        y = e.emit("attention", q, k, v, bias, scale=scale, is_causal=is_plain_causal, enable_gqa=True)
    else:
        if is_plain_causal:
            allowed = _both(e, allowed, e.emit("less_equal", places.key(e), places.query(e)))
        bias = _combined(e, mask, allowed, q.tensor.dtype)
        y, scores = _written_out(e, q, k, v, bias, scale, softcap, precision, qk_matmul_output_mode)
    if is_packed:
        batch, heads, rows, width = y.tensor.shape
        y = e.reshape(e.transpose(y, (0, 2, 1, 3)), (batch, rows, heads * width))
    return y, k, v, scores


def _check(
    e: Emitter,
    q: Value,
    cache: tuple[Value | None, Value | None, Value | None],
    heads: tuple[int | None, int | None],
    window: tuple[int, int],
) -> None:
    past_key, past_value, valid = cache
    if (past_key is None) != (past_value is None):
        raise ImportFailed("Attention takes past_key and past_value together")
    if valid is not None and past_key is not None:
        raise ImportFailed("Attention takes either a past or nonpad_kv_seqlen")
    if q.tensor.rank not in (3, 4):
        raise ImportFailed(f"Attention takes queries with 3 or 4 axes, got {q.type}")
    if q.tensor.rank == 3 and None in heads:
        raise ImportFailed("Attention on 3 axes needs q_num_heads and kv_num_heads")
    if min(window) < -1:
        raise ImportFailed(f"Attention: window sizes {window}, expected -1 (no limit) or more")


def _heads(e: Emitter, x: Value, count: int | None) -> Value:
    """[batch, n, heads * width] as [batch, heads, n, width]."""
    assert count is not None
    batch, n, hidden = x.tensor.shape
    return e.transpose(e.reshape(x, (batch, n, count, hidden // count)), (0, 2, 1, 3))


def _offsets(e: Emitter, valid: Value, rows: Dim) -> Value:
    """How many keys come before the first query of each batch entry."""
    counts = e.cast(e.reshape(valid, (valid.tensor.shape[0], 1, 1, 1)), dtypes.i64)
    return e.emit("sub", counts, e.size(rows))


def _both(e: Emitter, a: Value | None, b: Value) -> Value:
    return b if a is None else e.emit("logical_and", a, b)


def _allowed(e: Emitter, places: _Places, is_causal: bool, left: int, right: int, valid: Value | None) -> Value | None:
    """Which keys the positions let each query read; None for all."""
    result: Value | None = None
    if is_causal:
        result = e.emit("less_equal", places.key(e), places.query(e))
    if left >= 0:
        first = e.emit("sub", places.query(e), e.constant(left, dtypes.i64))
        result = _both(e, result, e.emit("greater_equal", places.key(e), first))
    if right >= 0:
        last = e.emit("add", places.query(e), e.constant(right, dtypes.i64))
        result = _both(e, result, e.emit("less_equal", places.key(e), last))
    if valid is not None:
        counts = e.cast(e.reshape(valid, (valid.tensor.shape[0], 1, 1, 1)), dtypes.i64)
        result = _both(e, result, e.emit("less", places.key(e), counts))
    return result


def _padded(e: Emitter, mask: Value, length: Dim) -> Value:
    """A mask whose last axis may be shorter than the keys: those beyond are hidden."""
    have = mask.tensor.shape[-1]
    if not isinstance(have, int) or not isinstance(length, int) or have >= length:
        return mask
    pads = (*((0, 0),) * (mask.tensor.rank - 1), (0, length - have))
    return e.emit("pad", mask, pads=pads, value=0 if mask.tensor.dtype.is_bool else -math.inf)


def _combined(e: Emitter, mask: Value | None, allowed: Value | None, dtype: DType) -> Value | None:
    """One mask of both: bool where it can be, else floats to add."""
    if mask is None or allowed is None:
        return allowed if mask is None else mask
    if mask.tensor.dtype.is_bool:
        return e.emit("logical_and", mask, allowed)
    return e.emit("where", allowed, e.cast(mask, dtype), e.constant(-math.inf, dtype))


def _written_out(
    e: Emitter,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None,
    scale: float | None,
    softcap: float,
    precision: DType | None,
    mode: int,
) -> tuple[Value, Value]:
    """The output, and the scores of stage `mode`: 0 products, 1 after the soft cap, 2 with the mask, 3 weights."""
    if mode not in (0, 1, 2, 3):
        raise UnsupportedOp(f"Attention: qk_matmul_output_mode is {mode}, expected 0 to 3")
    dtype = q.tensor.dtype
    batch, heads, rows, width = q.tensor.shape
    groups, length = k.tensor.shape[1], k.tensor.shape[2]
    if scale is None:
        if not isinstance(width, int):
            raise UnsupportedOp(f"Attention over heads of symbolic width {width}")
        scale = 1 / math.sqrt(width)
    root = e.constant(math.sqrt(scale), dtype)
    # Query heads of a group are rows of one product with its key head.
    share = heads // groups
    grouped = e.reshape(e.emit("mul", q, root), (batch, groups, share * rows, width))
    scores = e.emit("matmul", grouped, e.emit("mul", k, root), trans_b=True)
    scores = e.reshape(scores, (batch, heads, rows, length))
    stages = [scores]
    if softcap:
        cap = e.constant(softcap, dtype)
        scores = e.emit("mul", e.emit("tanh", e.emit("div", scores, cap)), cap)
    stages.append(scores)
    hidden = e.constant(-math.inf, dtype)
    if bias is not None:
        is_bool = bias.tensor.dtype.is_bool
        scores = e.emit("where", bias, scores, hidden) if is_bool else e.emit("add", scores, e.cast(bias, dtype))
    stages.append(scores)
    weights = e.emit("softmax", e.cast(scores, dtype if precision is None else precision), axis=-1)
    weights = e.cast(weights, dtype)
    if bias is not None:
        # A row that may read nothing has NaN for weights, and gives 0.
        nothing = e.emit("equal", e.emit("amax", scores, axes=(-1,), keepdim=True), hidden)
        weights = e.emit("where", nothing, e.constant(0, dtype), weights)
    stages.append(weights)
    y = e.emit("matmul", e.reshape(weights, (batch, groups, share * rows, length)), v)
    return e.reshape(y, (batch, heads, rows, v.tensor.shape[3])), stages[mode]


def _tensor_scatter(
    e: Emitter, cache: Value, update: Value, start: Value | None = None, *, axis: int = -2, mode: str = "linear"
) -> Value:
    """`update` put into `cache` along an axis, from start[batch] on; "circular" goes on at the beginning."""
    rank = cache.tensor.rank
    place = axis % rank
    if place == 0:
        raise ImportFailed(f"TensorScatter along axis {axis}: axis 0 is the batch")
    if mode not in ("linear", "circular"):
        raise UnsupportedOp(f"TensorScatter: mode is {mode!r}, expected 'linear' or 'circular'")
    extent, count = cache.tensor.shape[place], update.tensor.shape[place]
    positions = e.emit("arange", start=0, stop=count, dtype=dtypes.i64)
    positions = e.reshape(positions, tuple(count if a == place else 1 for a in range(rank)))
    if start is not None:
        batch = start.tensor.shape[0]
        first = e.cast(e.reshape(start, (batch, *(1,) * (rank - 1))), dtypes.i64)
        positions = e.emit("add", positions, first)
    if mode == "circular":
        positions = e.emit("remainder", positions, e.size(extent))
    return e.emit("scatter", cache, e.expand(positions, update.tensor.shape), update, axis=place)
