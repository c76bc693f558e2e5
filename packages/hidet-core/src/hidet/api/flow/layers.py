"""`hidet.ops`: what layers of networks compute: normalisation, pooling, resampling, embedding, quantisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet.api.flow import arithmetic
from hidet.api.flow.movement import flatten
from hidet.api.flow.operation import apply, apply_one, as_tensors
from hidet.api.tensors.tensor import Tensor


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """x, limited to lie between two numbers or tensors; None for no bound."""
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        return apply_one("clamp", x, min=min, max=max)
    _, low, high = as_tensors([x, min, max])
    return apply_one("clamp_tensor", x, low, high)


def adaptive_pool(operator: str, axes: int) -> Callable[..., Tensor]:
    """A function that pools images of so many axes to a given size."""

    def pool(x: Tensor, output_size: Any) -> Tensor:
        size = list(output_size) if isinstance(output_size, Sequence) else [output_size] * axes
        return apply(operator, [x], {"size": size})[0]

    return pool


def argument(operator: str) -> Callable[..., Tensor]:
    """A function that tells where along a dim something is; None is a place among all elements."""

    def place(x: Tensor, dim: int | None = None, keep_dim: bool = False) -> Tensor:
        if dim is None:
            return apply_one(operator, flatten(x), axes=[0], keepdim=False)
        return apply_one(operator, x, axes=[dim], keepdim=keep_dim)

    return place


def extreme(operator: str) -> Callable[..., Tensor]:
    """A function of the elements of two tensors or more that keeps one of them."""

    def keep(a: Any, b: Any, *others: Any) -> Tensor:
        kept = arithmetic.compute(operator, a, b)
        for other in others:
            kept = arithmetic.compute(operator, kept, other)
        return kept

    return keep
