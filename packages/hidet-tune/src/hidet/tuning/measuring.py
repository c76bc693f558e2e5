"""Trials in a process of their own, which is started again after a crash, a lost device, or too long a trial."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
from dataclasses import asdict
from typing import IO

from hidet import option
from hidet.errors import CompileError
from hidet.tuning.child import end_child, send_line, start_child
from hidet.tuning.trial import Outcome, Settings, Trial, outcome_from

_CHILD = "hidet.tuning.measuring_child"

START_SECONDS = 60.0
"""How long a process may take to begin."""

AGAIN_SECONDS = 2.0
"""What it takes about to begin again: to import, and to open a device."""


class Measurer:
    """A measuring process, as a context manager. seconds: what a trial may take, compilation and all. cache_dir: of its
    kernel cache; "" for the user's.

    CompileError where no process can be started.
    """

    def __init__(self, settings: Settings, seconds: float, cache_dir: str = "") -> None:
        self._settings = settings
        self._seconds = seconds
        self._cache_dir = cache_dir
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._device = ""
        self._is_ready = False

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    @property
    def device(self) -> str:
        """What measures, with the clocks that are known of it, as the process has said it; "" before it was started."""
        return self._device

    def begin(self) -> None:
        """Start the process, and do not wait until it is ready."""
        if self._process is None:
            self._start()

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        """The outcome of a trial; what ends the process is its failure.

        most: seconds that are left for it. It may take `AGAIN_SECONDS` more, as ending this process costs the next
        trial so much; TimeoutError where it has not ended by then, which blames no candidate.
        """
        outcome = self._run(trial, most)
        if isinstance(outcome, Outcome):
            return outcome
        if outcome == -signal.SIGKILL:
            # Somebody ended it for reasons of his own.
            self._stop()
            outcome = self._run(trial, most)
            if isinstance(outcome, Outcome):
                return outcome
        self._stop()
        return Outcome(failure=f"crashed: {'signal' if outcome < 0 else 'exit status'} {abs(outcome)}")

    def _run(self, trial: Trial, most: float | None) -> Outcome | int:
        """The outcome, or the exit status of a process that has ended without one."""
        process = self._ready_process()
        allowed = self._seconds if most is None else most + AGAIN_SECONDS
        is_cut = allowed < self._seconds
        try:
            send_line(process, asdict(trial))
            answer = self._answers.get(timeout=min(allowed, self._seconds))
        except queue.Empty:
            self._stop()
            if is_cut:
                raise TimeoutError(f"a trial has not ended within {allowed:.1f} s") from None
            return Outcome(failure=f"took longer than {self._seconds:g} s")
        except BaseException:
            self._stop()  # what answers later is no answer to the next trial
            raise
        if not answer:
            return process.wait()
        given = json.loads(answer)
        if given["is_last"]:
            self._stop()
        return outcome_from(given["outcome"])

    def _start(self) -> subprocess.Popen[str]:
        self._process = process = start_child(_CHILD, self._cache_dir or option.get_cache_dir())
        self._answers = queue.Queue()
        assert process.stdout is not None
        threading.Thread(target=_read, args=(process.stdout, self._answers), daemon=True).start()
        send_line(process, asdict(self._settings))
        return process

    def _ready_process(self) -> subprocess.Popen[str]:
        """The process, which has begun."""
        process = self._process or self._start()
        if self._is_ready:
            return process
        try:
            answer = self._answers.get(timeout=START_SECONDS)
        except queue.Empty:
            answer = ""
        except BaseException:
            self._stop()
            raise
        if not answer:
            self._stop()
            raise CompileError(
                f"the process that measures schedules has not begun within {START_SECONDS:g} s",
                hint=f"`python -m {_CHILD}` shows why: give it an empty line",
            )
        self._is_ready, self._device = True, json.loads(answer)["device"]
        return process

    def _stop(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        if process is not None:
            end_child(process)


def _read(stream: IO[str], answers: queue.Queue[str]) -> None:
    """Hand on lines; "" at the end."""
    with stream:
        for line in stream:
            answers.put(line)
    answers.put("")
