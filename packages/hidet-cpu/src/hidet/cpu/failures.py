"""What ends a call of compiled code, failed assertions and signals, as exceptions.

`hidet.cpu.codegen.failing` says how the code tells.
"""

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


INTERRUPTED = "interrupted"
"""The text of a call that ended because a signal's handler raised an exception."""

RAISED = "hidet_raised"
"""`ptr hidet_raised[3]`: that exception as PyErr_Fetch gives it. Handlers run in Python's main thread alone."""

_PYTHON_FUNCTIONS = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")


class NotedFailures(threading.local):
    """The failure that compiled code noted in this thread and that was not raised yet: its text, and the kernel; and
    the values that go with it."""

    failure: tuple[bytes, bytes | None] | None = None
    values: tuple[int, ...] = ()


def failure_symbols() -> Mapping[str, int]:
    """Addresses of what code with assertions calls, to link it against."""
    functions, _ = _process_notes()
    python = {name: getattr(ctypes.pythonapi, name) for name in _PYTHON_FUNCTIONS}
    addresses = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in {**functions, **python}.items()}
    return {**addresses, RAISED: ctypes.addressof(_raised())}


def noted_failures() -> NotedFailures:
    """Where compiled code notes what ended a call: `failure` is None in a thread whose last call ended as it should."""
    return _process_notes()[1]


def raise_failure() -> None:
    """LaunchError if an assertion failed in the call of compiled code that this thread made last; if the call was ended
    by an exception of a signal's handler, such as KeyboardInterrupt, that exception."""
    _, noted = _process_notes()
    failure = noted.failure
    if failure is None:
        return
    values, noted.failure, noted.values = noted.values, None, ()
    text, kernel = failure
    if text == INTERRUPTED.encode():
        cells = _raised()
        exception = tuple(cells)
        cells[:] = [None] * len(cells)
        restore = ctypes.pythonapi.PyErr_Restore
        restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
        restore(*exception)  # takes over the references, and raises
    raise _error(json.loads(text), None if kernel is None else kernel.decode(), values)


@functools.cache
def _raised() -> Any:
    return (ctypes.c_void_p * 3)()


@functools.cache
def _process_notes() -> tuple[Mapping[str, Any], NotedFailures]:
    """The functions that compiled code calls, which live as long as the process, and where they write to."""
    noted = NotedFailures()

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
    return LaunchError(f"in {where}: {fill_in(message, values[: sum(count)])}", loc=loc)
