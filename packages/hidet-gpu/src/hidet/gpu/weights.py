"""Which parameters of a kernel are weights. Nothing that runs in the same call writes those: where a device starts a
kernel while the one before it ends, they may be read at once, and what memory takes to answer passes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hidet.ir.expr import Var
from hidet.ir.func import Function

WEIGHTS = "weights"
"""An attribute of a kernel: names of parameters, pointers and tensor maps, by which it reads weights."""


def with_weights(function: Function, weights: Iterable[Var]) -> Function:
    """The kernel with the names of those of its parameters that are weights, besides those that it has; it reads them
    first, where it can."""
    known = {*weights, *weights_of(function)}
    names = tuple(param.name for param in function.params if param in known)
    others = [(name, value) for name, value in function.attributes if name != WEIGHTS]
    return replace(function, attributes=(*others, (WEIGHTS, names))) if names else function


def weights_of(function: Function) -> frozenset[Var]:
    """Its parameters that are weights."""
    names = dict(function.attributes).get(WEIGHTS, ())
    assert isinstance(names, tuple)
    return frozenset(param for param in function.params if param.name in names)
