"""The text of a function as Python's syntax tree, and places in it. Scripts are read, never executed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

from hidet.errors import ScriptError
from hidet.lang.source_text import recovered_text
from hidet.loc import Loc


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSource:
    """A function's syntax tree, whose line and column numbers are those of its file.

    lines: its text, which starts at line `first_line` of `file`.
    """

    tree: ast.FunctionDef
    file: str
    first_line: int
    lines: tuple[str, ...]

    def place(self, node: ast.AST) -> Loc:
        """Where a node stands."""
        line = getattr(node, "lineno", self.tree.lineno)
        offset = getattr(node, "col_offset", 0)
        text = self.lines[line - self.first_line] if 0 <= line - self.first_line < len(self.lines) else ""
        if not text.isascii():
            # Python counts columns in bytes of UTF-8, people in characters.
            offset = len(text.encode()[:offset].decode(errors="ignore"))
        return Loc(self.file, line, offset + 1, self.tree.name)


def place_of(frame: FrameType) -> Loc:
    """Where a Python function is right now."""
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    return Loc(frame.f_code.co_filename, line, None if column is None else column + 1)


def read_source(function: Callable[..., Any], frame: FrameType | None = None) -> FunctionSource:
    """The source of a Python function, from its file, notebook cell, interactive input, or the text that exec got.

    frame: where it is defined. Raises ScriptError when it cannot be found, or is no plain `def`.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        lines, first_line = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or function.__code__.co_filename
    except (OSError, TypeError) as error:
        code = getattr(function, "__code__", None)
        found = None if code is None else recovered_text(code, frame)
        if code is None or found is None:
            raise ScriptError(
                f"the source of script {name} cannot be read: {error}",
                hint="define it by `def` in a file or a notebook; Python keeps no text that went through a pipe",
            ) from error
        file, text = found
        first_line = code.co_firstlineno
        lines = inspect.getblock(text.splitlines(keepends=True)[first_line - 1 :])
    # A function inside of something else is indented, which Python parses under a header only.
    is_indented = lines[0][:1].isspace()
    tree = ast.parse(("if True:\n" if is_indented else "") + "".join(lines))
    outer = tree.body[0]
    node = outer.body[0] if isinstance(outer, ast.If) else outer
    if not isinstance(node, ast.FunctionDef):
        kind = "an async function" if isinstance(node, ast.AsyncFunctionDef) else "no function defined by def"
        raise ScriptError(
            f"script {name} is {kind}",
            loc=Loc(file, first_line, 1, name),
            hint="write def name(...): under @hidet.script, without a lambda",
        )
    ast.increment_lineno(node, first_line - 1 - is_indented)
    return FunctionSource(node, file, first_line, tuple(lines))
