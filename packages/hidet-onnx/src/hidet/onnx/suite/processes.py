"""Running the suite in several processes: one that dies fails the test it was at, and another takes its place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

from hidet.onnx.suite.cases import Outcome, cases, is_in_part, run_case


def run_processes(jobs: int, part: int, parts: int, pattern: str) -> list[Outcome]:
    """Run a part of the suite in `jobs` processes. One that dies fails the test it was at; another takes its place."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{job}.jsonl" for job in range(jobs)]
        running = {job: _start(path, job, jobs, part, parts, pattern) for job, path in enumerate(paths)}
        while running:
            job, process = next(iter(running.items()))
            code = process.wait()
            del running[job]
            lines = paths[job].read_text().splitlines() if paths[job].exists() else []
            if code and not (lines and lines[-1].startswith("start ")):
                raise RuntimeError(f"a worker of the suite ended with code {code} between two tests")
            if code:
                outcome = Outcome(lines[-1][6:], "fail", f"the process died with code {code}", (), {}, 0.0)
                with paths[job].open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                running[job] = _start(paths[job], job, jobs, part, parts, pattern)
        for path in paths:
            outcomes += [_parsed(line) for line in path.read_text().splitlines() if not line.startswith("start ")]
    return outcomes


def _start(path: Path, job: int, jobs: int, part: int, parts: int, pattern: str) -> subprocess.Popen[bytes]:
    arguments = ["--worker", str(path), "--part", f"{part + job * parts}/{parts * jobs}", "--pattern", pattern]
    return subprocess.Popen([sys.executable, "-m", "hidet.onnx.suite", *arguments], stdout=subprocess.DEVNULL)


def _parsed(line: str) -> Outcome:
    data = json.loads(line)
    return Outcome(**{**data, "operators": tuple(data["operators"])})


def work(path: Path, part: int, parts: int, pattern: str) -> None:
    """Run the tests of a part that the file does not hold yet, and append their outcomes."""
    wanted = re.compile(pattern)
    done = (
        {_parsed(line).name for line in path.read_text().splitlines() if line.startswith("{")} if path.exists() else ()
    )
    with path.open("a") as file:
        for case in cases():
            if case.name in done or not (is_in_part(case.name, part, parts) and wanted.search(case.name)):
                continue
            file.write(f"start {case.name}\n")
            file.flush()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = run_case(case)
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
