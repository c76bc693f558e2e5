"""FlatBuffers: tables and vectors in a file, found by offsets that anybody may have written.

Everything that is read lies inside of the file, and all of it together is not much more than the file: tables that
share their vectors would else make a small file a large model.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy

from hidet.errors import ImportFailed

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_U16 = struct.Struct("<H")

_NUMBERS = {code: struct.Struct(f"<{code}") for code in "?bBhHiIqQf"}

MAX_TIMES = 8
"""How often, on average, a byte of the file is read as part of a vector or text."""


class File:
    """The bytes of a file. name: for errors."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data
        self.name = name
        self._left = MAX_TIMES * len(data) + 1024

    def damaged(self, at: int, what: str) -> ImportFailed:
        """The error that names the place of what cannot be there."""
        return ImportFailed(f"{self.name} is damaged: {what}, at byte {at}")

    def take(self, at: int, nbytes: int) -> None:
        """Check that these bytes are there, and count them. ImportFailed where they are not."""
        if at < 0 or nbytes < 0 or at + nbytes > len(self.data):
            raise self.damaged(at, f"{nbytes} bytes go beyond its end, {len(self.data)}")
        self._left -= nbytes
        if self._left < 0:
            raise self.damaged(at, "its parts share their bytes, and together are many times its size")

    def number(self, at: int, code: struct.Struct) -> Any:
        """A number. ImportFailed beyond the end."""
        if at < 0 or at + code.size > len(self.data):
            raise self.damaged(at, f"a number goes beyond its end, {len(self.data)}")
        return code.unpack_from(self.data, at)[0]

    def target(self, at: int) -> int:
        """Where the offset at that place leads: forward, so that no structure contains itself."""
        distance: int = self.number(at, _U32)
        if distance == 0 or at + distance >= len(self.data):
            raise self.damaged(at, f"an offset of {distance} leads nowhere")
        return at + distance

    def root(self) -> Table:
        """The table that the file begins with."""
        return Table(self, self.target(0))


class Table:
    """A table: fields by number, each of which may be absent."""

    def __init__(self, file: File, at: int) -> None:
        self.file = file
        self.at = at
        self._fields = at - file.number(at, _I32)
        self._size: int = file.number(self._fields, _U16)
        if self._size < 4 or self._size % 2:
            raise file.damaged(self._fields, f"a list of fields of {self._size} bytes")

    def _place(self, field: int) -> int | None:
        """Where a field is; None where it is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset: int = self.file.number(self._fields + entry, _U16)
        return self.at + offset if offset else None

    def number(self, field: int, code: str, default: Any = 0) -> Any:
        """A number of the type that `struct` has this code for."""
        place = self._place(field)
        return default if place is None else self.file.number(place, _NUMBERS[code])

    def table(self, field: int) -> Table | None:
        """A table."""
        place = self._place(field)
        return None if place is None else Table(self.file, self.file.target(place))

    def tables(self, field: int) -> list[Table]:
        """A vector of tables; empty where it is absent."""
        at, count = self._vector(field, 4)
        return [Table(self.file, self.file.target(at + 4 * number)) for number in range(count)]

    def text(self, field: int) -> str:
        """A text; empty where it is absent. What is no UTF-8 is replaced."""
        at, count = self._vector(field, 1)
        return bytes(self.file.data[at : at + count]).decode(errors="replace")

    def array(self, field: int, dtype: Any) -> Any:
        """A vector of numbers as an array in the file's memory; empty where it is absent."""
        at, count = self._vector(field, numpy.dtype(dtype).itemsize)
        return numpy.frombuffer(self.file.data, dtype, count, at)

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._place(field) is not None

    def span(self, field: int) -> tuple[int, int]:
        """Where a vector of bytes begins, and how many there are."""
        return self._vector(field, 1)

    def _vector(self, field: int, nbytes: int) -> tuple[int, int]:
        place = self._place(field)
        if place is None:
            return 0, 0
        start = self.file.target(place)
        count: int = self.file.number(start, _U32)
        self.file.take(start + 4, count * nbytes)
        return start + 4, count
