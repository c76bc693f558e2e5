"""The operators of core: what each one means, family by family, as data.

    unary, activation, binary, elementwise    one element in, one element out; numpy broadcasting
    special                                   Bessel functions and the like, element by element
    reduce, scan, segment, sort               along axes
    matmul, conv, pool, normalize, attention  anchors: scheduled by rules, others fuse into them
    batch_norm                                is folded into what is before it
    view, move, gather, scatter               data movement
    create, random, cast                      new tensors, element types
    interpolate, resample, region, detect     resampling, regions of images
    linear_algebra, number_theory             matrices as a whole, common divisors
    fourier                                   Fourier transforms
    quantize                                  integers and small floats with scales
    pack, selection                           results whose number depends on data
    sequence, text                            lists, optional values, strings: on the host
    control                                   sub-graphs, sizes that depend on data
    check                                     errors of a call that depend on data

For users it is the operators as functions on tensors, `hidet.ops.matmul(a, b)`: see `hidet.flow.functions`.

Each family module has `SPECS`, a tuple of `OperatorSpec`. Nothing registers itself: `all_operators` is what core's own
plug-in module returns from its `hidet_operators` hook.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

FAMILIES = (
    "unary",
    "activation",
    "binary",
    "elementwise",
    "special",
    "reduce",
    "scan",
    "segment",
    "sort",
    "matmul",
    "reshape",
    "view",
    "move",
    "shuffle",
    "normalize",
    "batch_norm",
    "conv",
    "pool",
    "adaptive_pool",
    "interpolate",
    "grid_sample",
    "gradient",
    "attention",
    "gather",
    "scatter",
    "create",
    "random",
    "cast",
    "quantize",
    "resample",
    "region",
    "control",
    "pack",
    "sequence",
    "text",
    "check",
    "detect",
    "linear_algebra",
    "number_theory",
    "fourier",
)


def all_operators() -> tuple[OperatorSpec, ...]:
    """The specs of every family, in the order of `FAMILIES`; the family modules are imported by this call."""
    return tuple(spec for family in FAMILIES for spec in import_module(f"hidet.ops.{family}").SPECS)


def __getattr__(name: str) -> Any:
    if name.startswith("__") or (name in FAMILIES and name not in _ALSO_FUNCTIONS):
        raise AttributeError(name)
    # Functions compile what they do, and so lie above the compiler.
    return import_module("hidet.flow.functions").function(name)


def __dir__() -> list[str]:
    names: list[str] = import_module("hidet.flow.functions").names()
    return sorted({*globals(), *names})


_ALSO_FUNCTIONS = frozenset(
    (
        *(
            "attention",
            "batch_norm",
            "cast",
            "conv",
            "fourier",
            "gather",
            "grid_sample",
            "interpolate",
            "matmul",
            "pack",
        ),
        *("quantize", "resample", "reshape", "scan", "scatter", "sort"),
    )
)
"""Families whose module is called as one of its operators. As an attribute the name is the function; the module is
imported by its full name."""


class _Operators(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _ALSO_FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Operators

__all__ = ["FAMILIES", "all_operators"]
