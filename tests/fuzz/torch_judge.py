"""When floats of a compiled program are right, and what torch tells backends of strides.

An element is right if it is nearly as far from a float64 run as eager mode's, by the rule of the design. Where terms
cancel, both may be far from it by chance: then it is right if it is within what rounding does to that program. How much
that is, Monte Carlo arithmetic tells (Parker, 1997): the float64 run is repeated, and whatever the program's own types
could not hold exactly is moved by a random part of their unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

RUNS = 4
"""Repetitions with random rounding."""
TIMES = 4.0
"""The distance of a right result from float64 may be so many times what random rounding makes of it."""


class Rounded(TorchDispatchMode):
    """Moves what float64 operators make, and `dtype` cannot hold, by up to a unit of `dtype`."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.dtype = dtype
        self.source = torch.Generator("cpu").manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf, told in zip(tree_leaves(result), func._schema.returns, strict=False):
            is_view = told.alias_info is not None and not told.alias_info.is_write
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 and leaf.numel() and not is_view:
                self._move(leaf)
        return result

    def _move(self, tensor: torch.Tensor) -> None:
        """In place, because views and gradients of the tensor have to show it."""
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            inexact = (tensor.to(self.dtype).double() != tensor) & tensor.isfinite()
            if inexact.any():
                drawn = torch.rand(tensor.shape, generator=self.source, dtype=torch.float64, device="cpu") * 2 - 1
                unit = torch.finfo(self.dtype).eps
                tensor.copy_(torch.where(inexact, tensor * (1 + unit * drawn.to(tensor.device)), tensor))


def error_of(
    tensor: torch.Tensor, right: torch.Tensor, exact: torch.Tensor, unit: float, rounded: Callable[[], list[Any]]
) -> str:
    """How a tensor breaks the rule, or "". right: eager mode's. rounded: the float64 run under random rounding."""
    made, eager, reference = (t.detach().double().cpu() for t in (tensor, right, exact))
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        if not torch.equal(test(made), test(eager)):
            return f"{test.__name__} in other places"
    is_finite = eager.isfinite() & reference.isfinite()
    made, eager, reference = made[is_finite], eager[is_finite], reference[is_finite]
    if not made.numel():
        return ""
    rms = max(float(reference.square().mean().sqrt()), 1e-30)
    largest = max(float(reference.abs().max()), 1e-30)
    ours, theirs = (float((t - reference).square().mean().sqrt()) / rms for t in (made, eager))
    ours_most, theirs_most = (float((t - reference).abs().max()) / largest for t in (made, eager))
    if ours <= 2 * theirs + unit and ours_most <= 4 * theirs_most + 4 * unit:
        return ""
    others = [t.detach().double()[is_finite] - reference for t in rounded() if t.shape == exact.shape]
    noise = max((float(other.square().mean().sqrt()) for other in others), default=0.0) / rms
    noise_most = max((float(other.abs().max()) for other in others), default=0.0) / largest
    if ours <= TIMES * noise and ours_most <= TIMES * noise_most:
        return ""
    return f"relative error {ours:.1e}, eager mode's {theirs:.1e}, that of rounding {noise:.1e}"


def restrided(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend that runs torch's own kernels and gives results the strides that torch tells backends of."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(inner: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        (output,) = (node for node in inner.graph.nodes if node.op == "output")
        told = [item.meta.get("val") if isinstance(item, fx.Node) else None for item in output.args[0]]

        def run(*arguments: Any) -> list[Any]:
            return [_with_strides(result, fake) for result, fake in zip(inner(*arguments), told, strict=True)]

        return make_boxed_func(run)

    backend: Callable[..., Any] = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    compiled: Callable[..., Any] = backend(gm, example_inputs)
    return compiled


def _with_strides(result: Any, fake: Any) -> Any:
    """A tensor without gaps in the order of axes that the fake one has; repeated axes stay repeated."""
    if not isinstance(fake, torch.Tensor) or result.stride() == fake.stride():
        return result
    strides = [stride if isinstance(stride, int) else stride.node.hint for stride in fake.stride()]
    once = result[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
    order = sorted(range(result.dim()), key=lambda axis: -strides[axis])
    copy = torch.empty_permuted(once.shape, order, dtype=result.dtype, device=result.device).copy_(once)
    return copy.expand(result.shape)
