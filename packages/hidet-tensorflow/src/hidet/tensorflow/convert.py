"""`compile`, `from_tensorflow`, `from_saved_model`: models of TensorFlow and Keras as graphs, and compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.compiler.graphs import compile as compile_model
from hidet.context import CompileContext, Options, make_context
from hidet.dims import Dim
from hidet.errors import ImportFailed
from hidet.frontend import arrays_by_name
from hidet.runtime.signature import ModelGraph
from hidet.tensorflow._plugin import is_tflite_model
from hidet.tensorflow.importer import import_model
from hidet.tensorflow.loader import LoadedModel, load_model, load_saved_model, load_signatures
from hidet.tensorflow.tflite.convert import import_for_compile as import_lite_model
from hidet.tensorflow.tflite.importer import import_lite
from hidet.tensorflow.tflite.loader import load_lite

if TYPE_CHECKING:
    from hidet.runtime.compiled import CompiledGraph


def compile(
    model: Any,
    example_inputs: Any = None,
    *,
    signature: str | None = None,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> CompiledGraph:
    """Compile a model of TensorFlow or Keras. What comes back is called as the model, and returns what it does.

    model: a Keras model, tf.function, tf.Module, concrete function or function of tensors; a path of a .keras, .h5 or
    .tflite file, or of a SavedModel. example_inputs: arguments in order or by name, arrays or tf.TensorSpec; None where
    the model says what it takes. Extents that are None, in the model or in a tf.TensorSpec, stay open.
    signature: of a SavedModel or TFLite file. target, options: as of `hidet.compile`. shapes, values: of inputs by
    name, in place of shapes that the model says, and arrays to build in.

    Variables become constants of the compiled model; saved, it runs without TensorFlow.
    """
    graph = from_tensorflow(model, example_inputs, signature=signature, shapes=shapes, values=values)
    return compile_model(graph, target=target, options=options)


def compile_signatures(
    path: str | os.PathLike[str],
    signatures: Sequence[str] | None = None,
    *,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
) -> dict[str, CompiledGraph]:
    """Compile several signatures of a SavedModel or TFLite file, for `hidet.save_signatures`; None is all of them.

    target, options: as of `hidet.compile`. Raises what `compile` raises, ImportFailed for a file without signatures.
    """
    context = make_context()
    if is_tflite_model(path):
        lite = load_lite(path)
        names = list(lite.signatures if signatures is None else signatures)
        graphs = {name: import_lite(lite, context, signature=name) for name in names}
    else:
        graphs = {
            name: _imported(loaded, context, None, None) for name, loaded in load_signatures(path, signatures).items()
        }
    if not graphs:
        raise ImportFailed(f"{os.fspath(path)} has no signatures", hint="`hidet.compile` takes it as it is")
    return {name: compile_model(graph, target=target, options=options) for name, graph in graphs.items()}


def from_tensorflow(
    model: Any,
    example_inputs: Any = None,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> ModelGraph:
    """The graph of a model and how it is called, for `hidet.compile`; arguments as of `compile`.

    ctx: None takes the installed plug-ins. Raises ImportFailed for what cannot be read, UnsupportedOp with the list of
    operators that are not known, ShapeNeeded and ValueNeeded for inputs whose shape or elements have to be given.
    """
    if is_tflite_model(model):
        context = ctx or make_context()
        return import_lite_model(model, example_inputs, context, signature=signature, shapes=shapes, values=values)
    loaded = load_model(model, example_inputs, signature=signature)
    return _imported(loaded, ctx or make_context(), shapes, values)


def from_saved_model(
    path: str | os.PathLike[str],
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> ModelGraph:
    """A signature of a SavedModel as `from_tensorflow` gives it; None is "serving_default"."""
    return _imported(load_saved_model(path, signature), ctx or make_context(), shapes, values)


def import_for_compile(
    model: Any,
    example_inputs: Any,
    ctx: CompileContext,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """What `hidet.compile` calls."""
    return _imported(load_model(model, example_inputs), ctx, shapes, values)


def _imported(
    model: LoadedModel,
    ctx: CompileContext,
    shapes: Mapping[str, Sequence[Dim]] | None,
    values: Mapping[str, Any] | None,
) -> ModelGraph:
    return import_model(model, ctx, shapes=shapes, values=arrays_by_name(values))
