"""From TensorFlow's operators to core operators: one table, put together from one module a family.

A family's `handlers()` gives functions by the operator's name. A handler is called as
`handler(emitter, *operands, **attributes)`. Operands are graph values, or what `hidet.tensorflow.items` has; lists of
operands are written out. Attributes are Python values (`hidet.tensorflow.attributes`), without those that the operands
tell. It returns one value, or a tuple as the operator has results, and raises a HidetError for what it cannot express.
Plug-ins add rows (`hidet_handlers`).

    elementwise          one element in, one element out
    reduce               reductions along axes, scans, segments
    matmul, conv, pool   products and windows
    normalize            softmax, normalisations
    shape, move, create  shapes, moving elements, constants and ranges
    gather               slices and picked rows
    resize               sampling of images
    vision               patches, colours, boxes of several classes
    quantize             numbers rounded as if they were codes
    selection            results whose number depends on data, boxes
    resources            variables and tables
    control              calls, branches and loops
    lists                lists of tensors
    signal               complex numbers and Fourier transforms
    cells                LSTM and GRU cells
    recurrent            LSTM, GRU and plain layers of cuDNN
    decode               labels of speech, sparse results made dense
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hidet.frontend import Handler, handlers_of_families, plugin_handlers
from hidet.plugins.registry import Registry

FAMILIES = (
    "elementwise",
    "reduce",
    "matmul",
    "conv",
    "pool",
    "normalize",
    "shape",
    "move",
    "gather",
    "create",
    "resize",
    "vision",
    "quantize",
    "selection",
    "resources",
    "control",
    "lists",
    "signal",
    "cells",
    "recurrent",
    "decode",
)


@cache
def table() -> Mapping[str, Handler]:
    """The handler of each operator that this wheel has one for."""
    return handlers_of_families(__name__, FAMILIES)


def handlers_of(registry: Registry) -> Mapping[str, Handler]:
    """The handlers of this wheel, and those of plug-ins."""
    added = plugin_handlers("tensorflow", table(), registry)
    return {**table(), **{operator: rows[0][1] for operator, rows in added.items()}}
