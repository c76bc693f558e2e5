"""The operators of core: what each one means, family by family, as data.

    unary, activation, binary, elementwise    one element in, one element out; numpy broadcasting
    special                                   Bessel functions and the like, element by element
    reduce, scan, segment, sort               along axes
    matmul, conv, pool, normalize, attention  anchors: scheduled by rules, others fuse into them
    varlen_attention                          the same of packed sequences
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

Each family module has `SPECS`, a tuple of `OperatorSpec`. Nothing registers itself: `all_operators` is what core's own
plug-in module returns from its `hidet_operators` hook.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    "scaled_matmul",
    "gated_linear",
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
    "varlen_attention",
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
    return tuple(spec for family in FAMILIES for spec in import_module(f"hidet.operators.{family}").SPECS)


__all__ = ["FAMILIES", "all_operators"]
