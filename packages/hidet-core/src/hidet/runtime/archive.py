"""The file of a saved graph as a container: an uncompressed zip whose members are read where they lie.

Members are stored, never compressed: what a file says of sizes is held against the file itself before anything is
read or reserved, so that no file makes a reader take more memory than it has bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from hidet.errors import ArtifactError
from hidet.runtime.adapter import NumpyAdapter

ALIGNMENT = 64
"""Bytes at a multiple of which the data of an aligned member starts, counted from the start of the file."""

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # magic, bytes of the name, bytes of the extra field
_ENCRYPTED = 0x1
_ZIP64_EXTRA = 20  # bytes of the field that sizes from 2 GiB on need in a local header


class Archive:
    """The members of one file. name: of the file, for messages."""

    def __init__(self, name: str, memory: Any) -> None:
        """memory: the bytes of the file as an array, which nobody writes to. ArtifactError where it is no archive."""
        self.name = name
        self.memory = memory
        memory.flags.writeable = False
        try:
            with zipfile.ZipFile(_Reader(memory)) as archive:
                self._members = {info.filename: info for info in archive.infolist()}
        except Exception as error:  # `zipfile` promises no particular ones for damaged files
            raise unreadable(name, error) from error

    def member(self, name: str) -> Any:
        """The bytes of a member, as part of the array. ArtifactError where it is missing or not plainly stored."""
        info = self._members.get(name)
        if info is None:
            raise ArtifactError(f"{self.name} is not a readable hidet artifact: it has no member {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            raise ArtifactError(f"{self.name}: member {name} is compressed or encrypted, expected it to be stored")
        start = info.header_offset
        header = bytes(self.memory[start : start + _LOCAL_HEADER.size])
        if start < 0 or len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
            raise ArtifactError(
                f"{self.name} is not a readable hidet artifact: member {name} is not where it should be"
            )
        _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        start += _LOCAL_HEADER.size + name_bytes + extra_bytes
        if info.file_size != info.compress_size or start + info.file_size > self.memory.size:
            raise ArtifactError(f"{self.name} is not a readable hidet artifact: member {name} ends outside of the file")
        return self.memory[start : start + info.file_size]


def unreadable(name: str, error: Exception) -> ArtifactError:
    """The error for a file that is no artifact, or a damaged one."""
    return ArtifactError(f"{name} is not a readable hidet artifact: {type(error).__name__}: {error}")


def map_file(path: str | os.PathLike[str]) -> Any:
    """The bytes of a file as an array that is mapped, not read. ArtifactError for what is no regular file."""
    try:
        # Devices and pipes open without waiting, and are refused before anything is read from them.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ArtifactError(f"{os.fspath(path)} is not a readable hidet artifact: it is no regular file")
            if info.st_size == 0:
                raise ArtifactError(f"{os.fspath(path)} is not a readable hidet artifact: it is empty")
            return numpy.memmap(file, numpy.uint8, mode="r").view(numpy.ndarray)
    except (OSError, ValueError) as error:
        raise unreadable(os.fspath(path), error) from error


def copy_bytes(data: bytes) -> Any:
    """A copy of bytes that begins at an address that code may rely on; bytes lie anywhere."""
    memory, _ = NumpyAdapter().empty((len(data),), (1,), "uint8")
    memory[:] = numpy.frombuffer(data, numpy.uint8)
    return memory


def sha256_of(*parts: Any) -> str:
    """The SHA-256 of bytes and arrays of bytes, one after the other, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def write_archive(file: Path | io.BytesIO, members: Sequence[tuple[str, Sequence[Any]]], aligned: str) -> None:
    """Write members, each of parts that are bytes or arrays of bytes; the data of the one `aligned` is aligned."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in members:
            info = zipfile.ZipInfo(name)
            is_large = sum(len(part) for part in parts) >= zipfile.ZIP64_LIMIT
            if name == aligned:
                info.extra = _padding(archive, name, is_large)
            with archive.open(info, "w", force_zip64=is_large) as member:
                for part in parts:
                    member.write(memoryview(part))


def _padding(archive: zipfile.ZipFile, name: str, is_large: bool) -> bytes:
    """An extra field for the header of the next member after which its data is aligned."""
    assert archive.fp is not None
    fixed = archive.fp.tell() + _LOCAL_HEADER.size + len(name) + 4 + (_ZIP64_EXTRA if is_large else 0)
    padding = -fixed % ALIGNMENT
    return struct.pack("<HH", 0xFFFF, padding) + b"\0" * padding


class _Reader(io.RawIOBase):
    """An array of bytes as a file, without a copy of it."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self._memory = memory
        self._place = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place, which may lie after the end. OSError for one before the start."""
        place = offset + int({os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._memory.size}[whence])
        if place < 0:
            raise OSError(f"no place {place} in a file")
        self._place = place
        return place

    def tell(self) -> int:
        """The place."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """What the base class makes all reading of."""
        part = self._memory[self._place : self._place + len(buffer)]
        buffer[: part.size] = part.tobytes()
        self._place += part.size
        return part.size  # type: ignore[no-any-return]  # of an array
