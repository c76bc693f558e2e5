"""From aten operators to core operators: one table, put together from one module a family.

A handler is called as `handler(emitter, *args, **kwargs)` with the arguments of the aten operator, by name where the
schema has them by name. Tensors arrive as graph values, sizes as dims, numbers that are known at run time only as
`Scalar`, dtypes as torch dtypes, lists as lists. It returns one value, or a tuple as the aten operator does; a result
that nobody may read is None. It raises a HidetError for a case that core cannot express, which then runs in eager mode.

    elementwise, activation    one element in, one element out
    reduce, sort               reductions along axes, scans, orders
    matmul, conv, pool         products and windows
    normalize, varlen          softmax, normalisations, attention; attention of packed sequences
    segment                    reductions over parts of an axis that data tell, histograms
    view, move, scatter        other shapes for the same elements, reading and writing at places
    interpolate, gradient      resampling; gradients that are no composition
    create, random             constants, ranges, random numbers
    sizes                      numbers computed from sizes
    selection                  results whose number depends on data
    fourier                    Fourier transforms

Plug-ins map further operators (`hidet_handlers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from hidet.frontend import Handler, handlers_of_families, plugin_handlers
from hidet.plugins.registry import Registry

FAMILIES = (
    *("elementwise", "activation", "reduce", "matmul", "scaled_matmul", "conv", "pool", "normalize", "varlen"),
    *(
        "view",
        "move",
        "scatter",
        "sort",
        "segment",
        "interpolate",
        "gradient",
        "create",
        "random",
        "sizes",
        "selection",
        "fourier",
    ),
)

# Families of operators that torch has for floating-point types; for others it lacks some of their kernels.
_OF_FLOATS = ("activation", "matmul", "conv", "pool", "normalize", "interpolate", "gradient")


@cache
def table() -> Mapping[str, Handler]:
    """Handlers by operator name and overload, e.g. "aten.add.Tensor"; sizes' Python operators as "operator.mul"."""
    return handlers_of_families(__name__, FAMILIES)


def handlers_of(registry: Registry) -> Mapping[str, Handler]:
    """What `table` has, and what plug-ins map."""
    added = plugin_handlers("torch", table(), registry)
    return {**table(), **{name: rows[0][1] for name, rows in added.items()}}


@cache
def handlers_of_floats() -> frozenset[Handler]:
    """The handlers of operators that torch may lack a kernel of for integers and booleans."""
    return frozenset(
        handler
        for family in _OF_FLOATS
        for handler in import_module(f"hidet.torch.mapping.{family}").handlers().values()
    )
