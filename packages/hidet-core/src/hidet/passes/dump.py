"""Writing the stages of a compilation as text into a directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hidet.errors import OptionError

if TYPE_CHECKING:
    from hidet.context import CompileContext


def in_own_folder(ctx: CompileContext, name: str) -> CompileContext:
    """The context with a new folder of this name and the first free number for its stages.

    A process compiles many graphs, and processes may share the directory: each graph has a folder of its own. The
    context itself where nothing is dumped. OptionError where the folder cannot be made.
    """
    if ctx.options.dump is None:
        return ctx
    stem = re.sub(r"\W", "_", name)
    for number in count():
        folder = Path(ctx.options.dump) / f"{stem}_{number}"
        with _named_errors(folder):
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
        return replace(ctx, options=replace(ctx.options, dump=folder))
    raise AssertionError("there is always a next number")


def dump(ctx: CompileContext, file: str, text: Callable[[], str]) -> None:
    """Write a stage to a file, its path below the graph's folder, if the options ask for it.

    text: makes its text, and is called then alone. OptionError where the file cannot be written.
    """
    if ctx.options.dump is None:
        return
    path = Path(ctx.options.dump) / file
    with _named_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), encoding="utf-8")


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"stages cannot be dumped into {folder}: {error.strerror or error}",
            hint="option dump, or HIDET_DUMP, names a directory that can be made and written",
        ) from error
