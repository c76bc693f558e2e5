"""TensorFlow itself, and the private names of it that are used."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hidet.errors import ImportFailed


@cache
def load_tensorflow() -> Any:
    """The module `tensorflow`. ImportFailed where it is not installed."""
    # Without this, its first import tells of its own build on standard error.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
    except ImportError as error:
        raise ImportFailed(
            f"TensorFlow cannot be imported: {error}",
            hint="pip install tensorflow-cpu, or tensorflow; a model that was saved with hidet runs without it",
        ) from error
    return tensorflow


@cache
def op_def(name: str) -> Any | None:
    """The OpDef of an operator; None for one that TensorFlow does not have."""
    load_tensorflow()
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(name)


@cache
def has_effect(name: str) -> bool:
    """Whether an operator changes a variable, or something else that outlives the call."""
    definition = op_def(name)
    if definition is None or not definition.is_stateful:
        return False
    return any(entry.type == _RESOURCE for entry in definition.input_arg) and not name.startswith(_READERS)


@cache
def has_cpu_kernel(name: str) -> bool:
    """Whether TensorFlow can run an operator on a CPU."""
    load_tensorflow()
    from tensorflow.python.framework import kernels

    return any(kernel.device_type == "CPU" for kernel in kernels.get_registered_kernels_for_op(name).kernel)


_RESOURCE = 20
"""DT_RESOURCE."""

_READERS: tuple[str, ...] = (
    "LookupTableExport",
    "LookupTableFind",
    "LookupTableSize",
    "ReadVariable",
    "ResourceGather",
    "VarHandle",
    "VarIsInitialized",
    "VariableShape",
)
"""What operators begin with that only read."""


def load_trained(path: str) -> Any:
    """A SavedModel without what its optimiser keeps for each variable, which only the Keras that saved it can load.

    It is read from a folder beside nothing else, whose large parts are links.
    """
    tf = load_tensorflow()
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    model = SavedModel()
    model.ParseFromString(Path(path, "saved_model.pb").read_bytes())
    for graph in model.meta_graphs:
        for node in graph.object_graph_def.nodes:
            node.ClearField("slot_variables")
    with tempfile.TemporaryDirectory() as folder:
        for part in Path(path).iterdir():
            if part.name != "saved_model.pb":
                Path(folder, part.name).symlink_to(part.resolve())
        Path(folder, "saved_model.pb").write_bytes(model.SerializeToString())
        return tf.saved_model.load(folder)


def keras_inputs(model: Any) -> Any | None:
    """The symbolic inputs of a Keras model in the structure that it is called with; None where it has none yet."""
    # Keras 3, then Keras 2.
    found = getattr(model, "_inputs_struct", getattr(model, "_nested_inputs", None))
    if found is None:
        inputs = getattr(model, "inputs", None)
        found = inputs[0] if inputs is not None and len(inputs) == 1 else inputs
    return found
