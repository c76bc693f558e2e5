"""The process that runs programs which may crash or never end: lines of JSON in, lines of JSON out.

The first line is `Settings`; the answer {"device": ...} says what measures. Each further one is a `Trial`, whose answer
is {"outcome": ..., "is_last": ...}: is_last where the device is lost, and this process ends.

Started by `hidet.tuning.measuring`; ends when its input does.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import IO

from hidet.context import CompileContext, make_context
from hidet.errors import DeviceLost
from hidet.target.constants import measurable
from hidet.tuning.child import answers_apart, die_first, end_with_parent, write_answer
from hidet.tuning.device_calls import DeviceInputs
from hidet.tuning.host_calls import HostInputs
from hidet.tuning.loaded import Loader
from hidet.tuning.runner import PlaceInputs, Runner
from hidet.tuning.trial import Outcome, Settings, trial_from


def main() -> None:
    """Answer standard input. What programs print goes to standard error."""
    answers = answers_apart()
    die_first()
    end_with_parent()
    settings = Settings(**json.loads(sys.stdin.readline()))
    # Code of candidates that nobody will use stays out of the user's kernel cache: it is in no cache, or in another.
    ctx = make_context(settings.target, {**settings.options, "threads": settings.threads, "cache": settings.cache})
    serve(ctx, sys.stdin, answers)


def serve(ctx: CompileContext, messages: Iterable[str], answers: IO[str]) -> None:
    """Answer messages until they end, or until the device is lost."""
    memory = ctx.target.memory
    place: PlaceInputs = HostInputs if memory is None else partial(DeviceInputs, memory)
    runner = Runner(Loader(ctx), place)
    write_answer(answers, {"device": _host_name(ctx) if memory is None else memory.description})
    for line in messages:
        start, is_last = time.monotonic(), False
        try:
            outcome = runner.run(trial_from(json.loads(line)))
        except Exception as error:  # noqa: BLE001  # whatever a candidate raises is why it is not used
            outcome = Outcome(failure=f"{type(error).__name__}: {error}")
            is_last = isinstance(error, DeviceLost)
        outcome = replace(outcome, took=time.monotonic() - start)
        write_answer(answers, {"outcome": asdict(outcome), "is_last": is_last})
        if is_last:
            break


def _host_name(ctx: CompileContext) -> str:
    """Of the machine, for people."""
    target = measurable(ctx.target)
    return platform.machine() if target is None else target.device_name()


if __name__ == "__main__":
    main()
