"""What autograd learns of operators that write to their arguments: which tensors change, and that no formula says how.

A leaf that requires a gradient is refused, as torch's own operators refuse it, and a gradient that would have to pass
through the change is an error where it is asked for instead of a wrong number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hidet.errors import LaunchError
from hidet.torch import compat


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """An operator of torch.ops that writes to some of its arguments.

    parameters: names of what it takes. written: numbers of those that it writes. results: how many tensors it returns.
    """

    operator: Any
    name: str
    parameters: tuple[str, ...]
    written: tuple[int, ...]
    results: int

    def recorded(self, keys: Any, /, *arguments: Any) -> Any:
        """The operator's autograd kernel: what it does and returns, with the change recorded where a gradient may ask
        for it. keys: as torch passes them. LaunchError for leaves that require a gradient."""
        if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in arguments):
            return compat.below_autograd(self.operator, keys, arguments)
        for number in self.written:
            self._require_changeable(self.parameters[number], arguments[number])
        everything = _Recorded.apply(self, keys, *arguments)  # type: ignore[no-untyped-call]  # torch does not say
        made = everything[len(self.written) :]
        return made[0] if self.results == 1 else made or None

    def _require_changeable(self, parameter: str, tensor: torch.Tensor) -> None:
        base = compat.base(tensor)
        changed = tensor if base is None else base
        what = f"argument {parameter} of operator {self.name} is {'a' if base is None else 'a view of a'}"
        if changed.is_leaf and changed.requires_grad:
            raise LaunchError(
                f"{what} leaf that requires a gradient, and is changed in place",
                hint="call the operator under torch.no_grad(), or pass a copy",
            )
        if base is not None and len(self.written) + self.results > 1:
            raise LaunchError(
                f"{what} tensor, and is changed while gradients are recorded, which torch can do for operators that "
                "change or return one tensor alone",
                hint="call the operator under torch.no_grad(), or pass tensors that are no views",
            )


class _Recorded(torch.autograd.Function):
    """A change, as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, change: Change, keys: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
        ctx.change = change
        result = compat.below_autograd(change.operator, keys, arguments)
        written = [arguments[number] for number in change.written]
        ctx.mark_dirty(*written)
        made: Sequence[torch.Tensor] = (result,) if change.results == 1 else result or ()
        return (*written, *made)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        change: Change = ctx.change
        changed = ", ".join(change.parameters[number] for number in change.written)
        raise LaunchError(
            f"operator {change.name} changes {changed}, and has no gradient",
            hint="pass it detached tensors, or register an operator that returns its results: outputs=[...]",
        )
