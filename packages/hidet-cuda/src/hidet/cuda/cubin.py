"""What kernels take of a GPU, read from their machine code: a cubin is an ELF file that says so of each kernel.

The assembler's log tells it, too, but NVRTC writes none for code that it kept from an earlier compilation.
Attributes and their layout: section .nv.info, EIATTR_REGCOUNT and EIATTR_FRAME_SIZE, as cuobjdump prints them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from hidet.cuda.arch import BLOCK_RESERVED_SHARED
from hidet.errors import CompileError

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_SYMBOLS = 2  # sh_type
_FUNCTION, _GLOBAL = 2, 1  # st_info
_SIZED = 4  # EIFMT_SVAL: a length and as many bytes follow
_REGISTERS, _FRAME = 0x2F, 0x11
_SHARED = ".nv.shared."
_RESERVED = ".nv.shared.reserved."


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Registers a thread, bytes of local memory a thread (arrays and spills), and shared memory a block declares."""

    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def read_resources(cubin: bytes) -> dict[str, KernelResources]:
    """What each kernel takes, by name. CompileError for bytes that are no cubin."""
    if not cubin.startswith(_MAGIC):
        raise CompileError("the machine code is no ELF file of 64 bits")
    try:
        return _read(cubin)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CompileError(f"the machine code is damaged: {error}") from error


def _read(cubin: bytes) -> dict[str, KernelResources]:
    sections = _sections(cubin)
    symbols = next(section for section in sections if section.kind == _SYMBOLS)
    functions = dict(_functions(cubin, symbols, sections[symbols.link]))
    registers: dict[int, int] = {}
    frames: dict[int, int] = {}
    for section in sections:
        if section.name == ".nv.info":
            for attribute, symbol, value in _attributes(cubin[section.offset : section.offset + section.size]):
                if attribute in (_REGISTERS, _FRAME):
                    (registers if attribute == _REGISTERS else frames)[symbol] = value
    # From sm_90 on the first kilobyte of a block's shared memory is the system's, and counted in.
    system = BLOCK_RESERVED_SHARED if any(section.name.startswith(_RESERVED) for section in sections) else 0
    shared = {s.name.removeprefix(_SHARED): s.size - system for s in sections if s.name.startswith(_SHARED)}
    return {
        name: KernelResources(registers[number], frames.get(number, 0), shared.get(name, 0))
        for number, name in functions.items()
        if number in registers
    }


def _sections(cubin: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + size * number) for number in range(count)]
    return [_Section(_text(cubin, rows[names][4] + row[0]), row[1], row[4], row[5], row[6]) for row in rows]


def _functions(cubin: bytes, symbols: _Section, names: _Section) -> Iterator[tuple[int, str]]:
    """Numbers and names of the symbols that are global functions: kernels."""
    for number in range(symbols.size // 24):
        name, info = struct.unpack_from("<IB", cubin, symbols.offset + 24 * number)
        if info & 15 == _FUNCTION and info >> 4 == _GLOBAL:
            yield number, _text(cubin, names.offset + name)


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Attribute, symbol and value of entries that consist of these."""
    place = 0
    while place + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, place)
        place += 4
        if form == _SIZED:
            if length == 8:
                symbol, value = struct.unpack_from("<II", data, place)
                yield attribute, symbol, value
            place += length


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
