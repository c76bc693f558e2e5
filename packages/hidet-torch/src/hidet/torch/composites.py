"""What is called instead of some functions while AOTAutograd traces.

Functions that it takes apart although core has an operator for them are kept whole. Which kernel of its own torch has
for attention depends on device, types, sizes and mask. Where there is none, products and a softmax in f32 are traced,
which pass all scores through memory. Others that it keeps, for a kernel of torch's own compiler, are taken apart. What
it writes as a view by places in a storage, which a functional copy does not have, is written as a view of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.flex import flex_attention
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SCHEMA = (
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, *, "
    "bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor"
)


class KeepWhole(TorchFunctionMode):
    """While it is active, such functions are called as they are to be traced: as one operator each, unless autograd
    records them, because it differentiates their parts."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """`func` or what stands for it, on the arguments."""
        return _stand_ins().get(func, func)(*args, **(kwargs or {}))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, whole where it draws no numbers and records no gradient."""
    tensors = (query, key, value, attn_mask)
    is_recorded = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    if dropout_p or is_recorded:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    operands = [_autocast(tensor) for tensor in tensors]
    whole: torch.Tensor = _operator()(*operands, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return whole


def _call(graph: Callable[..., Any], *arguments: Any, **marks: Any) -> Any:
    """A graph without the marks around it."""
    return graph(*arguments)


def _autocast(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """What autocast makes of an operand of a product."""
    if tensor is None or not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    is_eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(torch.get_autocast_dtype(tensor.device.type)) if is_eligible else tensor


def _fill_diagonal(tensor: torch.Tensor, fill_value: float, wrap: bool = False) -> torch.Tensor:
    """`torch.Tensor.fill_diagonal_`, by a view of the diagonal where that is one: a wrapped one is not."""
    if wrap or tensor.dim() < 2 or (tensor.dim() > 2 and any(tensor.shape[0] != size for size in tensor.shape)):
        return tensor.fill_diagonal_(fill_value, wrap)
    view = tensor
    while view.dim() > 1:
        view = view.diagonal(0, 0, -1)
    view.fill_(fill_value)
    return tensor


@cache
def _operator() -> Callable[..., torch.Tensor]:
    """The operator that stands for attention. It computes, and lays out its result, as torch's function does."""
    name, _, _ = _SCHEMA.partition("(")
    library = compat.operator_library("hidet", name)
    library.define(_SCHEMA)
    library.impl(name, functional.scaled_dot_product_attention, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hidet::{name}", functional.scaled_dot_product_attention, lib=library)
    operator: Callable[..., torch.Tensor] = getattr(torch.ops.hidet, name).default
    return operator


@cache
def _stand_ins() -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """Functions by what is called instead of them."""
    return {
        functional.scaled_dot_product_attention: _attention,
        compat.flex_attention_operator(): partial(flex_attention, _attention),
        torch.Tensor.fill_diagonal_: _fill_diagonal,
        **dict.fromkeys(compat.calls_of_graphs(), _call),
    }
