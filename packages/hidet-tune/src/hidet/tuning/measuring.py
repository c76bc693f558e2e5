"""Trials in a process of their own, which is started again after a crash, or when a trial takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import IO

from hidet import option
from hidet.errors import CompileError
from hidet.tuning.trial import Outcome, Settings, Trial

START_SECONDS = 60.0
"""How long a process may take to begin."""


class Measurer:
    """A measuring process, as a context manager. seconds: what a trial may take, compilation and all.

    CompileError where no process can be started.
    """

    def __init__(self, settings: Settings, seconds: float) -> None:
        self._settings = settings
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, trial: Trial) -> Outcome:
        """The outcome of a trial; what ends the process is its failure."""
        process = self._process or self._start()
        try:
            self._send(process, asdict(trial))
            answer = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            self._stop()
            return Outcome(failure=f"took longer than {self._seconds:g} s")
        except BaseException:
            self._stop()  # what answers later is no answer to the next trial
            raise
        if not answer:
            status = process.wait()
            self._stop()
            return Outcome(failure=f"crashed: {'signal' if status < 0 else 'exit status'} {abs(status)}")
        given = json.loads(answer)
        return Outcome(tuple(given["default_seconds"]), tuple(given["seconds"]), given["failure"])

    def _start(self) -> subprocess.Popen[str]:
        cache = option.get_cache_dir()
        environment = {**os.environ, **({"HIDET_CACHE_DIR": cache} if cache else {})}
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "hidet.tuning.measuring_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            # Ctrl-C is for the tuner, which ends this process.
            start_new_session=True,
        )
        self._answers = queue.Queue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=_read, args=(process.stdout, self._answers), daemon=True)
        self._reader.start()
        self._send(process, asdict(self._settings))
        try:
            is_ready = self._answers.get(timeout=START_SECONDS) != ""
        except queue.Empty:
            is_ready = False
        except BaseException:
            self._stop()
            raise
        if not is_ready:
            self._stop()
            raise CompileError(
                f"the process that measures schedules has not begun within {START_SECONDS:g} s",
                hint="`python -m hidet.tuning.measuring_child` shows why: give it an empty line",
            )
        return process

    def _send(self, process: subprocess.Popen[str], message: dict[str, object]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended: so has what it writes, which is what `run` looks at

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if self._reader is not None:
            self._reader.join()
        for stream in (process.stdin, process.stdout):
            # What was not sent yet cannot be sent any more.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _read(stream: IO[str], answers: queue.Queue[str]) -> None:
    """Hand on lines; "" at the end."""
    for line in stream:
        answers.put(line)
    answers.put("")
