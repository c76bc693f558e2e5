"""FlexBuffers: the mappings of numbers that options of custom operators are."""

from __future__ import annotations

import struct

from hidet.errors import ImportFailed

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26

_CODES = {_INT: "bhiq", _UINT: "BHIQ", _BOOL: "BHIQ", _FLOAT: "_efd"}

MAX_ENTRIES = 1 << 10


def read_numbers(data: bytes) -> dict[str, bool | int | float]:
    """The numbers of a mapping by key; entries of other kinds are left out. ImportFailed for what is no mapping."""
    try:
        return _map(data)
    except (struct.error, ValueError, IndexError) as error:
        raise ImportFailed(f"options of a custom operator are no mapping: {error}") from error


def _map(data: bytes) -> dict[str, bool | int | float]:
    width, packed = data[-1], data[-2]
    if packed >> 2 != _MAP or width not in (1, 2, 4, 8):
        raise ValueError(f"a value of kind {packed >> 2}")
    root = len(data) - 2 - width
    start, width = root - _unsigned(data, root, width), 1 << (packed & 3)
    count = _unsigned(data, start - width, width)
    if count > MAX_ENTRIES:
        raise ValueError(f"{count} entries")
    place = start - 3 * width
    keys, key_width = place - _unsigned(data, place, width), _unsigned(data, place + width, width)
    found: dict[str, bool | int | float] = {}
    for number in range(count):
        at = keys + number * key_width
        name = at - _unsigned(data, at, key_width)
        key = data[name : data.index(b"\0", name)].decode(errors="replace")
        kind = data[start + count * width + number] >> 2
        if kind in _CODES:
            code = _CODES[kind][width.bit_length() - 1]
            value = _number(data, start + number * width, code)
            found[key] = bool(value) if kind == _BOOL else value
    return found


def _unsigned(data: bytes, at: int, width: int) -> int:
    if width not in (1, 2, 4, 8):
        raise ValueError(f"a number of {width} bytes")
    return int(_number(data, at, "BHIQ"[width.bit_length() - 1]))


def _number(data: bytes, at: int, code: str) -> int | float:
    if at < 0:
        raise ValueError("an offset leads before the beginning")
    number: int | float = struct.unpack_from(f"<{code}", data, at)[0]
    return number
