"""What a model of TensorFlow or jax is to the check of front-ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray[Any, np.dtype[Any]]]
MakeInputs = Callable[[np.random.Generator, int], Arrays]


@dataclass(frozen=True, slots=True)
class FrameworkModel:
    """build: makes the model of its framework. inputs: of a generator and a batch; floating ones in f32."""

    build: Callable[[], Any]
    inputs: MakeInputs


def floats(*shape: int) -> MakeInputs:
    """One input [batch, *shape] of normal numbers, of which f16 holds each."""
    return lambda rng, batch: [rng.standard_normal((batch, *shape)).astype(np.float16).astype(np.float32)]


def whole(most: int, *shape: int) -> MakeInputs:
    """One input [batch, *shape] of integers below `most`."""
    return lambda rng, batch: [rng.integers(0, most, (batch, *shape)).astype(np.int32)]
