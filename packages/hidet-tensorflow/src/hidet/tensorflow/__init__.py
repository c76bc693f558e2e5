"""hidet's TensorFlow front-end.

compile(model)            a compiled Keras model, tf.function, tf.Module or concrete function
compile_signatures(path)  several signatures of a SavedModel or TFLite file, for one artifact
from_tensorflow(model)    the same as a graph with its signature, for `hidet.compile`
from_saved_model(path)    a signature of a SavedModel as such a graph
from_tflite(path)         a TFLite file as such a graph; needs no TensorFlow
check(model)              the operators that cannot be imported

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
TensorFlow itself is imported when a model is: saved models run where it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.tensorflow.convert import compile, compile_signatures, from_saved_model, from_tensorflow
    from hidet.tensorflow.supported import Unsupported, check
    from hidet.tensorflow.tflite.convert import from_tflite

__all__ = [
    "Unsupported",
    "check",
    "compile",
    "compile_signatures",
    "from_saved_model",
    "from_tensorflow",
    "from_tflite",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "Unsupported": "supported",
        "check": "supported",
        "compile": "convert",
        "compile_signatures": "convert",
        "from_saved_model": "convert",
        "from_tensorflow": "convert",
        "from_tflite": "tflite.convert",
    },
)
