"""Assertions of compiled code that failed, as exceptions. `hidet.cpu.codegen.failing` says how the code tells."""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from collections.abc import Mapping
from typing import Any

from hidet.errors import LaunchError
from hidet.ir.stmt import ASSERTED_VALUES, fill_in
from hidet.loc import Loc

NOTE_FAILURE = "hidet_note_failure"
"""`void hidet_note_failure(ptr text, ptr kernel)`: in the thread that called compiled code, an assertion failed."""


NOTE_VALUES = "hidet_note_values"
"""`void hidet_note_values(ptr values)`: what the assertion that is noted next tells, `ASSERTED_VALUES` i64."""


class _Noted(threading.local):
    """The failure that compiled code noted in this thread and that was not raised yet: its text, and the kernel; and
    the values that go with it."""

    failure: tuple[bytes, bytes | None] | None = None
    values: tuple[int, ...] = ()


def failure_symbols() -> Mapping[str, int]:
    """Addresses of what code with assertions calls, to link it against."""
    functions, _ = _process_notes()
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items()}


def raise_failure() -> None:
    """LaunchError if an assertion failed in the call of compiled code that this thread made last."""
    _, noted = _process_notes()
    failure = noted.failure
    if failure is None:
        return
    values, noted.failure, noted.values = noted.values, None, ()
    text, kernel = failure
    raise _error(json.loads(text), None if kernel is None else kernel.decode(), values)


@functools.cache
def _process_notes() -> tuple[Mapping[str, Any], _Noted]:
    """The functions that compiled code calls, which live as long as the process, and where they write to."""
    noted = _Noted()

    def note(text: bytes, kernel: bytes | None) -> None:
        noted.failure = text, kernel

    def note_values(address: int) -> None:
        noted.values = tuple((ctypes.c_int64 * ASSERTED_VALUES).from_address(address))

    functions = {
        NOTE_FAILURE: ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(note),
        NOTE_VALUES: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(note_values),
    }
    return functions, noted


def _error(told: list[Any], kernel: str | None, values: tuple[int, ...]) -> LaunchError:
    function, message, file, line, column, *count = told
    if kernel is None:
        where = function
    elif kernel == function:
        where = f"kernel {kernel}"
    else:
        where = f"kernel {kernel}, function {function}"
    loc = None if file is None else Loc(file, line, column)
    return LaunchError(f"in {where}: assertion failed: {fill_in(message, values[: sum(count)])}", loc=loc)
