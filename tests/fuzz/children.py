"""Cases that may end a process run in processes of their own; a process that dies or hangs is replaced, and told of.

A fuzzer is a module that is run as `python -m MODULE --child` and calls `serve` then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

LIMIT_SECONDS = 90
"""Of CPU time, which a busy machine does not stretch."""
LIMIT_WAITING = 900.0
"""Seconds of wall time until a case counts as waiting for ever."""
LIMIT_BYTES = 6 << 30
"""Of address space: what a process maps of Python, numpy and LLVM, and far more than any of the cases needs."""

_LAST_WORDS = 6000
"""Bytes of a dead process's stderr that are told."""

GOOD = ("refused", "ran")


@dataclass(frozen=True, slots=True)
class End:
    """How one case ended: in one of GOOD, or "uncaught", "wrong", "died", "hung". seed: makes it again."""

    base: str
    seed: int
    kind: str
    detail: str

    @property
    def is_good(self) -> bool:
        """Whether that may happen."""
        return self.kind in GOOD


Work = tuple[str, str, int]
"""A case: the name of its base, the base as text, and the seed."""


def ends(module: str, work: Sequence[Work], jobs: int) -> list[End]:
    """Run cases of a fuzzer, `jobs` at a time; in the order of their seeds."""
    results: list[End] = []
    parts = [work[job::jobs] for job in range(jobs)]
    threads = [threading.Thread(target=lambda part=part: results.extend(_run(module, part))) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results, key=lambda end: end.seed)


def serve(end_of: Callable[[str, str, int], End], *, is_device_usable: Callable[[], bool] | None = None) -> None:
    """What a child does: a case a line.

    is_device_usable: asked after each case where cases use a device, whose driver maps far more addresses than a
    process has memory. What stops a device ends its context for good: the child says so and is replaced.
    """
    if is_device_usable is None:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    for line in sys.stdin:
        end = int(time.process_time()) + LIMIT_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        found = asdict(end_of(*json.loads(line)))
        is_last = is_device_usable is not None and not is_device_usable()
        print(json.dumps({"end": found, "is_last": is_last}), flush=True)
        if is_last:
            os._exit(0)  # without the destructors, which a driver without a context may abort in


def report(found: Iterable[Sequence[End]]) -> None:
    """Print the bad ends of each batch and a count of all so far; exit with 1 where there is a bad one."""
    counts: Counter[str] = Counter()
    for batch in found:
        for end in batch:
            if not end.is_good:
                print(f"{end.kind:9}seed {end.seed} of {end.base}: {end.detail}")
        counts.update(end.kind for end in batch)
        print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()), flush=True)
    if counts.keys() - {*GOOD}:
        raise SystemExit(1)


def in_batches(count: int, run: Callable[[int, int], list[End]], most: int = 200) -> Iterator[list[End]]:
    """The ends of `count` cases, `most` at a time. run: of how many cases there are and the first one's number."""
    for first in range(0, count, most):
        yield run(min(most, count - first), first)


def _run(module: str, work: Sequence[Work]) -> Iterator[End]:
    child: _Child | None = None
    for case in work:
        child = child or _Child(module)
        end = child.end_of(*case)
        if child.is_stopped:
            child = None
        yield end
    if child is not None:
        child.stop()


class _Child:
    """is_stopped: whether it takes no further case. last_words: what it wrote to stderr at its end, once it stopped:
    the traceback of an exception, or of a signal."""

    def __init__(self, module: str) -> None:
        self.is_stopped = False
        self.last_words = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def end_of(self, base: str, content: str, seed: int) -> End:
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(LIMIT_WAITING, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps([base, content, seed]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        is_late = not timer.is_alive()
        timer.cancel()
        if line:
            answer = json.loads(line)
            if answer["is_last"]:
                self.stop()
            return End(**answer["end"])
        code = self.stop()
        is_hung = is_late or code == -signal.SIGXCPU
        return End(base, seed, "hung" if is_hung else "died", f"exit code {code}\n{self.last_words}")

    def stop(self) -> int:
        """End the process; its exit code."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.is_stopped = True
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        with self._errors as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LAST_WORDS))
            self.last_words = file.read().decode(errors="replace").strip()
        return code
