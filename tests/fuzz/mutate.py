"""Changes to ONNX files: of bytes, and of fields of the message."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import onnx

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 127, 255, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**63))
TEXTS = ("", "x", "../../etc/passwd", "Conv", "Loop", "If", "\x00", "名", "a" * 300, "ai.onnx.ml", "com.example")


def mutated(model: bytes, seed: int) -> bytes:
    """The file with one to four changes, the same for equal seeds."""
    source = random.Random(seed)
    if source.random() < 0.3:
        return changed_bytes(model, source)
    message = onnx.ModelProto()
    message.ParseFromString(model)
    for _ in range(source.randint(1, 4)):
        _change_field(message, source)
    try:
        return message.SerializeToString()
    except (UnicodeError, ValueError):
        return changed_bytes(model, source)


# --- bytes -----------------------------------------------------------------------------------------------------------


def changed_bytes(model: bytes, source: random.Random) -> bytes:
    """The bytes with one to eight changes."""
    data = bytearray(model)
    for _ in range(source.randint(1, 8)):
        if not data:
            break
        source.choice(_BYTE_CHANGES)(data, source)
    return bytes(data)


def _flip(data: bytearray, source: random.Random) -> None:
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def _overwrite(data: bytearray, source: random.Random) -> None:
    data[source.randrange(len(data))] = source.randrange(256)


def _cut_off(data: bytearray, source: random.Random) -> None:
    del data[source.randrange(len(data)) :]


def _remove(data: bytearray, source: random.Random) -> None:
    start = source.randrange(len(data))
    del data[start : start + source.randint(1, 16)]


def _repeat(data: bytearray, source: random.Random) -> None:
    start = source.randrange(len(data))
    data[start:start] = data[start : start + source.randint(1, 16)]


_BYTE_CHANGES: Sequence[Callable[[bytearray, random.Random], None]] = (_flip, _overwrite, _cut_off, _remove, _repeat)


# --- fields ----------------------------------------------------------------------------------------------------------


def _change_field(message: Any, source: random.Random) -> None:
    """Change one field somewhere below `message`; every message below it is as likely to be chosen."""
    target = source.choice(list(_messages(message)))
    fields = list(target.DESCRIPTOR.fields)
    present = [field for field, _ in target.ListFields()]
    field = source.choice(present if present and source.random() < 0.85 else fields)
    if field.is_repeated:
        _change_list(target, field, source)
    elif field.message_type is not None:
        target.ClearField(field.name)
    else:
        _set(target, field, _value(getattr(target, field.name), field, source))


def _messages(message: Any) -> list[Any]:
    found, pending = [], [message]
    while pending:
        current = pending.pop()
        found.append(current)
        for field, value in current.ListFields():
            if field.message_type is not None:
                pending.extend(value if field.is_repeated else [value])
    return found


def _change_list(target: Any, field: Any, source: random.Random) -> None:
    values = getattr(target, field.name)
    if not values:
        if field.message_type is None:
            values.append(_value(_zero(field), field, source))
        else:
            values.add()
        return
    position = source.randrange(len(values))
    kind = source.choice(("remove", "repeat", "swap", "change"))
    if kind == "remove":
        del values[position]
    elif kind == "repeat":
        copy = values[position]
        values.add().CopyFrom(copy) if field.message_type is not None else values.append(copy)
    elif kind == "swap" or field.message_type is not None:
        other = source.randrange(len(values))
        items = list(values)
        items[position], items[other] = items[other], items[position]
        copies = [_copied(item) for item in items]
        del values[:]
        values.extend(copies)
    else:
        values[position] = _value(values[position], field, source)


def _copied(item: Any) -> Any:
    if not hasattr(item, "DESCRIPTOR"):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _zero(field: Any) -> Any:
    return {field.CPPTYPE_STRING: b"" if field.type == field.TYPE_BYTES else ""}.get(field.cpp_type, 0)


def _set(target: Any, field: Any, value: Any) -> None:
    try:
        setattr(target, field.name, value)
    except (ValueError, TypeError, UnicodeError):
        target.ClearField(field.name)


def _value(old: Any, field: Any, source: random.Random) -> Any:
    """Another value of a field's type."""
    if isinstance(old, bytes):
        return changed_bytes(old, source) if old else bytes([source.randrange(256)])
    if isinstance(old, str):
        return source.choice((*TEXTS, old[:-1], old + "x"))
    if isinstance(old, float):
        return source.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), old * 2))
    number = source.choice((*NUMBERS, old + 1, old - 1))
    if field.type in (field.TYPE_UINT32, field.TYPE_UINT64):
        return max(number, 0)
    return max(min(number, 2**31 - 1), -(2**31)) if field.type in (field.TYPE_INT32, field.TYPE_ENUM) else number
