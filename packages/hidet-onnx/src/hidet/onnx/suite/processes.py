"""Running the suite in several processes."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path

from hidet.onnx.suite.cases import Outcome, Selection, cases, run_case
from hidet.testing import suite


def run_processes(jobs: int, selection: Selection) -> list[Outcome]:
    """Run tests in `jobs` processes. One that dies fails the test it was at; another takes its place."""
    found = suite.run_processes("hidet.onnx.suite", selection, jobs, _dead)
    return [Outcome(**{**record, "operators": tuple(record["operators"])}) for record in found]


def _dead(name: str, reason: str) -> dict[str, object]:
    return asdict(Outcome(name, "fail", reason, (), {}, 0.0))


def work(path: Path, selection: Selection) -> None:
    """Run the tests that the file does not hold yet, and append their outcomes."""
    journal = suite.Journal(path)
    for case in cases():
        if case.name in journal.done or not selection.has(case.name):
            continue
        journal.start(case.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = run_case(case, selection.device)
        journal.end(asdict(outcome))
