"""`hidet.frontend.from_torch` and what users say of functions of torch, by the names of hidet 0.6."""

from __future__ import annotations

from typing import Any

from hidet import frontend
from hidet.graph.frontend.torch.registry import (
    HidetModule,
    Registry,
    register_function,
    register_method,
    register_module,
)


def __getattr__(name: str) -> Any:
    if name == "from_torch":
        return frontend.from_torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["HidetModule", "Registry", "register_function", "register_method", "register_module"]
