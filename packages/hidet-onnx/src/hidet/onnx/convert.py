"""`from_onnx`: a model as a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed
from hidet.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> Graph:
    """The graph of a model, for `hidet.compile`.

    model: a path, the file's bytes or a ModelProto. shapes: shapes of inputs by name, in place of what the model says;
    sizes that it leaves open stay symbolic. values: inputs by name that are bound to these arrays and are no inputs of
    the graph any more. ctx: None takes the installed plug-ins.

    Initialisers become constants, over the memory-mapped file where they are external data. Raises ImportFailed for a
    damaged model, UnsupportedOp with the list of operators that are not known.
    """
    import numpy

    from hidet.context import make_context
    from hidet.onnx.importer import import_model
    from hidet.onnx.loader import load_model

    arrays = {name: numpy.asarray(value) for name, value in (values or {}).items()}
    fixed = {**{name: array.shape for name, array in arrays.items()}, **(shapes or {})}
    return import_model(load_model(model), ctx or make_context(), shapes=fixed, values=arrays, must_bind=True).graph


def import_for_compile(model: Any, example_inputs: Any, ctx: CompileContext) -> Graph:
    """What `hidet.compile` calls. Example inputs, in order or by name, give the shapes that the model leaves open."""
    if example_inputs is None:
        return from_onnx(model, ctx=ctx)
    raise ImportFailed(
        "an ONNX model says the types of its inputs itself: example inputs are not read",
        hint="hidet.compile(hidet.onnx.from_onnx(model, shapes={...}))",
    )
