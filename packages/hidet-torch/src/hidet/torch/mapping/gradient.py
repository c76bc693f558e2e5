"""Gradients of pooling, resampling and attention; those of other operators are compositions that torch makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim, prove_equal
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter
from hidet.torch.mapping.interpolate import resampling_modes
from hidet.torch.mapping.pool import Numbers, window


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for axes in (2, 3):
        found[f"aten.max_pool{axes}d_with_indices_backward.default"] = _max_pool(axes)
        found[f"aten.adaptive_max_pool{axes}d_backward.default"] = _adaptive_max_pool(axes)
        found[f"aten.avg_pool{axes}d_backward.default"] = _avg_pool(axes)
        found[f"aten._adaptive_avg_pool{axes}d_backward.default"] = _adaptive_avg_pool(axes)
    for name, mode, aligns in resampling_modes():
        found[f"{name}_backward.default"] = _resampling(mode, aligns)
    return found | {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention}


def _max_pool(axes: int) -> Handler:
    def handle(e: TorchEmitter, grad: Value, x: Value, *rest: object) -> Value:
        indices = rest[-1]
        assert isinstance(indices, Value)
        return e.emit("max_pool_gradient", grad, indices, shape=x.tensor.shape, rank=axes)

    return handle


def _adaptive_max_pool(axes: int) -> Handler:
    def handle(e: TorchEmitter, grad: Value, x: Value, indices: Value) -> Value:
        return e.emit("max_pool_gradient", grad, indices, shape=x.tensor.shape, rank=axes)

    return handle


def _avg_pool(axes: int) -> Handler:
    def handle(
        e: TorchEmitter,
        grad: Value,
        x: Value,
        kernel_size: Numbers,
        stride: Numbers,
        padding: Numbers,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        return e.emit(
            "avg_pool_gradient",
            grad,
            shape=x.tensor.shape,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
            **window(axes, kernel_size, stride, padding),
        )

    return handle


def _adaptive_avg_pool(axes: int) -> Handler:
    def handle(e: TorchEmitter, grad: Value, x: Value) -> Value:
        return e.emit("adaptive_avg_pool_gradient", grad, shape=x.tensor.shape, rank=axes)

    return handle


def _resampling(mode: str, aligns: bool) -> Handler:
    def handle(e: TorchEmitter, grad: Value, output_size: object, input_size: Sequence[Dim], *rest: object) -> Value:
        scales = rest[1:] if aligns else rest
        return e.emit(
            "interpolate_gradient",
            grad,
            shape=tuple(input_size),
            mode=mode,
            align_corners=bool(rest[0]) if aligns else False,
            scales=tuple(scales) if scales and None not in scales else None,
        )

    return handle


def _attention(
    e: TorchEmitter,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, ...]:
    if dropout_p:
        raise UnsupportedOp("attention with dropout")
    shares_heads = prove_equal(q.tensor.shape[1], k.tensor.shape[1]) is not True
    attrs = {"scale": scale, "is_causal": is_causal, "enable_gqa": shares_heads}
    return e.emit_all("attention_gradient", (grad, q, k, v, out, logsumexp, attn_mask), attrs)
