"""Child processes that do a part of this one's work and talk to it through pipes.

They are fresh interpreters started by Popen, never forks: user scripts have no main guard and hold threads and locks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import hidet
from hidet.errors import CompileError


class ChildProcess:
    """A process that runs a module, started at once; OSError where there is none to be had.

    flags: of the interpreter. folders: where it looks for modules. environment: variables besides this process's.
    """

    def __init__(
        self, module: str, flags: Sequence[str], folders: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._stalled = False
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-m", module],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
            )
        except OSError:
            self._messages.close()
            raise

    @property
    def requests(self) -> IO[bytes]:
        """Its standard input."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def answers(self) -> IO[bytes]:
        """Its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """A block of so many seconds, after which the process is ended: its pipes break."""
        watchdog = threading.Timer(seconds, self._stall)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """End the process, from any thread: its pipes break."""
        self._process.kill()

    def close(self) -> None:
        """Wait for the end of the process, and close its pipes."""
        with contextlib.suppress(BrokenPipeError):  # part of a request may still be buffered
            self._process.__exit__(None, None, None)
        self._messages.close()

    def failure(self, on: str, stalled: CompileError) -> CompileError:
        """Why the process has ended that worked on something. stalled: where it took longer than `limited` lets it."""
        code = self._process.wait()
        if self._stalled:
            return stalled
        self._messages.seek(0)
        last_words = self._messages.read().decode(errors="replace").strip()[-1000:]
        return CompileError(
            f"the compile worker ended with code {code} on {on}: {last_words or 'no message'}",
            hint="HIDET_NUM_WORKERS=0 compiles in this process",
        )

    def _stall(self) -> None:
        self._stalled = True
        self._process.kill()


def import_path(*packages: Iterator[str] | Sequence[str]) -> list[str]:
    """Where this process found hidet and other packages, given by their `__path__`, then its other folders."""
    folders = [str(Path(folder).parent) for path in (hidet.__path__, *packages) for folder in path]
    return list(dict.fromkeys([*folders, *(folder for folder in sys.path if folder)]))


def can_start_children() -> bool:
    """Whether there is an interpreter to start: there is none where this one is embedded or frozen into an
    application."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)
