"""Losses, forward."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("NegativeLogLikelihoodLoss", 12): negative_log_likelihood,
        ("SoftmaxCrossEntropyLoss", 12): _softmax_cross_entropy,
    }


def negative_log_likelihood(
    e: Emitter,
    scores: Value,
    target: Value,
    weight: Value | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Value:
    """-scores[n, target[n, ...], ...] * weight[target], those with target `ignore_index` left out.

    scores: [n, classes, ...]; target: integers [n, ...]; the mean divides by the sum of the weights.
    """
    dtype = scores.tensor.dtype
    index = e.cast(target, dtypes.i64)
    nothing = e.constant(0, dtype)
    is_ignored = None
    if ignore_index is not None:
        is_ignored = e.emit("equal", index, e.constant(ignore_index, dtypes.i64))
        index = e.emit("where", is_ignored, e.constant(0, dtypes.i64), index)
    chosen = e.emit("squeeze", e.emit("gather", scores, e.unsqueeze(index, (1,)), axis=1, wraps=False), axes=(1,))
    loss = e.emit("neg", chosen)
    share = (
        None
        if weight is None
        else e.reshape(
            e.emit("index_select", weight, e.emit("reshape", index, shape=(-1,)), axis=0), index.tensor.shape
        )
    )
    if is_ignored is not None:
        kept = e.constant(1, dtype) if share is None else share
        share = e.emit("where", is_ignored, nothing, kept)
        # Scores of what is left out do not matter, not even NaN.
        loss = e.emit("where", is_ignored, nothing, loss)
    if share is not None:
        loss = e.emit("mul", loss, share)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return e.emit("sum", loss)
    if reduction != "mean":
        raise UnsupportedOp(f"{e.operator}: reduction is {reduction!r}, expected 'none', 'sum' or 'mean'")
    return e.emit("mean", loss) if share is None else e.emit("div", e.emit("sum", loss), e.emit("sum", share))


def _softmax_cross_entropy(
    e: Emitter,
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> tuple[Value, Value]:
    """The loss, and the logarithms of the probabilities."""
    if scores.tensor.rank < 2:
        raise ImportFailed(f"SoftmaxCrossEntropyLoss takes scores [n, classes, ...], got {scores.type}")
    logarithms = e.emit("log_softmax", scores, axis=1)
    loss = negative_log_likelihood(e, logarithms, labels, weights, reduction=reduction, ignore_index=ignore_index)
    return loss, logarithms
