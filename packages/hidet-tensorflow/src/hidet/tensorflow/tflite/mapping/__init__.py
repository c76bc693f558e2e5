"""From TFLite's operators to core operators: one table, put together from one module a family.

A handler is called as `handler(emitter, *operands, **options)`: values, None for absent operands, options by name.
What the file says of the tensors around the node is in `emitter.operands` and `emitter.results`. It returns one value
or a tuple. Operators that TensorFlow has, too, go to the handlers of `hidet.tensorflow.mapping`, wrapped (`codes.py`)
so that they see numbers where the file has codes. Plug-ins add rows (`hidet_handlers`, front-end "tflite"; custom
operators by their names).

    plain      what is as in TensorFlow
    quantize   between numbers and codes
    products   convolutions and products, in integers where both sides are codes
    pool       windows
    recurrent  LSTM
    detection  boxes
    control    branches and loops
    variables  what a file sets once
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hidet.frontend import Handler, handlers_of_families, plugin_handlers
from hidet.plugins.registry import Registry

FAMILIES = ("plain", "quantize", "products", "pool", "recurrent", "detection", "control", "variables")


@cache
def table() -> Mapping[str, Handler]:
    """The handler of each operator that this wheel has one for."""
    return handlers_of_families(__name__, FAMILIES)


def handlers_of(registry: Registry) -> Mapping[str, Handler]:
    """The handlers of this wheel, and those of plug-ins."""
    added = plugin_handlers("tflite", table(), registry)
    return {**table(), **{operator: rows[0][1] for operator, rows in added.items()}}
