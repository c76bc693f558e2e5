"""Functions that are scripts themselves: read when somebody needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LOCKS = ("acquire_lock", "release_lock", "acquire_seq_semaphore", "release_seq_semaphore")
SCRIPTS = {"sync_grid": "grid", **dict.fromkeys(_LOCKS, "locks")}
"""Their names, and the files that they are in."""


def load_script(name: str) -> Any:
    """The script called `name`."""
    return getattr(import_module(f"hidet.gpu.lang.{SCRIPTS[name]}"), name)
