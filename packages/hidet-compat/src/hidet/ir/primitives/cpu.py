"""`hidet.lang.cpu` by its name in hidet 0.6, for scripts."""

from __future__ import annotations

from typing import Any

from hidet.lang import cpu


def __getattr__(name: str) -> Any:
    return getattr(cpu, name)
