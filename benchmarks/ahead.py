"""Compiling ahead: processes beside each other fill the caches that a measuring process reads.

What compilers choose by measuring is not for this: they would measure beside each other.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console


def run_ahead(console: Console, commands: Sequence[Sequence[str]], processes: int, limit: float) -> None:
    """Run this Python with each command's arguments, at most `processes` at a time; the last words of those that fail
    are printed, and what they were to compile is compiled later.

    limit: seconds after which a process is ended.
    """
    with ThreadPoolExecutor(processes) as pool:
        for command, words in zip(commands, pool.map(lambda command: _run(command, limit), commands), strict=True):
            if words is not None:
                console.print(f"ahead: {' '.join(command)}: {words}", style="bold red", markup=False)


def _run(command: Sequence[str], limit: float) -> str | None:
    """The last words of a process that failed; None of one that did not."""
    try:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=limit, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"not done in {limit:.0f} s"
    if done.returncode == 0:
        return None
    return next(iter(done.stderr.strip().splitlines()[-1:]), f"exit status {done.returncode}")
