"""What one entry of the zoo is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Inputs = Mapping[str, torch.Tensor]
"""Keyword arguments of a model's forward, by name."""

WEIGHT_SEED = 2026
"""Seed of all random weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel:
    """One model of the zoo.

    `build()` returns the module in eval mode, in float32 on the CPU, with the same weights each time. `inputs(seed)`
    returns keyword arguments for it, floating ones in float32. `smoke` marks the models of the default test suite;
    `bf16` those that must be right in bfloat16 too. `breaks_in`: types in which the model's own code branches on data,
    so that dynamo cannot hand it to any backend as one graph. `note`: what a reader of results has to know.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    smoke: bool = False
    bf16: bool = False
    breaks_in: frozenset[torch.dtype] = frozenset()
    note: str | None = None


def seeded(seed: int) -> torch.Generator:
    """Return a CPU generator that starts at `seed`."""
    return torch.Generator().manual_seed(seed)
