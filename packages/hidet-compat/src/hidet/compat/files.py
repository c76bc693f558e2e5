"""Saved models by the names of hidet 0.6."""

from __future__ import annotations

from typing import Any

from hidet.runtime.artifact import load


def save_compiled_graph(model: Any, file: str, save_dispatch_table: bool = False, save_weights: bool = True) -> None:
    """`model.save(file)`. The last two: there is no such table, and weights are always saved."""
    model.save(file)


def load_compiled_graph(path: str) -> Any:
    """`hidet.load(path)`."""
    return load(path)
