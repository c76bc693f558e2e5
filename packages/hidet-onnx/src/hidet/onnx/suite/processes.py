"""Running the suite in several processes: one that dies fails the test it was at, and another takes its place."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

from hidet.onnx.suite.cases import Outcome, Selection, cases, run_case


def run_processes(jobs: int, selection: Selection) -> list[Outcome]:
    """Run tests in `jobs` processes. One that dies fails the test it was at; another takes its place."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{job}.jsonl" for job in range(jobs)]
        running = {job: _start(path, selection.split(job, jobs)) for job, path in enumerate(paths)}
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
                running[job] = _start(paths[job], selection.split(job, jobs))
        for path in paths:
            outcomes += [_parsed(line) for line in path.read_text().splitlines() if not line.startswith("start ")]
    return outcomes


def _start(path: Path, selection: Selection) -> subprocess.Popen[bytes]:
    arguments = ["--worker", str(path), "--part", f"{selection.part}/{selection.parts}"]
    arguments += ["--pattern", selection.pattern, "--device", selection.device]
    return subprocess.Popen([sys.executable, "-m", "hidet.onnx.suite", *arguments], stdout=subprocess.DEVNULL)


def _parsed(line: str) -> Outcome:
    data = json.loads(line)
    return Outcome(**{**data, "operators": tuple(data["operators"])})


def work(path: Path, selection: Selection) -> None:
    """Run the tests that the file does not hold yet, and append their outcomes."""
    done = (
        {_parsed(line).name for line in path.read_text().splitlines() if line.startswith("{")} if path.exists() else ()
    )
    with path.open("a") as file:
        for case in cases():
            if case.name in done or not selection.has(case.name):
                continue
            file.write(f"start {case.name}\n")
            file.flush()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = run_case(case, selection.device)
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
