"""Mappings of tasks to workers, by their names in hidet 0.6: those of `hidet.lang.mapping`."""

from __future__ import annotations

from typing import Any

from hidet.lang import mapping
from hidet.lang.mapping import TaskMapping, auto_map, col_repeat, col_spatial, repeat, row_repeat, row_spatial, spatial

repeat_map = repeat
spatial_map = spatial


def __getattr__(name: str) -> Any:
    return getattr(mapping, name)


__all__ = [
    "TaskMapping",
    "auto_map",
    "col_repeat",
    "col_spatial",
    "repeat",
    "repeat_map",
    "row_repeat",
    "row_spatial",
    "spatial",
    "spatial_map",
]
