"""`from_onnx`: a model as a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.errors import ImportFailed
from hidet.graph import Graph, TensorType

if TYPE_CHECKING:
    from hidet.onnx.loader import LoadedModel
    from hidet.onnx.value_types import ArgumentType
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
    """What `hidet.compile` calls. Example inputs, in order or by name, give the sizes that the model leaves open; their
    elements are not read."""
    if example_inputs is None:
        return from_onnx(model, ctx=ctx)
    from hidet.onnx.importer import import_model
    from hidet.onnx.loader import load_model

    loaded = load_model(model)
    return import_model(loaded, ctx, shapes=_types_of(loaded, example_inputs), must_bind=True).graph


def _types_of(model: LoadedModel, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, ArgumentType]:
    """The types of a model's inputs by arrays for them. ImportFailed for arrays that do not fit what is declared."""
    from hidet.onnx.value_types import type_of_argument

    graph = model.proto.graph
    held = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    declared = {entry.name: entry.type for entry in graph.input if entry.name not in held}
    names = list(given) if isinstance(given, Mapping) else list(declared)[: len(given)]
    arrays = list(given.values()) if isinstance(given, Mapping) else list(given)
    if set(names) != set(declared) or len(arrays) != len(declared):
        what = ", ".join(names) if isinstance(given, Mapping) else str(len(arrays))
        raise ImportFailed(f"example inputs are {what or 'none'}, the model takes {', '.join(declared) or 'none'}")
    types = {name: type_of_argument(declared[name], array, name) for name, array in zip(names, arrays, strict=True)}
    for name, type_ in types.items():
        tensor = declared[name].tensor_type
        if isinstance(type_, TensorType) and tensor.HasField("shape"):
            wanted = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            if len(wanted) != type_.rank or any(n not in (None, m) for n, m in zip(wanted, type_.shape, strict=True)):
                text = ", ".join("?" if extent is None else str(extent) for extent in wanted)
                raise ImportFailed(f"example input {name!r} is {list(type_.shape)}, the model declares [{text}]")
    return types
