"""Assertions of compiled code that failed, as exceptions. `hidet.cpu.codegen.failing` says how the code tells."""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from collections.abc import Mapping
from typing import Any

from hidet.errors import LaunchError
from hidet.loc import Loc

NOTE_FAILURE = "hidet_note_failure"
"""`void hidet_note_failure(ptr text, ptr kernel)`: in the thread that called compiled code, an assertion failed."""


class _Noted(threading.local):
    """The failure that compiled code noted in this thread and that was not raised yet: its text, and the kernel."""

    failure: tuple[bytes, bytes | None] | None = None


def failure_symbols() -> Mapping[str, int]:
    """Addresses of what code with assertions calls, to link it against."""
    function, _ = _process_notes()
    return {NOTE_FAILURE: ctypes.cast(function, ctypes.c_void_p).value or 0}


def raise_failure() -> None:
    """LaunchError if an assertion failed in the call of compiled code that this thread made last."""
    _, noted = _process_notes()
    failure = noted.failure
    if failure is None:
        return
    noted.failure = None
    text, kernel = failure
    raise _error(json.loads(text), None if kernel is None else kernel.decode())


@functools.cache
def _process_notes() -> tuple[Any, _Noted]:
    """The function that compiled code calls, which lives as long as the process, and where it writes to."""
    noted = _Noted()

    def note(text: bytes, kernel: bytes | None) -> None:
        noted.failure = text, kernel

    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(note), noted


def _error(told: list[Any], kernel: str | None) -> LaunchError:
    function, message, file, line, column = told
    if kernel is None:
        where = function
    elif kernel == function:
        where = f"kernel {kernel}"
    else:
        where = f"kernel {kernel}, function {function}"
    loc = None if file is None else Loc(file, line, column)
    return LaunchError(f"in {where}: assertion failed: {message}", loc=loc)
