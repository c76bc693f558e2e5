"""Length-framed messages between a process and the children that compile for it."""

from __future__ import annotations

import struct
from typing import IO

REQUEST = struct.Struct("<IQ")  # optimisation level, bytes of UTF-8 text that follow
REPLY = struct.Struct("<BQ")  # COMPILED or REFUSED, bytes that follow
COMPILED = 0  # an object file follows
REFUSED = 1  # a JSON object {"message", "hint"} of a CompileError follows


def read_exactly(stream: IO[bytes], size: int) -> bytes | None:
    """The next `size` bytes; None if the stream ends before."""
    data = stream.read(size)
    return data if len(data) == size else None


def read_frame(stream: IO[bytes], head: struct.Struct) -> tuple[int, bytes] | None:
    """The next (first field, body) whose head is (field, body size); None at the end of the stream."""
    prefix = read_exactly(stream, head.size)
    if prefix is None:
        return None
    field, size = head.unpack(prefix)
    body = read_exactly(stream, size)
    return None if body is None else (field, body)


def write_frame(stream: IO[bytes], head: struct.Struct, field: int, body: bytes) -> None:
    """Inverse of `read_frame`."""
    stream.write(head.pack(field, len(body)))
    stream.write(body)
    stream.flush()
