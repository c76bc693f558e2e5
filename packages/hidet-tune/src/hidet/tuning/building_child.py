"""A process that compiles programs for others to load: lines of JSON in, lines of JSON out.

The first line is `Settings`, each further one a `ProgramText`, which {} answers when there is no more to do for it.
Machine code goes into the kernel cache of HIDET_CACHE_DIR. Nothing is loaded and no device is used.

Started by `hidet.tuning.building`; ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from hidet.context import make_context
from hidet.tuning.child import answers_apart, die_first, end_with_parent, write_answer
from hidet.tuning.loaded import compile_program
from hidet.tuning.trial import Settings, program_from

_NICENESS = 5


def main() -> None:
    """Answer standard input. What compilers print goes to standard error."""
    answers = answers_apart()
    die_first()
    end_with_parent()
    # What measures, and what asks for it, go first.
    os.nice(_NICENESS)
    settings = Settings(**json.loads(sys.stdin.readline()))
    ctx = make_context(settings.target, {**settings.options, "threads": settings.threads, "cache": True})
    rows = ctx.registry.intrinsic_rows()
    for line in sys.stdin:
        with contextlib.suppress(Exception):  # whoever measures it meets the same, and says so
            compile_program(program_from(json.loads(line)), ctx, rows)
        write_answer(answers, {})


if __name__ == "__main__":
    main()
