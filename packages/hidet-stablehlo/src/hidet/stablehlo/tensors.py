"""jax's arrays for the run time: read where they lie, and made of memory that calls wrote."""

from __future__ import annotations

import sys
from typing import Any

import numpy

from hidet.errors import DTypeError
from hidet.runtime.adapter import NumpyAdapter


def _finished(array: Any) -> Any:
    """An array of jax. jax shares the memory of arrays that are aligned as it wants them, and copies others."""
    jax = sys.modules["jax"]
    return jax.numpy.asarray(array)


class JaxAdapter(NumpyAdapter):
    """Arrays of jax are immutable: calls read them as numpy's without copying, and write arrays that become jax's."""

    finished = staticmethod(_finished)

    def convert(self, value: Any) -> Any:
        """The value as an array: the memory of jax's own, read-only."""
        jax = sys.modules["jax"]
        if not isinstance(value, jax.Array):
            return super().convert(value)
        if isinstance(value, jax.core.Tracer):
            raise DTypeError("an array that jax traces has no elements: call compiled graphs outside of jax.jit")
        array = numpy.asarray(value)
        view = array.view()
        view.flags.writeable = False
        return view
