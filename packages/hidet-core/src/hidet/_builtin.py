"""Plug-in module of the built-ins: core offers its own operators and passes through the same hooks as any plug-in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Core's operators, one module a family."""
    from hidet.ops import all_operators

    return all_operators()
