"""The process that runs programs which may crash or never end: lines of JSON in, lines of JSON out.

The first line is `Settings`; the answer {"device": ..., "compiles_ahead": ...} says what measures, and whether it makes
use of {"prepare": [program, ...]}, which is not answered. Then come those, and {"trial": ...}, whose answer is
{"outcome": ..., "is_last": ...}: is_last where the device is lost, and this process ends.

Started by `hidet.tuning.measuring`; ends when its input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO

from hidet.context import CompileContext, make_context
from hidet.errors import DeviceLost
from hidet.tuning.device_calls import DeviceCalls
from hidet.tuning.host_calls import HostCalls
from hidet.tuning.loaded import Loader
from hidet.tuning.runner import MakeCalls, Runner
from hidet.tuning.trial import Outcome, Settings, program_from, trial_from

_SIGNAL_OF_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of prctl."""


def main() -> None:
    """Answer standard input. What programs print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    die_first()
    end_with_parent()
    settings = Settings(**json.loads(sys.stdin.readline()))
    # Code of candidates that nobody will use stays out of the user's kernel cache.
    ctx = make_context(settings.target, {**settings.options, "threads": settings.threads, "cache": settings.cache})
    serve(ctx, sys.stdin, answers)


def die_first() -> None:
    """Have the system end this process and not its parent where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def end_with_parent() -> None:
    """Have the system end this process, whatever it runs, where its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)


def serve(ctx: CompileContext, messages: Iterable[str], answers: IO[str]) -> None:
    """Answer messages until they end, or until the device is lost."""
    memory = ctx.target.memory
    # A device has clocks of its own; on the host, threads that compile would be measured as well.
    loader = Loader(ctx, 0 if memory is None else max((os.cpu_count() or 1) - 1, 1))
    make_calls: MakeCalls = HostCalls if memory is None else partial(DeviceCalls, memory)
    runner = Runner(loader, make_calls)
    device = platform.processor() or platform.machine() if memory is None else memory.description
    _answer(answers, {"device": device, "compiles_ahead": memory is not None})
    for line in messages:
        message = json.loads(line)
        if "prepare" in message:
            loader.prepare(map(program_from, message["prepare"]))
            continue
        is_last = False
        try:
            outcome = runner.run(trial_from(message["trial"]))
        except Exception as error:  # noqa: BLE001  # whatever a candidate raises is why it is not used
            outcome = Outcome(failure=f"{type(error).__name__}: {error}")
            is_last = isinstance(error, DeviceLost)
        _answer(answers, {"outcome": asdict(outcome), "is_last": is_last})
        if is_last:
            break
    loader.close()


def _answer(answers: IO[str], message: object) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
