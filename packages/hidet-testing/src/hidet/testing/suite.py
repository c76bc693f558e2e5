"""Running a large suite of cases in several processes: one that dies or hangs fails the case it was at, not the suite.

A package with a suite has a `__main__` that is both sides: `run_processes` starts it with `--worker FILE --selection
JSON`, and there it gives the file to a `Journal` and notes each case in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

POLL_SECONDS = 0.2
PROGRESS_SECONDS = 10.0


def hash_of(name: str) -> int:
    """A number that depends on the name alone, on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


@dataclass(frozen=True, slots=True)
class Selection:
    """Cases of a suite: part number `part`, from 0, of `parts`, those whose name contains regular expression `pattern`.

    Parts are by hash of the name, so that they stay as they are when cases are added. Suites add fields of their own,
    of types that JSON has.
    """

    part: int = 0
    parts: int = 1
    pattern: str = ""

    def split(self, job: int, jobs: int) -> Self:
        """Share number `job` of `jobs`."""
        return replace(self, part=self.part + job * self.parts, parts=self.parts * jobs)

    def has(self, name: str) -> bool:
        """Whether a case belongs to it."""
        return hash_of(name) % self.parts == self.part and re.search(self.pattern, name) is not None


class Journal:
    """What a worker writes of its cases: a line where one starts, and a record, with its name, where it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: frozenset[str] = frozenset(record["name"] for record in records(path))

    def start(self, name: str) -> None:
        """A case starts: what happens to the process from here on, and how long it takes, is the case's."""
        self._append(f"start {name}")

    def end(self, record: Mapping[str, Any]) -> None:
        """A case has ended; the record has its name under "name"."""
        self._append(json.dumps(record))

    def _append(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(line + "\n")


def records(path: Path) -> list[dict[str, Any]]:
    """The cases that have ended, as a journal has them."""
    return [json.loads(line) for line in _lines(path) if line.startswith("{")]


def run_processes(
    module: str,
    selection: Selection,
    jobs: int,
    dead: Callable[[str, str], Mapping[str, Any]],
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """The records of a selection, run by `python -m module` in `jobs` processes.

    dead: the record of a case, by name and reason, in which the process died or took more than `seconds`; another
    process takes its place. None is no limit. progress: told now and then how many cases have ended. RuntimeError when
    a process dies between two cases.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{job}.jsonl" for job in range(jobs)]
        running = {job: _start(module, path, selection.split(job, jobs)) for job, path in enumerate(paths)}
        told = time.monotonic()
        try:
            while running:
                time.sleep(POLL_SECONDS)
                for job, process in list(running.items()):
                    code = process.poll()
                    if code is None and not _is_late(paths[job], seconds):
                        continue
                    del running[job]
                    if code == 0:
                        continue
                    if code is None:
                        process.kill()
                        process.wait()
                    last = _last_line(paths[job])
                    if not last.startswith("start "):
                        raise RuntimeError(f"a worker of {module} ended with code {code} between two cases")
                    reason = f"took more than {seconds:g} s" if code is None else f"the process died with code {code}"
                    Journal(paths[job]).end(dead(last.removeprefix("start "), reason))
                    running[job] = _start(module, paths[job], selection.split(job, jobs))
                if progress is not None and time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    progress(sum(line.startswith("{") for path in paths for line in _lines(path)))
        finally:
            for process in running.values():
                process.kill()
                process.wait()
        return [record for path in paths for record in records(path)]


def _start(module: str, path: Path, selection: Selection) -> subprocess.Popen[bytes]:
    arguments = ["--worker", str(path), "--selection", json.dumps(asdict(selection))]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


def _is_late(path: Path, seconds: float | None) -> bool:
    """Whether the case that the worker is at has taken more than `seconds`."""
    if seconds is None or not _last_line(path).startswith("start "):
        return False
    return time.time() - path.stat().st_mtime > seconds


def _last_line(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16)))
        return next(reversed(file.read().decode(errors="replace").splitlines()), "")


def _lines(path: Path) -> Iterable[str]:
    return path.read_text().splitlines() if path.exists() else ()
