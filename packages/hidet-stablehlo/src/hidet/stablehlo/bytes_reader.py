"""Reading numbers and stretches out of MLIR bytecode, never beyond its end."""

from __future__ import annotations

from hidet.errors import ImportFailed


def damaged(what: str) -> ImportFailed:
    """The error for bytes that are no bytecode."""
    return ImportFailed(f"the file is damaged: {what}", hint="write the artifact again with jax.export")


class BytesReader:
    """A place in a stretch of bytes. data: of which everything that is read is a part, not a copy."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: memoryview, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def is_empty(self) -> bool:
        """Whether everything is read."""
        return self.at >= self.end

    def byte(self) -> int:
        """The next byte."""
        if self.at >= self.end:
            raise damaged("it ends too early")
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self) -> int:
        """An unsigned number: the zero bits at the low end of its first byte count the bytes that follow it."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.bytes(8), "little")
        extra = (first & -first).bit_length() - 1
        rest = int.from_bytes(self.bytes(extra), "little")
        return (first | rest << 8) >> (extra + 1)

    def signed(self) -> int:
        """A signed number, whose lowest bit says whether it is negative."""
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def flagged(self) -> tuple[int, bool]:
        """A number and a flag, its lowest bit."""
        value = self.number()
        return value >> 1, bool(value & 1)

    def count(self) -> int:
        """How many entries follow, each of at least a byte."""
        value = self.number()
        if value > self.end - self.at:
            raise damaged(f"it says {value} entries where {self.end - self.at} bytes are left")
        return value

    def bytes(self, size: int) -> memoryview:
        """The next `size` bytes."""
        if size > self.end - self.at:
            raise damaged(f"it says {size} bytes where {self.end - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def part(self, size: int) -> BytesReader:
        """A reader of the next `size` bytes, which this one skips. It counts places as this one does."""
        start = self.at
        self.bytes(size)
        return BytesReader(self.data, start, start + size)

    def text(self) -> str:
        """What is before the next zero byte."""
        start = self.at
        while self.byte():
            pass
        return bytes(self.data[start : self.at - 1]).decode(errors="replace")
