"""Reading a model: what TensorFlow or Keras calls one becomes a `LoadedModel`, a function and what it holds."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from hidet.dtypes import DType
from hidet.errors import HidetError, ImportFailed, suggestion
from hidet.runtime.signature import Entries, Form, GraphInput, Items, Parameter, Signature
from hidet.tensorflow.calls import CallForms, call_forms
from hidet.tensorflow.compat import keras_inputs, load_tensorflow, load_trained
from hidet.tensorflow.functions import Function, Library
from hidet.tensorflow.items import Item, Table, Variable
from hidet.tensorflow.value_types import RESOURCE, Shape, dtype_of

DEFAULT_SIGNATURE = "serving_default"
BATCH = "batch"
"""The name of the open first extent that all inputs of a Keras model have in common."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input. batch: the name of its open first axis, None where it is a size of its own."""

    name: str
    dtype: DType
    shape: Shape | None
    batch: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A function and what it is called with.

    main: takes `inputs`, then `captured`: variables, tables and arrays. signature: how the model is called.
    """

    name: str
    main: Function
    inputs: tuple[ModelInput, ...]
    captured: tuple[Item, ...]
    signature: Signature

    def signature_without(self, bound: Container[str]) -> Signature:
        """How the model is called when the inputs of these names are built in."""
        numbers: dict[int, int] = {}
        for number, entry in enumerate(self.inputs):
            if entry.name not in bound:
                numbers[number] = len(numbers)
        if len(numbers) == len(self.inputs):
            return self.signature
        parameters: list[Parameter] = []
        positional = 0
        for place, parameter in enumerate(self.signature.parameters):
            form = _renumbered(parameter.form, numbers)
            if form is not None:
                parameters.append(replace(parameter, form=form))
                positional += place < self.signature.positional
        return replace(self.signature, parameters=tuple(parameters), positional=positional)


def _renumbered(form: Form, numbers: Mapping[int, int]) -> Form | None:
    """A form without the inputs that are not in `numbers`; None where nothing is left of it."""
    if isinstance(form, GraphInput):
        number = None if form.number is None else numbers.get(form.number)
        return None if number is None else GraphInput(number)
    if isinstance(form, Items):
        items = tuple(made for item in form.items if (made := _renumbered(item, numbers)) is not None)
        return replace(form, items=items) if items else None
    if isinstance(form, Entries):
        entries = tuple((key, made) for key, item in form.entries if (made := _renumbered(item, numbers)) is not None)
        return Entries(entries) if entries else None
    return form


def load_model(model: Any, example_inputs: Any = None, *, signature: str | None = None) -> LoadedModel:
    """Read a model.

    model: a Keras model, tf.function, concrete function, tf.Module or layer that is called; a path ending in .keras or
    .h5, or of a SavedModel's folder. example_inputs: arguments, or tf.TensorSpec in their place, whose open extents
    stay open; for models that do not say what they take. signature: of a SavedModel; None is `DEFAULT_SIGNATURE`.
    Raises ImportFailed for files that cannot be read, and for a model that needs example inputs.
    """
    tf = load_tensorflow()
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        if os.path.isdir(path):
            return load_saved_model(path, signature, example_inputs)
        model = _attempt(f"Keras file {path}", lambda: tf.keras.models.load_model(path, compile=False))
    if signature is not None:
        raise ImportFailed(f"signature {signature!r} is given for a model that is no SavedModel")
    if isinstance(model, tf.types.experimental.ConcreteFunction):
        return _loaded(model, model.name, "")
    if isinstance(model, tf.keras.Model) and example_inputs is None:
        return _keras_model(model)
    return _called(model, example_inputs)


def load_saved_model(path: str | os.PathLike[str], signature: str | None, example_inputs: Any = None) -> LoadedModel:
    """One signature of a SavedModel. ImportFailed for a damaged one, and for a signature that it does not have."""
    return _signature_of(path, _read_saved_model(path), signature or DEFAULT_SIGNATURE, example_inputs)


def load_signatures(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> dict[str, LoadedModel]:
    """Signatures of a SavedModel by name, which is read once; None is all of them. Raises what `load_saved_model`
    raises."""
    saved = _read_saved_model(path)
    return {name: _signature_of(path, saved, name, None) for name in (saved.signatures if names is None else names)}


def _read_saved_model(path: str | os.PathLike[str]) -> Any:
    tf = load_tensorflow()
    saved = _attempt(f"SavedModel {os.fspath(path)}", lambda: _load(tf, os.fspath(path)))
    functions = tf.types.experimental.ConcreteFunction
    signatures = getattr(saved, "signatures", None)
    # In a damaged file they are whatever object its graph of objects has in their place.
    if not isinstance(signatures, Mapping) or not all(isinstance(each, functions) for each in signatures.values()):
        raise ImportFailed(f"SavedModel {os.fspath(path)} cannot be read: its signatures are no functions by name")
    return saved


def _signature_of(path: str | os.PathLike[str], saved: Any, name: str, example_inputs: Any) -> LoadedModel:
    if name not in saved.signatures:
        names = list(saved.signatures)
        raise ImportFailed(
            f"SavedModel {os.fspath(path)} has no signature {name!r}: it has {', '.join(names) or 'none'}",
            hint=suggestion(name, names) if names else "save it with signatures=, or model.export(path)",
        )
    found = saved.signatures[name]
    loaded = _loaded(found, name, "") if example_inputs is None else _called(found, example_inputs)
    # TensorFlow takes arguments of a signature by name alone, and gives them in the order of their names.
    calls = replace(loaded.signature, positional=len(loaded.signature.parameters))
    return replace(loaded, signature=calls)


def _load(tf: Any, path: str) -> Any:
    try:
        return tf.saved_model.load(path)
    except AttributeError:
        # Keras 3 knows no optimisers of Keras 2, whose models are otherwise fine.
        return load_trained(path)


def _attempt(what: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except HidetError:
        raise
    except Exception as error:
        raise ImportFailed(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def _keras_model(model: Any) -> LoadedModel:
    """A model that knows its inputs; the training flag is off."""
    tf = load_tensorflow()
    _require_own_backend(tf)
    inputs = keras_inputs(model)
    if inputs is None:
        raise ImportFailed(
            f"Keras model {model.name!r} does not say what it takes: it was not built from inputs",
            hint="give example_inputs: arrays, or tf.TensorSpec with None for sizes that stay open",
        )
    specs = tf.nest.map_structure(lambda entry: tf.TensorSpec(entry.shape, entry.dtype, entry.name), inputs)

    def call(inputs: Any) -> Any:
        return model(inputs, training=False)

    return _loaded(_traced(tf.function(call), (specs,), {}), model.name, BATCH)


def _require_own_backend(tf: Any) -> None:
    # Keras 2 has no other one.
    backend = tf.keras.config.backend() if hasattr(tf.keras, "config") else "tensorflow"
    if backend != "tensorflow":
        raise ImportFailed(
            f"Keras runs on {backend} in this process", hint="set KERAS_BACKEND=tensorflow before keras is imported"
        )


def _called(model: Any, example_inputs: Any) -> LoadedModel:
    """What is called, traced with the examples."""
    tf = load_tensorflow()
    if not callable(model):
        raise ImportFailed(
            f"an object of type {type(model).__name__} cannot be called",
            hint="a tf.Module needs a method __call__; of a SavedModel pass the path, or one of its signatures",
        )
    name = getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__
    kinds = tf.types.experimental.PolymorphicFunction
    # Of a tf.Module, the method that is a tf.function already.
    function = next((part for part in (model, model.__call__) if isinstance(part, kinds)), None)
    if function is None:
        function = tf.function(_without_training(model))
    elif example_inputs is None and function.input_signature is not None:
        return _loaded(_traced(function, (), {}), str(name), "")
    if example_inputs is None:
        raise ImportFailed(
            f"{name} does not say what it takes",
            hint="give example_inputs: arrays, or tf.TensorSpec with None for sizes that stay open",
        )
    args, kwargs = _arguments(example_inputs)
    return _loaded(_traced(function, args, kwargs), str(name), "")


def _without_training(model: Any) -> Callable[..., Any]:
    """The model's call with the training flag off, where it has one, under the names of its own parameters."""
    declared = inspect.signature(getattr(model, "call", model))
    fixed = {"training": False} if "training" in declared.parameters else {}

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs, **fixed)

    kept = [parameter for parameter in declared.parameters.values() if parameter.name not in fixed]
    call.__signature__ = declared.replace(parameters=kept)  # type: ignore[attr-defined]  # functions may have one
    return call


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as arguments by position and by name; arrays become descriptions of them."""
    tf = load_tensorflow()

    def described(value: Any) -> Any:
        if isinstance(value, tf.TensorSpec) or not hasattr(value, "__array__"):
            return value
        array = value if hasattr(value, "dtype") else numpy.asarray(value)
        return tf.TensorSpec(array.shape, array.dtype)

    described_inputs = tf.nest.map_structure(described, example_inputs)
    if isinstance(example_inputs, Mapping):
        return (), dict(described_inputs)
    if isinstance(example_inputs, list | tuple):
        return tuple(described_inputs), {}
    return (described_inputs,), {}


def _traced(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return _attempt("the model's code", lambda: function.get_concrete_function(*args, **kwargs))


def _loaded(concrete: Any, name: str, batch: str) -> LoadedModel:
    """batch: the name of the size that open first axes are, "" where each is one of its own."""
    proto = concrete.function_def
    library = Library(concrete.graph.as_graph_def().library)
    main = library.read(proto)
    captured = tuple(concrete.captured_inputs)
    specs = concrete.inputs[: len(concrete.inputs) - len(captured)]
    forms = call_forms(concrete, len(specs))
    inputs = tuple(
        ModelInput(
            forms.names[number],
            dtype_of(spec.dtype.as_datatype_enum),
            None if spec.shape.rank is None else tuple(spec.shape.as_list()),
            batch or None,
        )
        for number, spec in enumerate(specs)
    )
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    items = tuple(_captured(tensor, variables) for tensor in captured)
    return LoadedModel(name, main, inputs, items, _signature(forms))


def _signature(forms: CallForms) -> Signature:
    return Signature(forms.parameters, forms.positional, results=forms.results)


def _captured(tensor: Any, variables: Mapping[int, Any]) -> Item:
    """What a function has from around it: a variable, a table, or a tensor."""
    if tensor.dtype.as_datatype_enum != RESOURCE:
        return _array(tensor)
    variable = variables.get(id(tensor))
    if variable is not None:
        return Variable(variable.name, _array(variable.read_value()))
    return Table(tensor)


def _array(tensor: Any) -> Any:
    """The elements of a tensor, in its memory where numpy can use it.

    TensorFlow writes to other memory when a variable changes whose memory somebody else holds, too.
    """
    try:
        return numpy.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        # Strings, and types that numpy itself does not know.
        return tensor.numpy()
