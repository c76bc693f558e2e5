"""From StableHLO's operators to core operators: one table, put together from one module a family.

A family's `handlers()` gives functions by the operator's name: "dot_general", "chlo.erf", "custom_call Sharding",
"composite chlo.top_k". A handler is called as `handler(emitter, *operands, **attributes)`. Operands are graph values,
or what `hidet.stablehlo.items` has. Attributes are Python values under VHLO's names; `regions` are the operation's
regions. `emitter.types` are the types of its results. It returns one value, or a tuple as the operator has results,
and raises a HidetError for what it cannot express. Plug-ins add rows (`hidet_handlers`).

    elementwise       one element in, one element out
    shape             shapes, axes, constants
    move              slices, padding, concatenation
    dot               products
    convolution       convolutions with any order of axes
    reduce            reductions and windows
    sort              sorting by keys
    gather, scatter   picked and written places
    control           branches and loops
    complex_numbers   complex tensors and Fourier transforms
    calls             custom calls, tokens, tuples
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hidet.frontend import Handler, handlers_of_families, plugin_handlers
from hidet.plugins.registry import Registry

FAMILIES = (
    "elementwise",
    "shape",
    "move",
    "dot",
    "convolution",
    "reduce",
    "sort",
    "gather",
    "scatter",
    "control",
    "complex_numbers",
    "calls",
)


@cache
def table() -> Mapping[str, Handler]:
    """The handler of each operator that this wheel has one for."""
    return handlers_of_families(__name__, FAMILIES)


def handlers_of(registry: Registry) -> Mapping[str, Handler]:
    """The handlers of this wheel, and those of plug-ins."""
    added = plugin_handlers("stablehlo", table(), registry)
    return {**table(), **{operator: rows[0][1] for operator, rows in added.items()}}
