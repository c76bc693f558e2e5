"""Reading a TFLite file: a path or bytes become a `LiteModel`, whose weights stay where the file has them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, suggestion
from hidet.tensorflow.tflite.flatbuffer import File, Table
from hidet.tensorflow.tflite.schema import CUSTOM, DTYPES, FIELDS, IDENTIFIER, OPERATORS, VERSION

MAX_RANK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Quantisation:
    """What codes stand for: (code - zero) * scale. scale: f32[n]. zero: i64[n]. axis: what n entries lie along."""

    scale: Any
    zero: Any
    axis: int

    def equals(self, other: Quantisation | None) -> bool:
        """Whether codes of both stand for the same numbers."""
        return (
            other is not None
            and numpy.array_equal(self.scale, other.scale)
            and numpy.array_equal(self.zero, other.zero)
            and (self.axis == other.axis or self.scale.size == 1)
        )


@dataclass(frozen=True, slots=True, eq=False)
class LiteTensor:
    """A tensor of a sub-graph. dtype: None for a type that is not known. shape: None for open extents. data: its
    elements, where the file has them. is_variable: whether it keeps its elements from call to call."""

    name: str
    dtype: DType | None
    type_number: int
    shape: tuple[int | None, ...]
    quantisation: Quantisation | None
    data: Any | None
    is_variable: bool


@dataclass(frozen=True, slots=True, eq=False)
class LiteNode:
    """A node. operator: its name, that of a custom one as the file has it. inputs: numbers of tensors, -1 for an absent
    one. options: by name. custom: bytes of a custom operator's options. number: which node of its sub-graph it is."""

    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    custom: bytes
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class LiteGraph:
    """A sub-graph: numbers are of its tensors."""

    name: str
    tensors: Sequence[LiteTensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: Sequence[LiteNode]


@dataclass(frozen=True, slots=True, eq=False)
class LiteSignature:
    """How a sub-graph is called: names of its inputs and outputs, by the tensor's number."""

    name: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    graph: int


@dataclass(frozen=True, slots=True, eq=False)
class LiteModel:
    """A file. signatures: by name; files of old converters have none."""

    name: str
    graphs: Sequence[LiteGraph]
    signatures: Mapping[str, LiteSignature]

    def signature(self, name: str | None) -> LiteSignature:
        """A signature; None is the only one, else "serving_default". ImportFailed where there is none of that name.

        A file without signatures has one of no name: the inputs and outputs of its first sub-graph.
        """
        if not self.signatures and name is None:
            graph = self.graphs[0]
            return LiteSignature("", _named(graph, graph.inputs), _named(graph, graph.outputs), 0)
        names = list(self.signatures)
        wanted = name or (names[0] if len(names) == 1 else "serving_default")
        if wanted not in self.signatures:
            raise ImportFailed(
                f"{self.name} has no signature {wanted!r}: it has {', '.join(names) or 'none'}",
                hint=suggestion(wanted, names) if names else "leave the signature out",
            )
        return self.signatures[wanted]


def _named(graph: LiteGraph, numbers: Sequence[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number in numbers:
        name = graph.tensors[number].name or f"tensor_{number}"
        found[name if name not in found else f"{name}_{number}"] = number
    return found


def load_lite(source: str | os.PathLike[str] | bytes) -> LiteModel:
    """Read a model. Weights are views of the file, which is mapped into memory.

    ImportFailed for a missing or damaged file, with the byte where that shows, and for one that is no TFLite model.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _Reader(File(memoryview(source).cast("B"), "the model")).model()
    path = Path(source)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Nothing can be mapped of an empty file. Arrays over the map keep it open.
            data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise ImportFailed(f"model file {path} cannot be read: {error.strerror or error}") from error
    return _Reader(File(memoryview(data), f"model file {path}")).model()


class _Reader:
    def __init__(self, file: File) -> None:
        self.file = file
        self.spans: dict[int, tuple[int, int]] = {}

    def model(self) -> LiteModel:
        file = self.file
        if bytes(file.data[4:8]) != IDENTIFIER:
            raise ImportFailed(
                f"{file.name} is no TFLite model: bytes 4 to 8 are {bytes(file.data[4:8])!r}, expected {IDENTIFIER!r}"
            )
        root = file.root()
        version = root.number(0, "I")
        if version != VERSION:
            raise ImportFailed(f"{file.name} has version {version} of TFLite's schema, expected {VERSION}")
        operators = [self._operator(code) for code in root.tables(1)]
        buffers = root.tables(4)
        graphs = [self._graph(table, operators, buffers) for table in root.tables(2)]
        if not graphs:
            raise ImportFailed(f"{file.name} has no sub-graph")
        found = [self._signature(table, graphs) for table in root.tables(7)]
        return LiteModel(file.name, graphs, {signature.name: signature for signature in found})

    def _operator(self, code: Table) -> str:
        # The first field has one byte, which is 127 for numbers that do not fit.
        number: int = max(code.number(0, "b"), code.number(3, "i"))
        if number == CUSTOM:
            return code.text(1)
        if 0 <= number < len(OPERATORS):
            return OPERATORS[number]
        return f"operator {number}"

    def _graph(self, table: Table, operators: Sequence[str], buffers: Sequence[Table]) -> LiteGraph:
        tensors = [self._tensor(entry, buffers) for entry in table.tables(0)]
        inputs, outputs = (self._numbers(table, field, len(tensors), 0) for field in (1, 2))
        nodes = [self._node(entry, number, operators, len(tensors)) for number, entry in enumerate(table.tables(3))]
        return LiteGraph(table.text(4), tensors, inputs, outputs, nodes)

    def _numbers(self, table: Table, field: int, count: int, least: int) -> tuple[int, ...]:
        """Numbers of tensors. ImportFailed for one that the sub-graph does not have."""
        numbers = tuple(int(number) for number in table.array(field, numpy.int32))
        wrong = next((number for number in numbers if not least <= number < count), None)
        if wrong is not None:
            raise self.file.damaged(table.at, f"tensor {wrong} of {count}")
        return numbers

    # --- tensors -------------------------------------------------------------------------------------------------

    def _tensor(self, table: Table, buffers: Sequence[Table]) -> LiteTensor:
        name = table.text(3)
        fixed = [int(extent) for extent in table.array(0, numpy.int32)]
        signature = [int(extent) for extent in table.array(7, numpy.int32)]
        extents = signature if len(signature) == len(fixed) else fixed
        if len(extents) > MAX_RANK:
            raise self.file.damaged(table.at, f"tensor {name!r} has {len(extents)} axes, expected {MAX_RANK} at most")
        if table.has(6):
            raise ImportFailed(f"{self.file.name}: tensor {name!r} is sparse, which is not known")
        number = table.number(1, "b")
        dtype = DTYPES.get(number)
        quantisation = self._quantisation(table.table(4), name, extents)
        data = self._data(table, name, dtype, fixed, buffers)
        if data is not None and dtype is not None and dtype.bits == 4:
            dtype = dtypes.i8
        shape = tuple(None if extent < 0 else extent for extent in (extents if data is None else fixed))
        return LiteTensor(name, dtype, number, shape, quantisation, data, bool(table.number(5, "?")))

    def _quantisation(self, table: Table | None, name: str, shape: Sequence[int]) -> Quantisation | None:
        if table is None:
            return None
        scale, zero = table.array(2, numpy.float32), table.array(3, numpy.int64)
        if scale.size == 0:
            return None
        axis = table.number(6, "i")
        fits = scale.size == 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
        if not fits or zero.size not in (0, 1, scale.size):
            raise self.file.damaged(
                table.at, f"tensor {name!r} of shape {list(shape)} has {scale.size} scales and {zero.size} zero points"
            )
        if not numpy.isfinite(scale).all() or (scale <= 0).any():
            raise self.file.damaged(table.at, f"tensor {name!r} has a scale that is no positive number")
        if (numpy.abs(zero) > 1 << 16).any():
            raise self.file.damaged(table.at, f"tensor {name!r} has a zero point that no code is")
        zero = numpy.broadcast_to(zero if zero.size else numpy.zeros(1, numpy.int64), scale.shape)
        return Quantisation(scale, zero, int(axis))

    def _data(
        self, table: Table, name: str, dtype: DType | None, shape: Sequence[int], buffers: Sequence[Table]
    ) -> Any | None:
        """The elements of a tensor, in the file's memory; None for one that is computed."""
        number = table.number(2, "I")
        if number >= len(buffers):
            raise self.file.damaged(table.at, f"tensor {name!r} lies in buffer {number} of {len(buffers)}")
        at, nbytes = self._span(number, buffers[number])
        empty = 0 in shape and number != 0
        if (not nbytes and not empty) or dtype is None:
            return None
        if any(extent < 0 for extent in shape):
            raise self.file.damaged(table.at, f"tensor {name!r} has elements and shape {list(shape)}")
        count = 1
        for extent in shape:
            count *= extent
        expected = (count * dtype.bits + 7) // 8
        if nbytes != expected:
            raise self.file.damaged(at, f"tensor {name!r} has {nbytes} bytes, expected {expected}")
        view = self.file.data[at : at + nbytes]
        if dtype.bits == 4:
            return _unpacked(numpy.frombuffer(view, numpy.uint8), count).reshape(shape)
        if dtype.is_bool:
            return (numpy.frombuffer(view, numpy.uint8) != 0).reshape(shape)
        return numpy.frombuffer(view, dtype.numpy()).reshape(shape)

    def _span(self, number: int, buffer: Table) -> tuple[int, int]:
        """Where a buffer begins, and its number of bytes. Tensors may share one."""
        if number not in self.spans:
            at, nbytes = buffer.span(0)
            if not nbytes and buffer.number(2, "Q"):
                # Of files beyond 2 GB: behind everything else.
                at, nbytes = int(buffer.number(1, "Q")), int(buffer.number(2, "Q"))
                self.file.take(at, nbytes)
            self.spans[number] = at, nbytes
        return self.spans[number]

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _node(self, table: Table, number: int, operators: Sequence[str], count: int) -> LiteNode:
        code = table.number(0, "I")
        if code >= len(operators):
            raise self.file.damaged(table.at, f"node {number} applies operator {code} of {len(operators)}")
        operator = operators[code]
        inputs, outputs = self._numbers(table, 1, count, -1), self._numbers(table, 2, count, 0)
        at, nbytes = table.span(5)
        custom = bytes(self.file.data[at : at + nbytes])
        options = self._options(operator, table.table(4))
        return LiteNode(operator, inputs, outputs, options, custom, number)

    def _options(self, operator: str, table: Table | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, field in enumerate(FIELDS.get(operator, ())):
            if field.name == "_":
                continue
            if field.code.startswith("*"):
                kind = numpy.float32 if field.code == "*f" else numpy.int32
                found[field.name] = () if table is None else tuple(table.array(number, kind).tolist())
            elif field.code == "type":
                type_number = field.default if table is None else table.number(number, "b", field.default)
                if type_number not in DTYPES:
                    raise ImportFailed(f"{self.file.name}: {operator} makes element type {type_number}, not known")
                found[field.name] = DTYPES[type_number]
            elif field.code == "s":
                found[field.name] = "" if table is None else table.text(number)
            else:
                value = field.default if table is None else table.number(number, field.code, field.default)
                found[field.name] = bool(value) if field.code == "?" else value
        return found

    def _signature(self, table: Table, graphs: Sequence[LiteGraph]) -> LiteSignature:
        name, number = table.text(2), table.number(4, "I")
        if number >= len(graphs):
            raise self.file.damaged(table.at, f"signature {name!r} is of sub-graph {number} of {len(graphs)}")
        graph = graphs[number]
        inputs, outputs = (self._tensor_map(table, field, name, len(graph.tensors)) for field in (0, 1))
        if set(inputs.values()) != set(graph.inputs) or len(inputs) != len(graph.inputs):
            raise self.file.damaged(table.at, f"signature {name!r} names {list(inputs)}, not its sub-graph's inputs")
        return LiteSignature(name, inputs, outputs, number)

    def _tensor_map(self, table: Table, field: int, name: str, count: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in table.tables(field):
            number = entry.number(1, "I")
            if number >= count:
                raise self.file.damaged(entry.at, f"signature {name!r} has tensor {number} of {count}")
            found[entry.text(0)] = number
        return found


def _unpacked(data: Any, count: int) -> Any:
    """Numbers of four bits, the low ones of a byte first, as i8."""
    pairs = numpy.stack([data << 4, data & 0xF0], axis=-1).reshape(-1)[:count]
    return pairs.view(numpy.int8) >> 4
