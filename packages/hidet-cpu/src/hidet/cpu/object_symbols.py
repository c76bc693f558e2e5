"""Which symbols an object file defines and which it lacks, read from its symbol table.

The JIT reports an unresolved symbol only as a failure of everything that needs it; the loader names it beforehand, and
learns here what it may export. Formats: 64-bit little-endian ELF (System V gABI, chapter 4) and Mach-O (Apple's
`mach-o/loader.h` and `nlist.h`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hidet.errors import CodegenError

_ELF_MAGIC = b"\x7fELF\x02\x01"
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, align, entry size
_ELF_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_ELF_SYMBOL_TABLE = 2  # SHT_SYMTAB
_ELF_RELOCATIONS = 4  # SHT_RELA
_ELF_WITHOUT_BYTES = (0, 8)  # SHT_NULL, SHT_NOBITS
_ELF_RELOCATION = struct.Struct("<QQq")  # place, symbol and type, addend
_ELF_RESERVED = 0xFF00  # SHN_LORESERVE: not numbers of sections from here on
_ELF_LOCAL = 0  # STB_LOCAL
_MACHO_MAGIC = b"\xcf\xfa\xed\xfe"
_MACHO_HEADER_SIZE = 32
_MACHO_SYMBOL_TABLE = 2  # LC_SYMTAB
_MACHO_SYMBOL = struct.Struct("<IBBHQ")  # name, type, section, description, value
_MACHO_EXTERNAL, _MACHO_TYPE_MASK = 0x01, 0x0E  # N_EXT, N_TYPE


@dataclass(frozen=True, slots=True)
class ObjectSymbols:
    """Global symbols of one object file, without the underscore that Mach-O puts before C names."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(data: bytes) -> ObjectSymbols:
    """The global symbols of an object file. Raises CodegenError for damaged data and for other formats."""
    readers = {_ELF_MAGIC: _elf_symbols, _MACHO_MAGIC: _macho_symbols}
    reader = next((reader for magic, reader in readers.items() if data.startswith(magic)), None)
    if reader is None:
        raise CodegenError(f"not an object file: it starts with {data[:6]!r}, expected 64-bit ELF or Mach-O")
    try:
        symbols = [(name, is_defined) for name, is_defined in reader(data) if name]
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise CodegenError(f"the symbol table of an object file of {len(data)} bytes is damaged: {error}") from error
    return ObjectSymbols(
        tuple(name for name, is_defined in symbols if is_defined),
        tuple(name for name, is_defined in symbols if not is_defined),
    )


def _elf_symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    (table_offset,) = struct.unpack_from("<Q", data, 40)
    section_size, section_count, names_section = struct.unpack_from("<HHH", data, 58)
    sections = [_ELF_SECTION.unpack_from(data, table_offset + section_size * i) for i in range(section_count)]
    _require_elf_sections(data, sections, names_section)
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != _ELF_SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for position in range(offset, offset + size, _ELF_SYMBOL.size):
            name, info, _, section, _, _ = _ELF_SYMBOL.unpack_from(data, position)
            if section >= section_count and section < _ELF_RESERVED:
                raise ValueError(f"a symbol is in section {section} of {section_count}")
            if info >> 4 != _ELF_LOCAL:
                yield _text_at(data, names + name), section != 0


def _require_elf_sections(data: bytes, sections: Sequence[tuple[int, ...]], names_section: int) -> None:
    """ValueError for sections that LLVM would look for outside of the object, for which it ends the process."""
    count = len(sections)
    if not names_section < count:
        raise ValueError(f"the names of sections are in section {names_section} of {count}")
    for _, kind, _, _, offset, size, link, info, _, _ in sections:
        if kind in _ELF_WITHOUT_BYTES:
            continue
        if offset + size > len(data):
            raise ValueError("a section ends outside of it")
        if kind in (_ELF_SYMBOL_TABLE, _ELF_RELOCATIONS) and not link < count:
            raise ValueError(f"a section belongs to section {link} of {count}")
        if kind != _ELF_RELOCATIONS:
            continue
        if not info < count:
            raise ValueError(f"relocations are of section {info} of {count}")
        patched, symbols = sections[info][5], sections[link][5] // _ELF_SYMBOL.size
        for place, what, _ in _ELF_RELOCATION.iter_unpack(data[offset : offset + size]):
            if place >= patched or what >> 32 >= symbols:
                raise ValueError("a relocation is outside of its section, or of no symbol")


def _macho_symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    (command_count,) = struct.unpack_from("<I", data, 16)
    position = _MACHO_HEADER_SIZE
    for _ in range(command_count):
        command, command_size = struct.unpack_from("<II", data, position)
        if command == _MACHO_SYMBOL_TABLE:
            table, count, names, _ = struct.unpack_from("<IIII", data, position + 8)
            for offset in range(table, table + count * _MACHO_SYMBOL.size, _MACHO_SYMBOL.size):
                name, kind, _, _, _ = _MACHO_SYMBOL.unpack_from(data, offset)
                if kind & _MACHO_EXTERNAL:
                    yield _text_at(data, names + name).removeprefix("_"), kind & _MACHO_TYPE_MASK != 0
        position += command_size


def _text_at(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
