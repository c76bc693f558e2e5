"""Models whose weights stay in their file: a parsed model refers to where they lie there, as it does for external data.

Protocol buffers put every byte of a message into memory, and again into each field that is read. This reads the wire
format (protobuf.dev, "Encoding") as far as the initialisers of the graph and leaves their data out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Numbers of fields in onnx.proto.
_GRAPH_OF_MODEL = 7
_INITIALIZER_OF_GRAPH = 5
_RAW_DATA_OF_TENSOR = 9
_EXTERNAL_DATA_OF_TENSOR = 13
_DATA_LOCATION_OF_TENSOR = 14

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_EXTERNAL = 1

MIN_BYTES = 1 << 16
"""Data of smaller tensors stay in the message: mapping a part of a file costs about as much as copying it."""


class Malformed(Exception):
    """The bytes are no message, or one of a kind that is not expected here."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its number and kind, where it starts with its key, where its content lies, and where it ends."""

    number: int
    kind: int
    start: int
    content: int
    end: int


def without_weights(data: memoryview, file: str) -> bytes:
    """A serialised ModelProto with the data of large initialisers replaced by references to `file`, which holds `data`.

    Raises Malformed for bytes that are no such message; the parser says what is wrong with them.
    """
    made = bytearray()
    for field in _fields(data, 0, len(data)):
        if field.number == _GRAPH_OF_MODEL and field.kind == _BYTES:
            _append(made, _GRAPH_OF_MODEL, _graph(data, field, file))
        else:
            made += data[field.start : field.end]
    return bytes(made)


def _graph(data: memoryview, graph: _Field, file: str) -> bytes:
    made = bytearray()
    for field in _fields(data, graph.content, graph.end):
        if field.number == _INITIALIZER_OF_GRAPH and field.kind == _BYTES and field.end - field.content >= MIN_BYTES:
            _append(made, _INITIALIZER_OF_GRAPH, _tensor(data, field, file))
        else:
            made += data[field.start : field.end]
    return bytes(made)


def _tensor(data: memoryview, tensor: _Field, file: str) -> bytes:
    """The tensor itself when its data are no bytes, small, or external already."""
    fields = list(_fields(data, tensor.content, tensor.end))
    raw = [field for field in fields if field.number == _RAW_DATA_OF_TENSOR]
    is_external = any(field.number in (_EXTERNAL_DATA_OF_TENSOR, _DATA_LOCATION_OF_TENSOR) for field in fields)
    if len(raw) != 1 or raw[0].kind != _BYTES or raw[0].end - raw[0].content < MIN_BYTES or is_external:
        return bytes(data[tensor.content : tensor.end])
    made = bytearray()
    for field in fields:
        if field is not raw[0]:
            made += data[field.start : field.end]
    place = {"location": file, "offset": str(raw[0].content), "length": str(raw[0].end - raw[0].content)}
    for key, value in place.items():
        entry = bytearray()
        _append(entry, 1, key.encode())
        _append(entry, 2, value.encode())
        _append(made, _EXTERNAL_DATA_OF_TENSOR, bytes(entry))
    made += _number(_DATA_LOCATION_OF_TENSOR << 3 | _VARINT) + _number(_EXTERNAL)
    return bytes(made)


def _fields(data: memoryview, position: int, end: int) -> Iterator[_Field]:
    while position < end:
        start = position
        key, position = _varint(data, position, end)
        kind = key & 7
        if kind == _BYTES:
            length, position = _varint(data, position, end)
            stop = position + length
        elif kind == _VARINT:
            _, stop = _varint(data, position, end)
        elif kind in (_FIXED_32, _FIXED_64):
            stop = position + (4 if kind == _FIXED_32 else 8)
        else:
            raise Malformed(f"a field of kind {kind}")
        if stop > end:
            raise Malformed("a field that ends after its message")
        yield _Field(key >> 3, kind, start, position, stop)
        position = stop


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, least significant first, and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Malformed("a number without end")


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _append(made: bytearray, number: int, content: bytes) -> None:
    made += _number(number << 3 | _BYTES) + _number(len(content)) + content
