"""TensorFlow's tensors for the run time: read where they lie, through DLPack, and made of memory that calls wrote."""

from __future__ import annotations

from typing import Any

import numpy

from hidet.errors import DTypeError
from hidet.runtime.adapter import NumpyAdapter
from hidet.tensorflow.compat import load_tensorflow


def _finished(array: Any) -> Any:
    """A tensor in the memory of an array. Types that DLPack does not know, and scattered elements, are copied."""
    tf = load_tensorflow()
    if array.flags.c_contiguous and array.size and array.dtype.isbuiltin == 1 and not array.dtype.hasobject:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.constant(array)


class TensorFlowAdapter(NumpyAdapter):
    """Eager tensors are immutable: calls read them as arrays without copying, and write arrays that become tensors."""

    finished = staticmethod(_finished)

    def convert(self, value: Any) -> Any:
        """The value as an array: a tensor's own memory, read-only."""
        tf = load_tensorflow()
        if not isinstance(value, tf.Tensor):
            return super().convert(value)
        try:
            array = numpy.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            # Strings, and types that numpy itself does not know.
            try:
                array = value.numpy()
            except (AttributeError, NotImplementedError) as error:
                raise DTypeError(f"a tensor of a graph that TensorFlow traces has no elements: {value}") from error
        view = numpy.asarray(array).view()
        view.flags.writeable = False
        return view
