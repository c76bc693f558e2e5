"""From ONNX operators to core operators: one table, put together from one module a family.

A family's `handlers()` gives functions by (operator, since-version): the name as ONNX has it, with the domain before it
where that is not ONNX's own ("ai.onnx.ml.Binarizer"), and the first version that the function is right for. A node gets
the newest row not above its operator's version in the model's opset. Plug-ins add rows (`hidet_handlers`).

A handler is called as `handler(emitter, *inputs, **attributes)`. Inputs are graph values, None for absent ones, and
trailing ones may be missing. Attributes are Python values (`hidet.onnx.attributes`), those with a default in the
operator's schema filled in, those without one left out. It returns one value, or a tuple as the operator has outputs;
None for an output that nobody asks for (`emitter.is_read`). It raises a HidetError for what it cannot express.

    elementwise                one element in, one element out
    reduce                     reductions along axes, scans
    matmul, conv, pool         products and windows
    normalize                  softmax, normalisations
    shape, move, create, nn    shapes, moving elements, constants and ranges, the rest of neural networks
    training                   steps of optimisers
    quantize                   numbers with scales
    image, resize, detection   sampling, patches, boxes
    signal                     Fourier transforms, windows
    random, loss               random numbers, losses
    recurrent, attention       LSTM, GRU, RNN; attention and its caches
    linear_algebra, text       matrices as a whole, Einsum; strings, n-grams
    ml, trees, contrib         domains ai.onnx.ml and com.microsoft
    control                    branches and loops
    sequence                   sequences and optional values
    selection                  results whose number depends on data
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from hidet.frontend import Handler, Rows, plugin_handlers
from hidet.onnx.attributes import find_schema
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
    "create",
    "nn",
    "training",
    "quantize",
    "image",
    "resize",
    "detection",
    "signal",
    "random",
    "loss",
    "linear_algebra",
    "ml",
    "trees",
    "contrib",
    "text",
    "recurrent",
    "attention",
    "control",
    "selection",
    "sequence",
)

NEWEST_OPSET = 28
"""The newest version of ONNX's own operators that the table was written for."""

Key = tuple[str, int]


@cache
def table() -> Mapping[str, Rows]:
    """For each operator the rows of this wheel (since-version, handler), newest first."""
    found: dict[str, dict[int, Handler]] = {}
    for family in FAMILIES:
        for (operator, version), handler in import_module(f"hidet.onnx.mapping.{family}").handlers().items():
            rows = found.setdefault(operator, {})
            if version in rows:
                raise AssertionError(f"{operator} of version {version} has two handlers")
            rows[version] = handler
    return {operator: tuple(sorted(rows.items(), reverse=True)) for operator, rows in found.items()}


def handlers_of(registry: Registry) -> Mapping[str, Rows]:
    """The rows of this wheel, and those of plug-ins."""
    added = plugin_handlers("onnx", table(), registry)
    return {**table(), **{name: _joined(table().get(name, ()), rows) for name, rows in added.items()}}


def _joined(own: Rows, others: Rows) -> Rows:
    """Rows of `others`, and of `own` for what versions they leave."""
    return tuple(sorted({**dict(own), **dict(others)}.items(), reverse=True))


def find_handler(handlers: Mapping[str, Rows], domain: str, operator: str, opset: int) -> Handler | None:
    """The handler of an operator as of an opset; None when there is none.

    A version of a standard operator that is newer than the table is not assumed to mean the same.
    """
    schema = find_schema(domain, operator, opset)
    version = opset if schema is None else schema.since_version
    oldest = NEWEST_OPSET + 1 if not domain and version > NEWEST_OPSET else 1
    for since, handler in handlers.get(qualified_name(domain, operator), ()):
        if oldest <= since <= version:
            return handler
    return None


def qualified_name(domain: str, operator: str) -> str:
    """An operator's name in the table."""
    return f"{domain}.{operator}" if domain else operator
