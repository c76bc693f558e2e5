"""Programs compiled by processes of this machine, while another one measures."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Self

from hidet.tuning.child import end_child, send_line, start_child
from hidet.tuning.trial import ProgramText, Settings

_CHILD = "hidet.tuning.building_child"

MOST_BUILDERS = 16


def builder_count() -> int:
    """Processes that leave a core to the one that measures, and one to the search, which writes programs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores - 2, 1), MOST_BUILDERS)


class Builders:
    """Processes that compile programs into a kernel cache, as a context manager; they start when they are needed.

    Python holds a lock while it lowers and prints a program, so that threads of one process would wait for one another.
    cache_dir: the cache's directory. count: how many programs are compiled at once.
    """

    def __init__(self, settings: Settings, cache_dir: str, count: int) -> None:
        self._settings = settings
        self._cache_dir = cache_dir
        self._changed = threading.Condition()
        # Guarded by the condition. Programs go from waiting to running to done, by their code.
        self._waiting: dict[str, ProgramText] = {}
        self._running: set[str] = set()
        self._done: set[str] = set()
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            for process in self._processes:
                process.kill()

    def announce(self, programs: Sequence[ProgramText]) -> None:
        """Compile these next, in this order, and nothing that was announced before and has not begun."""
        with self._changed:
            self._waiting = {
                program.code: program
                for program in programs
                if program.code not in self._done and program.code not in self._running
            }
            self._changed.notify_all()

    def wait(self, program: ProgramText, seconds: float) -> None:
        """Wait until a program is compiled, or cannot be, or `seconds` have passed. One that waits comes next."""
        end = time.monotonic() + seconds
        with self._changed:
            if program.code not in self._done and program.code not in self._running:
                self._waiting = {program.code: program, **self._waiting}
                self._changed.notify_all()
            while program.code not in self._done and not self._is_closed:
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def _serve(self) -> None:
        """Hand programs to a process of this thread, one after the other."""
        process: subprocess.Popen[str] | None = None
        while (program := self._next()) is not None:
            process = process or self._start()
            if process is not None and not self._compile(process, program):
                self._end(process)
                process = None
            with self._changed:
                self._running.discard(program.code)
                # Also where the compiler ended its process: what measures it will tell why it cannot be used.
                self._done.add(program.code)
                self._changed.notify_all()
        if process is not None:
            self._end(process)

    def _next(self) -> ProgramText | None:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return None
            code = next(iter(self._waiting))
            self._running.add(code)
            return self._waiting.pop(code)

    def _start(self) -> subprocess.Popen[str] | None:
        with self._changed:
            if self._is_closed:
                return None
            process = start_child(_CHILD, self._cache_dir)
            self._processes.add(process)
        send_line(process, asdict(self._settings))
        return process

    def _compile(self, process: subprocess.Popen[str], program: ProgramText) -> bool:
        """Whether the process has lived on."""
        send_line(process, asdict(program))
        assert process.stdout is not None
        return bool(process.stdout.readline())

    def _end(self, process: subprocess.Popen[str]) -> None:
        end_child(process)
        if process.stdout is not None:
            process.stdout.close()
        with self._changed:
            self._processes.discard(process)
