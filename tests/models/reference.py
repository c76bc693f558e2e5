"""The float64 reference of a model: the same weights, every floating computation in float64."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .entry import Inputs

_NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})


class _ComputeInFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turns every explicit narrow dtype into float64.

    Models cast on purpose (`x.float()` in a norm, `dtype=torch.float32` in rotary positions). In a reference such a
    cast would put float32 errors, partly the same as eager's, into the value that eager is measured against.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*tree_map(_widen_dtype, args), **tree_map(_widen_dtype, kwargs or {}))


def _widen_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def double_inputs(inputs: Inputs) -> Inputs:
    """Return the inputs with floating ones in float64."""
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


def run_reference(model: nn.Module, inputs: Inputs) -> Any:
    """Run `model` in float64 on `inputs` and return its result.

    The weights are the model's own, widened: the reference of a bfloat16 model starts from the rounded weights.
    """
    double = copy.deepcopy(model).double()
    with torch.no_grad(), _ComputeInFloat64():  # type: ignore[no-untyped-call]
        return double(**double_inputs(inputs))
