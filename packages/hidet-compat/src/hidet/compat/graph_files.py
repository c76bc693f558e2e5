"""Flow graphs in files, `hidet.save_graph` and `hidet.load_graph`: text and arrays, so that opening one runs nothing.

A zip with `graph.hir`, the graph as the compiler prints it whose constants are inputs behind its own; `constants.npz`,
their bytes; and `graph.json`, their types, and where the graph is.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import replace
from typing import Any

import numpy

from hidet import dtypes
from hidet.api.flow import FlowGraph, trace_from
from hidet.api.flow.operation import apply_graph
from hidet.api.tensors.create import symbol
from hidet.api.tensors.tensor import Tensor, placed
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry

_FORMAT = 1


def save_graph(graph: FlowGraph, model_file: str | os.PathLike[str]) -> None:
    """Write a graph with its constants into a file. UnsupportedOp for operators of a user, which are Python."""
    inner = graph.graph
    known = load_registry().operators
    own = next((node.op.name for node in inner.nodes if known.get(node.op.name) is not node.op), None)
    if own is not None:
        raise UnsupportedOp(
            f"a graph with operators of one's own, {own}, is not saved", hint="graph.build().save(path) saves its code"
        )
    constants = {value: numpy.ascontiguousarray(held.numpy()) for value, held in inner.constants.items()}
    told = {
        "format": _FORMAT,
        "device": graph.device,
        "inputs": len(inner.inputs),
        "constants": [value.tensor.dtype.name for value in constants],
    }
    arrays = io.BytesIO()
    held = {str(number): _as_bytes(array) for number, array in enumerate(constants.values())}
    numpy.savez(arrays, **held)
    with zipfile.ZipFile(model_file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.hir", str(replace(inner, inputs=(*inner.inputs, *constants), constants={})))
        archive.writestr("constants.npz", arrays.getvalue())
        archive.writestr("graph.json", json.dumps(told))


def load_graph(model_file: str | os.PathLike[str]) -> FlowGraph:
    """The graph that `save_graph` wrote. ImportFailed for another file."""
    try:
        with zipfile.ZipFile(model_file) as archive:
            told: dict[str, Any] = json.loads(archive.read("graph.json"))
            text = archive.read("graph.hir").decode()
            arrays: Any = numpy.load(io.BytesIO(archive.read("constants.npz")), allow_pickle=False)
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ImportFailed(f"{os.fspath(model_file)} is no graph that hidet.save_graph wrote: {error}") from error
    if told["format"] != _FORMAT:
        raise ImportFailed(f"{os.fspath(model_file)} has format {told['format']}, this hidet reads {_FORMAT}")
    parsed, device = parse_graph(text, load_registry().operators), told["device"]
    own = parsed.inputs[: told["inputs"]]
    inputs = [symbol(value.tensor.shape, value.tensor.dtype, device) for value in own]
    constants = [
        _constant(arrays[str(number)], value.tensor.shape, name, device)
        for number, (value, name) in enumerate(zip(parsed.inputs[len(own) :], told["constants"], strict=True))
    ]
    return trace_from(apply_graph(parsed, [*inputs, *constants]), inputs)


def _as_bytes(array: Any) -> Any:
    """Types of ml_dtypes are no types of a file of numpy's."""
    return array.reshape(-1).view(numpy.uint8)


def _constant(data: Any, shape: Any, name: str, device: str) -> Tensor:
    return placed(data.view(dtypes.dtype(name).numpy()).reshape(shape), device)
