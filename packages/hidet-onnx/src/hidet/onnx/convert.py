"""`from_onnx`: a model as a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from hidet.context import CompileContext, make_context
from hidet.dims import Dim
from hidet.dtypes import from_numpy
from hidet.errors import ImportFailed
from hidet.graph import Graph, TensorType
from hidet.onnx.importer import import_model
from hidet.onnx.loader import load_model
from hidet.onnx.value_types import dtype_of, type_of_argument

if TYPE_CHECKING:
    from hidet.onnx.loader import LoadedModel
    from hidet.onnx.value_types import ArgumentType
    from onnx import ModelProto, TypeProto


def from_onnx(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> Graph:
    """The graph of a model, for `hidet.compile`.

    model: a path, the file's bytes or a ModelProto. shapes: shapes of inputs by name, in place of what the model says;
    sizes that it leaves open stay symbolic. values: inputs by name that are bound to these arrays or numbers and are no
    inputs of the graph any more. ctx: None takes the installed plug-ins.

    Initialisers become constants, over the memory-mapped file where they are external data. Raises ImportFailed for a
    damaged model, UnsupportedOp with the list of operators that are not known, ShapeNeeded and ValueNeeded for inputs
    whose shape or elements have to be given.
    """
    return import_for_compile(model, None, ctx or make_context(), shapes=shapes, values=values)


def import_for_compile(
    model: Any,
    example_inputs: Any,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Graph:
    """What `hidet.compile` calls. Example inputs, in order or by name, give the sizes that the model leaves open; their
    elements are not read. shapes, values: as of `from_onnx`."""
    loaded = load_model(model)
    arrays = given_arrays(loaded, values or {})
    types = {} if example_inputs is None else _types_of(loaded, example_inputs)
    fixed = {**types, **{name: array.shape for name, array in arrays.items()}, **(shapes or {})}
    return import_model(loaded, ctx, shapes=fixed, values=arrays, must_bind=True).graph


def declared_inputs(model: LoadedModel) -> dict[str, TypeProto]:
    """The types that a model declares of its inputs, by name; those that initialisers give are none."""
    graph = model.proto.graph
    held = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    return {entry.name: entry.type for entry in graph.input if entry.name not in held}


def given_arrays(model: LoadedModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays for inputs by name. What is no array (a number, a list of numbers) gets the type of its input.

    ImportFailed for a value that is none of the input's type.
    """
    declared = declared_inputs(model)
    return {name: given_array(declared.get(name), value, name) for name, value in values.items()}


def given_array(declared: TypeProto | None, value: Any, name: str) -> Any:
    """An array for an input that the model declares to be a tensor of that type; None for an unknown name.

    ImportFailed for what does not fit: numbers that the type cannot hold, arrays of another type.
    """
    if declared is None or declared.WhichOneof("value") != "tensor_type":
        return value if isinstance(value, list | tuple) or value is None else numpy.asarray(value)
    dtype = dtype_of(declared.tensor_type.elem_type)
    if hasattr(value, "__array__"):
        array = numpy.asarray(value)
        if array.dtype.kind not in "OUST" and from_numpy(array.dtype) != dtype:
            raise ImportFailed(f"input {name!r} is given as {from_numpy(array.dtype)}, the model declares {dtype}")
        _require_shape(declared, array.shape, f"input {name!r}")
        return array
    try:
        exact = numpy.asarray(value)
        array = exact.astype(dtype.numpy())
    except (TypeError, ValueError, OverflowError) as error:
        raise ImportFailed(f"input {name!r} is {value!r}, which is no array of {dtype}: {error}") from error
    if (dtype.is_int or dtype.is_bool) and not numpy.array_equal(array, exact):
        raise ImportFailed(f"input {name!r} is {value!r}, which {dtype} cannot hold")
    _require_shape(declared, array.shape, f"input {name!r}")
    return array


def _require_shape(declared: TypeProto, shape: Sequence[Dim], what: str) -> None:
    """ImportFailed for a shape that a declared tensor type does not admit."""
    tensor = declared.tensor_type
    if not tensor.HasField("shape"):
        return
    wanted = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if len(wanted) != len(shape) or any(n not in (None, m) for n, m in zip(wanted, shape, strict=True)):
        text = ", ".join("?" if extent is None else str(extent) for extent in wanted)
        raise ImportFailed(f"{what} is {list(shape)}, the model declares [{text}]")


def _types_of(model: LoadedModel, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, ArgumentType]:
    """The types of a model's inputs by arrays for them. ImportFailed for arrays that do not fit what is declared."""
    declared = declared_inputs(model)
    names = list(given) if isinstance(given, Mapping) else list(declared)[: len(given)]
    arrays = list(given.values()) if isinstance(given, Mapping) else list(given)
    if set(names) != set(declared) or len(arrays) != len(declared):
        what = ", ".join(names) if isinstance(given, Mapping) else str(len(arrays))
        raise ImportFailed(f"example inputs are {what or 'none'}, the model takes {', '.join(declared) or 'none'}")
    types = {name: type_of_argument(declared[name], array, name) for name, array in zip(names, arrays, strict=True)}
    for name, type_ in types.items():
        if isinstance(type_, TensorType):
            _require_shape(declared[name], type_.shape, f"example input {name!r}")
    return types
