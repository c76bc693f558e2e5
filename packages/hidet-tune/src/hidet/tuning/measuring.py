"""Trials in a process of their own, which is started again after a crash, a lost device, or too long a trial."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Any

from hidet import option
from hidet.errors import CompileError
from hidet.tuning.trial import Outcome, ProgramText, Settings, Trial

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
        self._device = ""
        self._compiles_ahead = False
        self._has_prepared = False

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    @property
    def device(self) -> str:
        """What measures, with the clocks that are known of it, as the process has said it; "" before it was started."""
        return self._device

    def prepare(self, programs: Sequence[ProgramText]) -> None:
        """Say which programs are going to be measured next, so that they are compiled while others run, where that
        disturbs no measurement."""
        process = self._process or self._start()
        if not self._compiles_ahead:
            return
        self._has_prepared = True
        self._send(process, {"prepare": [asdict(program) for program in programs]})

    def run(self, trial: Trial, most: float | None = None) -> Outcome:
        """The outcome of a trial; what ends the process is its failure.

        most: seconds that are left for it; TimeoutError where it has not ended by then, which blames no candidate.
        """
        outcome = self._run(trial, most)
        if isinstance(outcome, Outcome):
            return outcome
        if self._has_prepared or outcome == -signal.SIGKILL:
            # Compiling another program may have ended the process, or somebody who ended it for reasons of his own.
            self._stop()
            outcome = self._run(trial, most)
            if isinstance(outcome, Outcome):
                return outcome
        self._stop()
        return Outcome(failure=f"crashed: {'signal' if outcome < 0 else 'exit status'} {abs(outcome)}")

    def _run(self, trial: Trial, most: float | None) -> Outcome | int:
        """The outcome, or the exit status of a process that has ended without one."""
        process = self._process or self._start()
        is_cut = most is not None and most < self._seconds
        try:
            self._send(process, {"trial": asdict(trial)})
            answer = self._answers.get(timeout=most if is_cut else self._seconds)
        except queue.Empty:
            self._stop()
            if is_cut:
                raise TimeoutError(f"a trial has not ended within {most:.1f} s") from None
            return Outcome(failure=f"took longer than {self._seconds:g} s")
        except BaseException:
            self._stop()  # what answers later is no answer to the next trial
            raise
        if not answer:
            return process.wait()
        given = json.loads(answer)
        if given["is_last"]:
            self._stop()
        outcome = given["outcome"]
        return Outcome(tuple(outcome["default_seconds"]), tuple(outcome["seconds"]), outcome["failure"])

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
                hint="`python -m hidet.tuning.measuring_child` shows why: give it an empty line",
            )
        ready = json.loads(answer)
        self._device, self._compiles_ahead = ready["device"], ready["compiles_ahead"]
        return process

    def _send(self, process: subprocess.Popen[str], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended: so has what it writes, which is what `run` looks at

    def _stop(self) -> None:
        process, self._process, self._has_prepared = self._process, None, False
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
