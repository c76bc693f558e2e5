"""`from_tflite`: a TFLite file as a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet.context import CompileContext, make_context
from hidet.dims import Dim
from hidet.errors import ImportFailed
from hidet.frontend import arrays_by_name
from hidet.runtime.signature import ModelGraph
from hidet.tensorflow.tflite.importer import import_lite
from hidet.tensorflow.tflite.loader import load_lite


def from_tflite(
    model: str | os.PathLike[str] | bytes,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    ctx: CompileContext | None = None,
) -> ModelGraph:
    """The graph of a TFLite file and how it is called, for `hidet.compile`. TensorFlow is not needed.

    model: a path, or the file's bytes. signature: one that the file names; None is the only one. A model with
    signatures is called with its inputs by name or in order, and returns its outputs by name; one without returns them
    in order. shapes, values: of inputs by name, in place of shapes that the file says, and arrays to build in.

    What the file holds as codes stays codes: products of 8-bit tensors are computed in integers; weights of 8 bits
    that meet floats are converted where they are read. Raises ImportFailed for a damaged file, UnsupportedOp with the
    list of operators that are not known.
    """
    return import_for_compile(model, None, ctx or make_context(), signature=signature, shapes=shapes, values=values)


def import_for_compile(
    model: Any,
    example_inputs: Any,
    ctx: CompileContext,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """What `hidet.compile` calls. Example inputs, in order or by name, give the shapes of inputs; their elements are
    not read."""
    loaded = load_lite(model)
    fixed = dict(shapes or {})
    if example_inputs is not None:
        names = list(loaded.signature(signature).inputs)
        given = example_inputs if isinstance(example_inputs, Mapping) else _by_name(names, example_inputs)
        fixed = {**{name: tuple(numpy.shape(array)) for name, array in given.items()}, **fixed}
    return import_lite(loaded, ctx, signature=signature, shapes=fixed, values=arrays_by_name(values))


def _by_name(names: Sequence[str], given: Any) -> dict[str, Any]:
    arrays = list(given) if isinstance(given, list | tuple) else [given]
    if len(arrays) != len(names):
        raise ImportFailed(f"{len(arrays)} example inputs are given, the model takes {', '.join(names) or 'none'}")
    return dict(zip(names, arrays, strict=True))
