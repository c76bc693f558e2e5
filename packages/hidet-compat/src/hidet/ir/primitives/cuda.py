"""`hidet.lang.cuda` by its name in hidet 0.6, for scripts."""

from __future__ import annotations

from typing import Any

from hidet.lang import cuda


def __getattr__(name: str) -> Any:
    return getattr(cuda, name)
