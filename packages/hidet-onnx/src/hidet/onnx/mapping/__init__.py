"""From ONNX operators to core operators: one table, put together from one module a family.

A family's `handlers()` gives functions by (operator, since-version): the name as ONNX has it, with the domain before it
where that is not ONNX's own ("ai.onnx.ml.Binarizer"), and the first version that the function is right for. A node gets
the newest row not above its operator's version in the model's opset.

A handler is called as `handler(emitter, *inputs, **attributes)`. Inputs are graph values, None for absent ones, and
trailing ones may be missing. Attributes are Python values (`hidet.onnx.attributes`), those with a default in the
operator's schema filled in, those without one left out. It returns one value, or a tuple as the operator has outputs;
None for an output that nobody asks for (`emitter.node.is_wanted`). It raises a HidetError for what it cannot express.

    elementwise                one element in, one element out
    reduce                     folds along axes, running folds
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

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from hidet.onnx.attributes import find_schema

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

Handler = Callable[..., Any]
Key = tuple[str, int]


@cache
def table() -> Mapping[str, tuple[tuple[int, Handler], ...]]:
    """For each operator its rows (since-version, handler), newest first."""
    found: dict[str, dict[int, Handler]] = {}
    for family in FAMILIES:
        for (operator, version), handler in import_module(f"hidet.onnx.mapping.{family}").handlers().items():
            rows = found.setdefault(operator, {})
            if version in rows:
                raise AssertionError(f"{operator} of version {version} has two handlers")
            rows[version] = handler
    return {operator: tuple(sorted(rows.items(), reverse=True)) for operator, rows in found.items()}


def find_handler(domain: str, operator: str, opset: int) -> tuple[int, Handler] | None:
    """The row of an operator as of an opset: its since-version and handler; None when there is none.

    A version of a standard operator that is newer than the table is not assumed to mean the same.
    """
    schema = find_schema(domain, operator, opset)
    version = opset if schema is None else schema.since_version
    if not domain and version > NEWEST_OPSET:
        return None
    for since, handler in table().get(qualified_name(domain, operator), ()):
        if since <= version:
            return since, handler
    return None


def qualified_name(domain: str, operator: str) -> str:
    """An operator's name in the table."""
    return f"{domain}.{operator}" if domain else operator
