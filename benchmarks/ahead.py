"""Compiling ahead: processes beside each other fill the caches that a measuring process reads.

What compilers choose by measuring is not for this: they would measure beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from benchmarks.processes import run_python


def run_ahead(console: Console, commands: Sequence[Sequence[str]], processes: int, limit: float) -> None:
    """Run this Python with each command's arguments, at most `processes` at a time; the last words of those that fail
    are printed, and what they were to compile is compiled later.

    limit: seconds after which a process is ended.
    """
    with ThreadPoolExecutor(processes) as pool:
        found = pool.map(lambda command: _find_failure(command, limit), commands)
        for command, words in zip(commands, found, strict=True):
            if words is not None:
                console.print(f"ahead: {' '.join(command)}: {words}", style="bold red", markup=False)


def _find_failure(command: Sequence[str], limit: float) -> str | None:
    """The last words of a process that failed; None of one that did not."""
    try:
        run_python(command, limit)
    except RuntimeError as error:
        return str(error)
    return None
