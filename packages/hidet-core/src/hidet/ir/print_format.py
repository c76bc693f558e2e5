"""The text of a `Print` statement: its directives, checked against the values they show and spelled for C.

A directive is `%`, flags, width, precision and one of the letters of ISO C11, 7.21.6.1. Length modifiers are not
written by users, and dropped where they are: the type of the value decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir.types import PointerType, Type

_DIRECTIVE = re.compile(r"%(?P<flags>[-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|j|z|t|L)?(?P<letter>.?)", re.DOTALL)
_SIGNED, _UNSIGNED, _FLOATING = "di", "uoxX", "fFeEgGaA"


@dataclass(frozen=True, slots=True)
class Directive:
    """One value to show, or literal text. flags: with width and precision. letter: "" for literal text."""

    text: str
    letter: str = ""
    flags: str = ""


def directives(text: str) -> Iterator[Directive]:
    """The parts of a format in order. `%%` is literal text, and stays as it is written."""
    position = 0
    for found in _DIRECTIVE.finditer(text):
        if found.start() > position:
            yield Directive(text[position : found.start()])
        position = found.end()
        if found["letter"] == "%":
            yield Directive("%%")
        else:
            yield Directive(found[0], found["letter"], found["flags"])
    if position < len(text):
        yield Directive(text[position:])


def check_format(text: str, types: Sequence[Type]) -> None:
    """Raise VerifyError unless there is a directive for each value, of a kind that shows its type."""
    shown = [part for part in directives(text) if part.letter or part.text == "%"]
    if len(shown) != len(types):
        raise VerifyError(f"{text!r} shows {len(shown)} values, got {len(types)}")
    for part, type_ in zip(shown, types, strict=True):
        if not _fits(part.letter, type_):
            raise VerifyError(f"{part.text} in {text!r} cannot show a value of type {type_}", hint=_advice(type_))


def _fits(letter: str, type_: Type) -> bool:
    if isinstance(type_, PointerType):
        return letter == "p"
    if not isinstance(type_, DType):
        return False
    if letter and letter in _FLOATING:
        return type_.is_float
    return letter != "" and letter in _SIGNED + _UNSIGNED + "c" and (type_.is_int or type_.is_bool)


def _advice(type_: Type) -> str:
    if isinstance(type_, PointerType):
        return "pointers are shown by %p"
    if isinstance(type_, DType):
        return "floats are shown by %f, %e or %g" if type_.is_float else "integers are shown by %d, %u or %x"
    return "show scalars, one at a time"


def promoted(dtype: DType) -> DType:
    """What a value is converted to before C shows it: f64, or an integer of 64 bits of the same sign."""
    if dtype.is_float:
        return dtypes.f64
    return dtypes.u64 if dtype.kind == "uint" else dtypes.i64


def c_format(text: str) -> str:
    """The format for a C library, to which all values are passed as `promoted` says."""
    parts = []
    for part in directives(text):
        wide = "ll" if part.letter and part.letter in _SIGNED + _UNSIGNED else ""
        parts.append(f"%{part.flags}{wide}{part.letter}" if part.letter else part.text)
    return "".join(parts)


def python_format(text: str, values: Sequence[int | float]) -> str:
    """The text that is shown."""
    shown = iter(values)
    parts = []
    for part in directives(text):
        if not part.letter:
            parts.append("%" if part.text == "%%" else part.text)
            continue
        letter = {"u": "d", "i": "d", "F": "f"}.get(part.letter, part.letter)
        value = next(shown)
        if letter in "aA":
            parts.append(float(value).hex())
        elif letter == "p":
            parts.append(hex(int(value)))
        else:
            parts.append(f"%{part.flags}{letter}" % value)
    return "".join(parts)
