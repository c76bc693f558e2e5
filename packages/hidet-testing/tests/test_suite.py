"""A suite goes on when the process of a case dies or hangs, and its shares are disjoint and whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hidet.testing.suite import Journal, Selection, records, run_processes

WORKER = """
import argparse, json, os, pathlib, time
from hidet.testing.suite import Journal, Selection

parser = argparse.ArgumentParser()
parser.add_argument("--worker", type=pathlib.Path)
parser.add_argument("--selection", type=json.loads)
given = parser.parse_args()
selection, journal = Selection(**given.selection), Journal(given.worker)
for name in ("first", "dies", "second", "hangs", "third"):
    if name not in journal.done and selection.has(name):
        journal.start(name)
        if name == "dies":
            os._exit(7)
        if name == "hangs":
            time.sleep(60)
        journal.end({"name": name, "result": "right"})
if selection.pattern == "none":
    os._exit(3)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "suite_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "suite_worker"


def test_a_case_that_dies_or_hangs_is_a_row_and_the_others_run(worker: str) -> None:
    def dead(name: str, reason: str) -> dict[str, str]:
        return {"name": name, "result": reason}

    found = run_processes(worker, Selection(), 2, dead, seconds=1.0)
    assert {record["name"]: record["result"] for record in found} == {
        "first": "right",
        "dies": "the process died with code 7",
        "second": "right",
        "hangs": "took more than 1 s",
        "third": "right",
    }


def test_a_worker_that_dies_between_two_cases_ends_the_suite(worker: str) -> None:
    with pytest.raises(RuntimeError, match="code 3 between two cases"):
        run_processes(worker, Selection(pattern="none"), 1, lambda name, reason: {"name": name})


def test_parts_are_disjoint_and_whole_and_may_be_split_further() -> None:
    names = [f"case {number}" for number in range(100)]
    parts = [{name for name in names if Selection(part, 4).has(name)} for part in range(4)]
    assert sum(map(len, parts)) == 100
    assert set.union(*parts) == set(names)
    split = [{name for name in names if Selection(1, 4).split(job, 2).has(name)} for job in range(2)]
    assert split[0] | split[1] == parts[1]
    assert not split[0] & split[1]


def test_a_journal_knows_what_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.start("a")
    journal.end({"name": "a", "result": "right"})
    journal.start("b")
    assert Journal(path).done == {"a"}
    assert records(path) == [{"name": "a", "result": "right"}]
