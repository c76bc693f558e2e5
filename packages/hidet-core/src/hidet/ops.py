"""The operators as functions on tensors, `hidet.ops.matmul(a, b)`; `hidet.api.flow.functions` has them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    # Imported at the first use: functions compile what they do, and so need the whole compiler.
    return import_module("hidet.api.flow.functions").function(name)


def __dir__() -> list[str]:
    names: list[str] = import_module("hidet.api.flow.functions").names()
    return sorted({*globals(), *names})
