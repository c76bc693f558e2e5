"""`hidet.hip`: there is no target for AMD's GPUs, and so no device."""

from __future__ import annotations

from typing import Any

from hidet.errors import UnsupportedOp


def available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise UnsupportedOp(f"hidet.hip.{name}", hint="docs/targets.md says what a wheel for another GPU offers")
