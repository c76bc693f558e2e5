"""hidet's StableHLO front-end.

compile(model)           a compiled program of StableHLO: a file, its bytes or text, or an export of jax
from_stablehlo(model)    the same as a graph with its signature, for `hidet.compile`
check(model)             the operators that cannot be imported

Functions of jax are compiled by `hidet.jax`, which comes with this wheel. These are imported when they are first used.
jax is imported where its own objects are taken, and nowhere else: files are read by this wheel itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.stablehlo.convert import check, compile, from_stablehlo
    from hidet.stablehlo.supported import Unsupported

__all__ = ["Unsupported", "check", "compile", "from_stablehlo"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {"Unsupported": "supported", "check": "convert", "compile": "convert", "from_stablehlo": "convert"},
)
