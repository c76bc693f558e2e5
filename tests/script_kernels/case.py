"""What a kernel of the list is, and what their inputs are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ALL_LANES = 0xFFFFFFFF
WARP = 32


@dataclass(frozen=True)
class Kernel:
    """A kernel and what it shall do.

    make: its module. inputs: arrays and numbers from a generator. expected: what arrays shall hold afterwards, by
    position, from the inputs before. on_cpu: it uses nothing that only a GPU has. arch: least sm_.
    """

    make: Callable[[], Any]
    inputs: Callable[[np.random.Generator], list[Any]]
    expected: Callable[..., dict[int, Array]]
    tolerance: float = 1e-5
    on_cpu: bool = False
    arch: int = 80


def normal(random: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return random.standard_normal(shape).astype(dtype)


def poisoned(*shape: int, dtype: Any = np.float32) -> Array:
    return np.full(shape, np.nan, dtype)
