"""hidet for JAX: `hidet.jax.compile(fn, *avals)`, a thin function over `jax.export` and `hidet.stablehlo`.

It comes with hidet-stablehlo because there is nothing else to it: all that a program of jax is, is StableHLO. jax is
imported when a function is compiled; the compiled graph runs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.jax.functions import compile, from_jax

__all__ = ["compile", "from_jax"]

__getattr__, __dir__ = lazy_attributes(__name__, {"compile": "functions", "from_jax": "functions"})
