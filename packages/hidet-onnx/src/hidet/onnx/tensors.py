"""Tensors of a model file as numpy arrays: inline data, and data in files beside the model, which is memory-mapped."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from hidet.errors import HidetError, ImportFailed
from hidet.onnx.value_types import MAX_RANK, dtype_of
from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from onnx import SparseTensorProto


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where a model's external data lie: the model's folder; None for a model that came without a file.

    model: the model's own file, in which the data of large weights stay.
    """

    path: Path | None = None
    model: Path | None = None

    def file(self, location: str, tensor: str) -> Path:
        """The file that `location` names. ImportFailed when it is missing, or leaves the model's folder.

        A symbolic link that leads out of the folder leaves it, too: a model may come from anyone.
        """
        if self.path is None:
            raise ImportFailed(
                f"tensor {tensor!r} has its data in file {location!r}, but the model was not read from a file",
                hint="pass the path of the model, or onnx.load it with its external data",
            )
        if self.model is not None and location == self.model.name:
            return self.model
        if not location or "\0" in location or os.path.isabs(location) or Path(location).drive:
            raise ImportFailed(f"tensor {tensor!r} has its data in {location!r}: expected a path relative to the model")
        root = self.path.resolve()
        found = (root / location).resolve()
        if not found.is_relative_to(root):
            raise ImportFailed(
                f"tensor {tensor!r} has its data in {location!r}, which is outside the model's folder {root}",
                hint="a model may only read files beside it; move the file there",
            )
        if not found.is_file():
            raise ImportFailed(f"tensor {tensor!r} has its data in {found}, which is not a file that exists")
        return found


def tensor_array(tensor: TensorProto, folder: DataFolder) -> Any:
    """The elements of a tensor as a read-only numpy array; types below 8 bits have one element a byte, strings are str.

    Raises ImportFailed that names the tensor when its data do not fit its type and shape. Nothing is allocated for
    elements that are not there.
    """
    dtype = dtype_of(tensor.data_type)
    shape = tuple(tensor.dims)
    name = tensor.name
    if len(shape) > MAX_RANK or any(extent < 0 for extent in shape):
        raise ImportFailed(
            f"tensor {name!r} has shape {list(shape)}: expected at most {MAX_RANK} extents, none below 0"
        )
    count = math.prod(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder, shape, count)
    try:
        if tensor.HasField("raw_data"):
            _require_bytes(name, dtype.packed_nbytes(count), len(tensor.raw_data))
        array = numpy_helper.to_array(tensor)
    except HidetError:
        raise
    except Exception as error:
        raise ImportFailed(f"tensor {name!r} of {dtype.name}{list(shape)} has damaged data: {error}") from error
    array.flags.writeable = False
    return array


def _external(tensor: TensorProto, folder: DataFolder, shape: tuple[int, ...], count: int) -> Any:
    """A view of the mapped file; elements below 8 bits are unpacked into memory."""
    name = tensor.name
    dtype = dtype_of(tensor.data_type)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = folder.file(entries.get("location", ""), name)
    try:
        offset = int(entries.get("offset") or 0)
        size = path.stat().st_size
        # What follows in the file belongs to other tensors where a length is left out (ONNX, "External Data").
        length = int(entries.get("length") or dtype.packed_nbytes(count))
    except ValueError as error:
        raise ImportFailed(f"tensor {name!r} has a place in {path} that is no number: {error}") from error
    if offset < 0 or length < 0 or offset + length > size:
        raise ImportFailed(
            f"tensor {name!r} lies at bytes {offset} to {offset + length} of {path}, which has {size} bytes"
        )
    _require_bytes(name, dtype.packed_nbytes(count), length)
    if dtype.is_subbyte:
        return _unpacked(tensor, path, offset, length)
    if count == 0:
        return numpy.zeros(shape, dtype.numpy())
    mapped = numpy.memmap(path, numpy.uint8, mode="r", offset=offset, shape=(length,))
    return numpy.asarray(mapped).view(dtype.numpy()).reshape(shape)


def _unpacked(tensor: TensorProto, path: Path, offset: int, length: int) -> Any:
    with path.open("rb") as file:
        file.seek(offset)
        inline = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=file.read(length))
    return numpy_helper.to_array(inline)


def _require_bytes(name: str, needed: int, found: int) -> None:
    if needed != found:
        raise ImportFailed(f"tensor {name!r} needs {needed} bytes of data, but has {found}")


def sparse_array(sparse: SparseTensorProto, folder: DataFolder, budget: int) -> Any:
    """A sparse tensor made dense. ImportFailed when that would take more than `budget` bytes."""
    values = tensor_array(sparse.values, folder)
    indices = tensor_array(sparse.indices, folder)
    shape = tuple(sparse.dims)
    nbytes = math.prod(shape) * values.itemsize
    name = sparse.values.name
    if any(extent < 0 for extent in shape) or nbytes > budget:
        raise ImportFailed(f"sparse tensor {name!r} of shape {list(shape)} would take {nbytes} bytes as a dense one")
    dense = numpy.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise ImportFailed(f"sparse tensor {name!r} has positions outside its shape {list(shape)}: {error}") from error
    return dense
