"""Softmax, normalisations and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hidet import dtypes
from hidet.dims import Dim, prove_equal
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.operators.rules import arithmetic_dtype
from hidet.torch.emitter import TorchEmitter

Results = tuple[Value | None, ...]


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten._softmax.default": _softmax("softmax"),
        "aten._log_softmax.default": _softmax("log_softmax"),
        "aten.native_layer_norm.default": _layer_norm,
        "aten._fused_rms_norm.default": _fused_rms_norm,
        "aten.rms_norm.default": _rms_norm,
        "aten.native_group_norm.default": _group_norm,
        "aten._native_batch_norm_legit_no_training.default": _batch_norm,
        "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
        "aten._batch_norm_with_update_functional.default": _batch_norm_with_update,
        "aten._native_batch_norm_legit.no_stats": _batch_norm_no_stats,
        "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash_attention,
        "aten._scaled_dot_product_flash_attention.default": _cuda_flash_attention,
        "aten._scaled_dot_product_efficient_attention.default": _cuda_efficient_attention,
        "aten._scaled_dot_product_cudnn_attention.default": _cuda_efficient_attention,
        "aten.scaled_dot_product_attention.default": _attention,
        "hidet.scaled_dot_product_attention.default": _attention,
    }


def _softmax(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: int, half_to_float: bool) -> Value:
        return e.emit(core, e.cast(x, e.result.dtype), axis=dim)

    return handle


def _in_common_type(e: TorchEmitter, operands: Sequence[Value | None], build: Callable[..., Results]) -> Results:
    """`build` on operands converted to their widest type; its first result converted to that of the first operand."""
    given = [operand for operand in operands if operand is not None]
    dtype: DType = given[0].tensor.dtype
    for operand in given[1:]:
        dtype = dtypes.promote(dtype, operand.tensor.dtype)
    first, *others = build(*[None if operand is None else e.cast(operand, dtype) for operand in operands])
    assert first is not None
    return (e.cast(first, given[0].tensor.dtype), *others)


def _statistics(e: TorchEmitter, values: Sequence[Value]) -> list[Value]:
    """Mean and inverse deviation, the second and third result, in the types that torch gives them."""
    types = zip(values, e.results[1:3], strict=True)
    return [value if type_ is None else e.cast(value, type_.dtype) for value, type_ in types]


def _layer_norm(
    e: TorchEmitter, x: Value, normalized_shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> Results:
    rank = len(normalized_shape)
    attrs = {"rank": rank, "eps": eps}

    def build(*operands: Value | None) -> Results:
        if not (e.is_read(1) or e.is_read(2)):
            return (e.emit("layer_norm", *operands, **attrs), None, None)
        normal, *statistics = e.emit_all("layer_norm_with_statistics", operands, attrs)
        kept = tuple(range(-rank, 0))
        return (normal, *_statistics(e, [e.unsqueeze(statistic, kept) for statistic in statistics]))

    return _in_common_type(e, (x, weight, bias), build)


def _fused_rms_norm(
    e: TorchEmitter, x: Value, normalized_shape: Sequence[Dim], weight: Value | None, eps: float | None
) -> Results:
    return _rms_norm(e, x, normalized_shape, weight, eps), _inverse_rms(e, x, len(normalized_shape), eps)


def _rms_norm(
    e: TorchEmitter, x: Value, normalized_shape: Sequence[Dim], weight: Value | None = None, eps: float | None = None
) -> Value:
    rank = len(normalized_shape)
    (value,) = _in_common_type(e, (x, weight), lambda *operands: (e.emit("rms_norm", *operands, rank=rank, eps=eps),))
    assert value is not None
    return value


def _inverse_rms(e: TorchEmitter, x: Value, rank: int, eps: float | None) -> Value | None:
    if not e.is_read(1):
        return None
    wide = arithmetic_dtype(x.tensor.dtype)
    small = wide.epsilon if eps is None else eps
    squares = e.emit("square", e.cast(x, wide))
    mean = e.emit("mean", squares, axes=tuple(range(-rank, 0)), keepdim=True)
    return e.emit("rsqrt", e.emit("add", mean, e.constant(small, wide)))


def _group_norm(
    e: TorchEmitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: Dim,
    channels: Dim,
    space: Dim,
    groups: int,
    eps: float,
) -> Results:
    attrs = {"groups": groups, "eps": eps}

    def build(*operands: Value | None) -> Results:
        if e.is_read(1) or e.is_read(2):
            normal, *statistics = e.emit_all("group_norm_with_statistics", operands, attrs)
            return (normal, *_statistics(e, statistics))
        return (e.emit("group_norm", *operands, **attrs), None, None)

    return _in_common_type(e, (x, weight, bias), build)


def _batch_norm(
    e: TorchEmitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> Results:
    return (e.emit("batch_norm", x, mean, variance, weight, bias, eps=eps), _empty(e, 1), _empty(e, 2))


def _empty(e: TorchEmitter, number: int) -> Value | None:
    """Statistics that inference does not compute: torch returns tensors without elements."""
    type_ = e.results[number]
    if type_ is None or not e.is_read(number):
        return None
    return e.emit("full", shape=type_.shape, value=0, dtype=type_.dtype)


def _by_statistics_of_batch(
    e: TorchEmitter, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """The result of a norm in training, the mean, 1 / sqrt(variance + eps) and the unbiased variance of each channel.

    All but the first are in the arithmetic type. What the rounded mean lacks goes into what is added to elements.
    """
    axes = (0, *range(2, x.tensor.rank))
    mean, rest, variance, unbiased = e.emit_all("moments", (x,), {"axes": axes, "keepdim": False})
    scale = e.emit("batch_norm_scale", variance, weight, eps=eps)
    shift = e.emit("batch_norm_shift", rest, scale, None, bias, dtype=scale.tensor.dtype)
    inverse = e.emit("batch_norm_scale", variance, eps=eps)
    return e.emit("apply_batch_norm", x, scale, shift, mean), e.emit("add", mean, rest), inverse, unbiased


def _batch_norm_no_stats(
    e: TorchEmitter, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> Results:
    output, mean, inverse, _ = _by_statistics_of_batch(e, x, weight, bias, eps)
    return output, *_statistics(e, [mean, inverse])


def _batch_norm_functional(
    e: TorchEmitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    """Training: statistics of the batch, and running ones moved towards them, the variance being unbiased."""
    if not training:
        output = e.emit("batch_norm", x, running_mean, running_var, weight, bias, eps=eps)
        return output, _empty(e, 1), _empty(e, 2), running_mean, running_var
    output, mean, inverse, unbiased = _by_statistics_of_batch(e, x, weight, bias, eps)
    moved = [_moved(e, old, new, momentum) for old, new in ((running_mean, mean), (running_var, unbiased))]
    return output, *_statistics(e, [mean, inverse]), *moved


def _batch_norm_with_update(
    e: TorchEmitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Results:
    """As in training; the fourth result is a buffer that only some devices use."""
    output, mean, inverse, *moved = _batch_norm_functional(
        e, x, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return output, mean, inverse, _empty(e, 3), *moved


def _moved(e: TorchEmitter, old: Value, new: Value, momentum: float) -> Value:
    """In the wider type of the two, which is the one that torch infers: what is written back is rounded once."""
    dtype = dtypes.promote(old.tensor.dtype, new.tensor.dtype)
    kept = e.emit("mul", e.cast(old, dtype), e.constant(1 - momentum, dtype))
    return e.emit("add", kept, e.emit("mul", e.cast(new, dtype), e.constant(momentum, dtype)))


def _flash_attention(
    e: TorchEmitter,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Results:
    if dropout_p:
        raise UnsupportedOp("attention with dropout")
    shares_heads = prove_equal(q.tensor.shape[1], k.tensor.shape[1]) is not True
    attrs = {"scale": scale, "is_causal": is_causal, "enable_gqa": shares_heads}
    if e.is_read(1):
        return e.emit_all("attention_with_logsumexp", (q, k, v, attn_mask), attrs)
    return (e.emit("attention", q, k, v, attn_mask, **attrs), None)


def _cuda_flash_attention(
    e: TorchEmitter,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Results:
    return _without_statistics(e, q, k, v, None, dropout_p, is_causal, scale)


def _cuda_efficient_attention(
    e: TorchEmitter,
    q: Value,
    k: Value,
    v: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *debug: bool,
    scale: float | None = None,
) -> Results:
    return _without_statistics(e, q, k, v, attn_bias, dropout_p, is_causal, scale)


def _without_statistics(
    e: TorchEmitter,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Results:
    """Attention alone; what torch's kernels return besides has a layout of their own, for their backward passes."""
    if dropout_p:
        raise UnsupportedOp("attention with dropout")
    read = [number for number in range(1, len(e.results)) if e.is_read(number)]
    if read:
        raise UnsupportedOp("statistics of attention on CUDA, which only torch's own backward pass reads")
    shares_heads = prove_equal(q.tensor.shape[1], k.tensor.shape[1]) is not True
    result = e.emit("attention", q, k, v, mask, scale=scale, is_causal=is_causal, enable_gqa=shares_heads)
    return (result, *[None] * (len(e.results) - 1))


def _attention(
    e: TorchEmitter,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout_p:
        raise UnsupportedOp("attention with dropout")
    return e.emit("attention", q, k, v, attn_mask, scale=scale, is_causal=is_causal, enable_gqa=enable_gqa)
