"""Which element types torch's own kernels lack: a compiled program refuses what eager mode refuses.

Nothing but a call tells. Torch is asked once for each operator and element types, while a graph is imported, and only
where both are unusual together: operators of floating-point models on integers or booleans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hidet.torch import compat
from torch import fx

_REFUSES: dict[tuple[Any, tuple[torch.dtype, ...]], bool] = {}


def lacks_kernel(node: fx.Node) -> bool:
    """Whether torch refuses an operator for the element types of its tensors, all of which hold integers or booleans.

    It is called with zeros in the shapes that it was traced with. False where these are not known before a call.
    """
    fakes = [leaf.meta.get("val") for leaf in node.all_input_nodes]
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    if not tensors or any(fake.is_floating_point() or fake.is_complex() for fake in tensors):
        return False
    key = node.target, tuple(fake.dtype for fake in tensors)
    if key not in _REFUSES:
        found = _is_refused(node)
        if found is None:
            return False
        _REFUSES[key] = found
    return _REFUSES[key]


def _is_refused(node: fx.Node) -> bool | None:
    """None where the shapes are not known."""
    known = True

    def real(argument: Any) -> Any:
        nonlocal known
        if not isinstance(argument, fx.Node):
            return argument
        value = argument.meta.get("val")
        if isinstance(value, torch.Tensor):
            shape = _hints(value.shape)
            known &= shape is not None
            return torch.zeros(shape or (), dtype=value.dtype, device=value.device)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            known = False
        return value

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), real)
    if not known:
        return None
    assert callable(node.target)
    try:
        node.target(*args, **kwargs)
    except NotImplementedError:
        return True
    except RuntimeError as error:
        # Some kernels raise the plain class, with the same words.
        return "not implemented for" in str(error)
    return False


def _hints(shape: Sequence[Any]) -> tuple[int, ...] | None:
    sizes = [extent if isinstance(extent, int) else compat.size_hint(extent) for extent in shape]
    return None if None in sizes else tuple(sizes)  # type: ignore[arg-type]  # none is None
