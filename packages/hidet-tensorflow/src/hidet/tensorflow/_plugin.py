"""Plug-in module of the TensorFlow front-end: what hidet-tensorflow offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import FrontendSpec

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1

_SUFFIXES = (".keras", ".h5")
_LIBRARIES = ("tensorflow", "keras", "tf_keras")


def is_tensorflow_model(model: object) -> bool:
    """Whether `model` is a path of a Keras file or of a SavedModel's folder, or an object of TensorFlow or Keras.

    Keras models on torch are modules of torch's.
    """
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        return path.endswith(_SUFFIXES) or os.path.isfile(os.path.join(path, "saved_model.pb"))
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    return not roots.isdisjoint(_LIBRARIES) and "torch" not in roots


def is_tflite_model(model: object) -> bool:
    """Whether `model` is a path of a TFLite file."""
    return isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".tflite")


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Models of TensorFlow and Keras, and TensorFlow's tensors; TFLite files."""
    return [
        FrontendSpec(
            name="tensorflow",
            accepts=is_tensorflow_model,
            load="hidet.tensorflow.convert:import_for_compile",
            tensor_types=("tensorflow.python.framework.ops.EagerTensor",),
            adapter="hidet.tensorflow.tensors:TensorFlowAdapter",
            fixes_inputs=True,
            doc="a Keras model, tf.function, tf.Module or concrete function; a path ending in .keras or .h5, or the "
            "folder of a SavedModel",
        ),
        FrontendSpec(
            name="tflite",
            accepts=is_tflite_model,
            load="hidet.tensorflow.tflite.convert:import_for_compile",
            fixes_inputs=True,
            doc="a TFLite model: a path ending in .tflite",
        ),
    ]


def hidet_operators() -> Iterable[OperatorSpec]:
    """The search for labels of speech."""
    from hidet.tensorflow.beam_search import SPEC

    return [SPEC]


def hidet_routines() -> Iterable[RoutineSpec]:
    """Its algorithm."""
    from hidet.tensorflow.beam_search import ROUTINE

    return [ROUTINE]
