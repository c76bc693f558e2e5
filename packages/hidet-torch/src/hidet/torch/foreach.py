"""Operators on lists of tensors, which optimisers call, as operators on each tensor of the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from hidet.torch import compat
from torch import Tensor

Number = bool | int | float


def foreach() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> a function that AOTAutograd traces instead of it."""
    found: dict[Any, Callable[..., Any]] = {}
    packets = compat.operators_of(f"aten._foreach_{name}" for name in _FUNCTIONS)
    for name, packet in packets.items():
        function = _FUNCTIONS[name.removeprefix("aten._foreach_")]
        overloads = [overload for overload in packet.overloads() if not overload.endswith("out")]
        found |= {getattr(packet, overload): partial(_each, function) for overload in overloads}
    return found


def _each(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> list[Tensor]:
    """`function` on the elements of the arguments that are lists, one after the other; other arguments are the same for
    all of them."""
    count = next(len(value) for value in args if isinstance(value, list | tuple))
    rows = [value if isinstance(value, list | tuple) else [value] * count for value in args]
    return [function(*row, **kwargs) for row in zip(*rows, strict=True)]


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    return torch.addcdiv(x, a, b, value=value)


def _addcmul(x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    return torch.addcmul(x, a, b, value=value)


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    copied: Tensor = torch.ops.aten.copy(x, source)
    return copied


def _norm(x: Tensor, ord: Number = 2, dtype: torch.dtype | None = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, ord, dtype=dtype)
    return norm


_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac"),
    *("lgamma", "log", "log10", "log1p", "log2", "max", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)

_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in (*_UNARY, "add", "sub", "mul", "div", "pow", "lerp")},
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    # Of a tensor and a number, which `maximum` does not take.
    "clamp_max": torch.clamp_max,
    "clamp_min": torch.clamp_min,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
    "copy": _copy,
    "norm": _norm,
    "zero": torch.zeros_like,
}
"""Functions of one tensor by the name of the operator on lists."""
