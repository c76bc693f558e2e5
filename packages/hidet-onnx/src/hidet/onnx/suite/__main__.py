"""`python -m hidet.onnx.suite`: ONNX's own backend tests, as many as asked for; `--help` lists the options."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import onnx
from hidet.onnx.suite.cases import Selection
from hidet.onnx.suite.processes import run_processes, work
from hidet.onnx.suite.report import coverage, summary


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 1 when a test gives wrong answers."""
    parser = argparse.ArgumentParser(prog="python -m hidet.onnx.suite", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--part", default="0/1", help="K/N: part number K, from 0, of N by hash of the test's name")
    parser.add_argument("--pattern", default="", help="regular expression that a test's name must contain")
    parser.add_argument("--device", default="CPU", help="CPU or CUDA")
    parser.add_argument("--report", type=Path, help="write the outcomes as JSON lines")
    parser.add_argument("--coverage", type=Path, help="write the table of operators")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--selection", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker is not None:
        work(given.worker, Selection(**given.selection))
        return 0
    part, parts = map(int, given.part.split("/"))
    selection = Selection(part, parts, given.pattern, given.device)
    start = time.perf_counter()
    outcomes = run_processes(given.jobs, selection)
    if given.report is not None:
        given.report.write_text("".join(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes))
    if given.coverage is not None:
        given.coverage.write_text(coverage(outcomes, onnx.__version__, given.device))
    print(summary(outcomes))
    print(f"{time.perf_counter() - start:.0f} s in {given.jobs} processes")
    return 1 if any(outcome.result == "wrong" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
