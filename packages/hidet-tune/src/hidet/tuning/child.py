"""What processes have in common that tuning starts: where answers go, and when the system ends them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_SIGNAL_OF_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of prctl."""


def start_child(module: str, cache_dir: str) -> subprocess.Popen[str]:
    """A process that runs a module of this package, and talks by lines of its standard input and output.

    cache_dir: its kernel cache; "" for the user's.
    """
    environment: Mapping[str, str] = {**os.environ, **({"HIDET_CACHE_DIR": cache_dir} if cache_dir else {})}
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        # Ctrl-C is for the tuner, which ends this process.
        start_new_session=True,
    )


def send_line(process: subprocess.Popen[str], message: object) -> None:
    """Write a message to a child. One that has ended is not told: so has what it writes, which its reader looks at."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()


def end_child(process: subprocess.Popen[str]) -> None:
    """End a child, whatever it does, without waiting until the system has taken all of it away, which takes a while
    where it had a device. What it has written stays with its reader, who closes that stream."""
    process.kill()
    threading.Thread(target=_reap, args=(process,), daemon=True).start()


def _reap(process: subprocess.Popen[str]) -> None:
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # what was not sent yet cannot be sent any more
            process.stdin.close()


def answers_apart() -> IO[str]:
    """Standard output of this process for its answers alone: what others print goes to standard error from now on."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def write_answer(answers: IO[str], message: object) -> None:
    """Write an answer as a line."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def die_first() -> None:
    """Have the system end this process and not its parent where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def end_with_parent() -> None:
    """Have the system end this process, whatever it runs, where its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
