"""The text of functions whose source Python has not kept: what went through exec, `python -c` or standard input.

A text is taken only if compiling it gives the very code object of the function, so that a wrong one is never read.
"""

from __future__ import annotations
import __future__

import hashlib
import linecache
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

_FUTURE_FLAGS = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_LARGEST_INPUT = 1 << 24
_MOST_TYPED = 500


def recovered_text(code: CodeType, frame: FrameType | None) -> tuple[str, str] | None:
    """A name and the text that a function's code was compiled from; None when it is not found.

    frame: where the function is defined. `linecache` knows the text by that name afterwards, so that errors show it.
    """
    for name, text in _candidates(code, frame):
        if _contains(text, code):
            if name != "<command line>":
                name = f"{name[:-1]} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            return name, text
    return None


def _candidates(code: CodeType, frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Names and texts that may be the source."""
    arguments = sys.orig_argv
    if "-c" in arguments[:-1]:
        yield "<command line>", arguments[arguments.index("-c") + 1]
    if code.co_filename == "<stdin>":
        text = _standard_input()
        if text is not None:
            yield "<stdin>", text
        yield from (("<stdin>", text) for text in _typed())
    while frame is not None:
        if frame.f_code.co_filename != code.co_filename:
            # The function that called exec often holds the text, in a variable or as a constant.
            values = (*frame.f_locals.values(), *frame.f_code.co_consts)
            for value in values:
                if isinstance(value, str) and code.co_name in value and "def " in value:
                    yield "<string>", value
        frame = frame.f_back


def _standard_input() -> str | None:
    """All of standard input where it is a file."""
    try:
        size = os.fstat(0).st_size
        return os.pread(0, min(size, _LARGEST_INPUT), 0).decode() if size else None
    except (OSError, UnicodeDecodeError):
        return None


def _typed() -> Iterator[str]:
    """What was typed last at an interactive prompt, from one line to as many as there are."""
    readline = sys.modules.get("readline")
    if readline is None or not hasattr(sys, "ps1"):
        return
    count = readline.get_current_history_length()
    lines: list[str] = []
    for number in range(count, max(count - _MOST_TYPED, 0), -1):
        lines.insert(0, f"{readline.get_history_item(number)}\n")
        if lines[0].startswith(("def ", "@")):
            yield "".join(lines)


def _contains(text: str, code: CodeType) -> bool:
    """Whether compiling the text gives the code object."""
    try:
        whole = compile(text, code.co_filename, "exec", flags=code.co_flags & _FUTURE_FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    stack = [whole]
    while stack:
        current = stack.pop()
        if current == code:
            return True
        stack += [constant for constant in current.co_consts if isinstance(constant, CodeType)]
    return False
