"""`python -m hidet.torch.suite`: torch's own tables of tests, as many as asked for; `--help` lists the options."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hidet.testing import suite
from hidet.torch.suite.cases import DATABASES, DIRECTIONS, DTYPES, Outcome, Selection
from hidet.torch.suite.report import coverage, summary
from hidet.torch.suite.run import work

SECONDS = 120.0
"""How long a case may take."""


def run_processes(jobs: int, selection: Selection, seconds: float = SECONDS, progress: bool = False) -> list[Outcome]:
    """Run cases in `jobs` processes; one that dies or hangs is an error of its case."""

    def tell(done: int) -> None:
        print(f"{done} cases", file=sys.stderr, flush=True)

    found = suite.run_processes("hidet.torch.suite", selection, jobs, _dead, seconds, tell if progress else None)
    return [Outcome(**{**record, "left": tuple(record["left"])}) for record in found]


def _dead(name: str, reason: str) -> dict[str, Any]:
    return asdict(Outcome(name, "error", reason))


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 1 when a case gives wrong answers."""
    parser = argparse.ArgumentParser(prog="python -m hidet.torch.suite", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--share", default="1/1", help="K/N: part number K, from 1, of N by hash of the case's name")
    parser.add_argument("--most", type=int, default=0, help="cases of one operator, dtype and direction, 0 for all")
    parser.add_argument("--tables", default=",".join(DATABASES), help="of op, hop, module, optim")
    parser.add_argument("--ops", default="", help="names of operators, modules or optimisers; none for all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="as hidet writes them")
    parser.add_argument("--directions", default=",".join(DIRECTIONS), help="forward, backward")
    parser.add_argument("--pattern", default="", help="regular expression that the name of a case must contain")
    parser.add_argument("--seed", type=int, default=0, help="of the values of the samples")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a case may take")
    parser.add_argument("--report", type=Path, help="write the outcomes as JSON lines")
    parser.add_argument("--coverage", type=Path, help="write the table of operators")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--selection", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker is not None:
        work(given.worker, Selection(**given.selection))
        return 0
    part, parts = map(int, given.share.split("/"))
    lists = (tuple(filter(None, text.split(","))) for text in (given.tables, given.ops, given.dtypes, given.directions))
    tables, ops, dtypes, directions = lists
    selection = Selection(part - 1, parts, given.pattern, tables, ops, dtypes, directions, given.most, given.seed)
    start = time.perf_counter()
    outcomes = run_processes(given.jobs, selection, given.seconds, progress=True)
    outcomes.sort(key=lambda outcome: outcome.name)
    if given.report is not None:
        given.report.write_text("".join(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes))
    if given.coverage is not None:
        given.coverage.write_text(coverage(outcomes, torch.__version__, _selected(selection)))
    print(summary(outcomes))
    print(f"{time.perf_counter() - start:.0f} s in {given.jobs} processes")
    return 1 if any(outcome.result == "wrong" for outcome in outcomes) else 0


def _selected(selection: Selection) -> str:
    dtypes = ", ".join(selection.dtypes)
    most = f"{selection.most} or fewer cases" if selection.most else "every case"
    part = f", part {selection.part + 1} of {selection.parts}" if selection.parts > 1 else ""
    return (
        f"{most} of each entry in each of {dtypes}, {' and '.join(selection.directions)}, seed {selection.seed}{part}"
    )


if __name__ == "__main__":
    sys.exit(main())
