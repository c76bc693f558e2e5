"""Saved models by the names of hidet 0.6."""

from __future__ import annotations

from typing import Any

from hidet.errors import UnsupportedOp
from hidet.runtime.artifact import load


def save_compiled_graph(model: Any, file: str, save_dispatch_table: bool = False, save_weights: bool = True) -> None:
    """`model.save(file)`. The last two: there is no such table, and weights are always saved."""
    model.save(file)


def load_compiled_graph(path: str) -> Any:
    """`hidet.load(path)`."""
    return load(path)


def save_task(task: Any, fname: str) -> None:
    """UnsupportedOp: a task is Python, and files that run Python when they are opened are not written."""
    raise UnsupportedOp(f"task {task.name} is not saved", hint="task.build(target).save(path) saves its program")


def load_task(fname: str) -> Any:
    """UnsupportedOp: see `save_task`."""
    raise UnsupportedOp(f"{fname} is not opened as a task", hint="hidet.runtime.load_compiled_task opens programs")
