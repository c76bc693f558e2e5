"""What tuning has found: on a terminal while it goes on, and as a page."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from hidet.cli import main
from hidet.report.roofline import Roofline
from hidet.tuning.report import TaskReport, TrialReport, TuneReport
from hidet.tuning.report_html import report_html
from hidet.tuning.report_live import LiveTable, Progress

TRIALS = (
    TrialReport("Tile(16)", 0.5, 0.9, predicted=8e-4),
    TrialReport("Tile(32)", 0.7, None, "wrong results: output 0 differs"),
    TrialReport("Tile(64)", 1.0, 0.6),
    TrialReport("Tile(64)", 1.5, 0.5),
)
PRODUCT = TaskReport(
    "matmul(f32[8, 8])",
    12,
    "cpu.matmul",
    "Tile(8)",
    "Tile(64)",
    1e-3,
    5e-4,
    3,
    4,
    refused=("Tile(32): wrong results: output 0 differs", "Tile(128): too large: no such tile"),
    flops=1 << 20,
    nbytes=1 << 12,
    trials=TRIALS,
)
STORED = TaskReport("softmax(f32[8])", 1, "cpu.softmax", "16", "16", 1e-6, 1e-6, 2, 2, is_stored=True)
FIXED = TaskReport("gather(f32[8])", 1, "cpu.gather", note="its rule offers nothing to choose")
ROOF = Roofline({"f32": 1e11}, {"L1": 1e12, "memory": 2e10})


def report(*tasks: TaskReport, **given: Any) -> TuneReport:
    compiled: Any = None
    values = {
        "default_seconds": 2e-2,
        "tuned_seconds": 1e-2,
        "device": "a CPU",
        "roofline": ROOF,
        "budget": 60.0,
    } | given
    return TuneReport(compiled, tasks or (PRODUCT, STORED, FIXED), "choices.sqlite", 12.5, **values)


class Page(HTMLParser):
    """Rows of tables by their cells' text, texts of all elements, and what the page asks others for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.elements: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append(tag)
        self.links += [value for name in ("src", "href") if (value := given.get(name)) is not None]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data


def test_the_page_asks_nobody_for_anything_and_its_links_lead_somewhere() -> None:
    text = report_html(report(), "model.onnx")
    page = Page(text)
    assert page.links and all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert not re.search(r"@import|url\((?!data:)|\bfetch\(|XMLHttpRequest", text)


def test_candidates_stand_in_the_order_of_their_times_and_refused_ones_last_with_their_reasons() -> None:
    rows = Page(report_html(report(), "model.onnx")).rows
    start = rows.index(["Parameters", "Gain", "Time", "Expected", "Measured", "Remark"])
    assert rows[start + 1 : start + 5] == [
        ["Tile(64)", "2.00 ×", "500 us", "", "2", "chosen"],
        ["Tile(16)", "1.11 ×", "900 us", "800 us", "1", ""],
        ["Tile(32)", "", "", "", "1", "wrong results: output 0 differs"],
        ["Tile(128)", "", "", "", "0", "too large: no such tile"],
    ]


def test_tasks_have_their_place_below_the_roof() -> None:
    rows = Page(report_html(report(), "model.onnx")).rows
    assert ["12 × matmul(f32[8, 8])", "256", "1.05 Gop/s", "2.1 Gop/s", "2%"] in rows
    without = Page(report_html(report(roofline=None), "model.onnx")).rows
    assert ["12 × matmul(f32[8, 8])", "256", "1.05 Gop/s", "2.1 Gop/s"] in without
    assert "roofline-chart" not in Page(report_html(report(FIXED), "model.onnx")).ids


def test_the_time_that_was_saved_is_of_all_uses_of_a_task() -> None:
    (row,) = [row for row in Page(report_html(report(), "model.onnx")).rows if row[-1] == "50%"]
    assert row[0] == "12 × matmul(f32[8, 8])" and row[1].split() == ["12", "ms", "6", "ms"]


def test_names_of_models_and_tasks_are_text_and_never_part_of_the_page() -> None:
    bad = "</script><script>alert(1)</script><img src=x>"
    task = TaskReport(bad, 1, bad, bad, bad, 1e-3, 1e-3, 1, 1, refused=(bad,), trials=(TrialReport(bad, 0.1, 0.5),))
    page = Page(report_html(report(task), bad))
    assert "img" not in page.elements
    assert page.elements.count("script") == 3


def test_the_data_of_the_charts_is_json_with_times_of_calls() -> None:
    text = report_html(report(), "model.onnx")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert [trial["seconds"] for trial in data["tasks"][0]["trials"]] == [
        pytest.approx(9e-4),
        None,
        pytest.approx(6e-4),
        pytest.approx(5e-4),
    ]
    assert data["roofline"]["bandwidths"]["memory"] == 2e10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "20 ms → 10 ms: the model is 2.00 times as fast."),
        (
            {"is_dropped": True, "tuned_seconds": 3e-2},
            "no gain of the model above the noise, so all of these choices were dropped",
        ),
        ({"is_interrupted": True}, "Interrupted: what was found is kept"),
        ({"default_seconds": None, "tuned_seconds": None}, "the model is as fast as before"),
    ],
)
def test_the_page_says_first_what_became_of_the_model(given, said) -> None:
    assert said in report_html(report(**given), "model.onnx")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on PATH")
def test_a_browser_draws_the_charts_without_a_network(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report_html(report(), "model.onnx"))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("<canvas") == 2


def progress(task: TaskReport, **given: Any) -> Progress:
    return Progress(**({"number": 1, "total": 3, "task": task, "share": 0.75, "end": time.monotonic() + 30} | given))


def test_without_a_terminal_a_task_that_is_done_is_a_line() -> None:
    out = io.StringIO()
    with LiveTable(Console(file=out, width=60)) as table:
        table(progress(PRODUCT))
        table(progress(PRODUCT, is_done=True))
    (line,) = out.getvalue().splitlines()
    assert line.startswith(
        "[1/3] 75% of the model: 12 x matmul(f32[8, 8]), cpu.matmul: Tile(8) -> Tile(64), 2.00 times"
    )


def test_on_a_terminal_a_table_shows_tasks_as_they_go_on() -> None:
    table = LiveTable(Console(file=io.StringIO(), width=100))
    table(progress(PRODUCT))
    table(progress(FIXED, number=2, share=0.01, is_done=True))
    out = io.StringIO()
    Console(file=out, width=100).print(table.table())
    first, second, left = [line.split() for line in out.getvalue().splitlines() if line.strip()][2:]
    assert first == ["12", "x", "matmul(f32[8,", "8])", "3/4", "500", "us", "2.00", "x", "75%"]
    assert " ".join(second) == "1 x gather(f32[8]): its rule offers nothing to choose 1%"
    assert " ".join(left) in ("30 s of the budget left", "29 s of the budget left")


def test_the_gain_so_far_is_the_best_measurements_until_the_choice_is_made() -> None:
    assert progress(TaskReport("", 1, "")).gain is None
    assert progress(PRODUCT).gain == 2.0
    kept = TaskReport("", 1, "", "a", "a", 1e-3, 1e-3, trials=(TrialReport("b", 0.0, 0.99),))
    assert progress(kept, is_done=True).gain == 1.0


def test_a_page_that_cannot_be_written_is_an_error_after_all_else_is_said(tmp_path) -> None:
    model = tmp_path / "model.hir"
    model.write_text("graph g(%x: f32[8]):\n  %0: f32[8] = exp(%x)\n  return %0\n")
    given = [
        "--budget",
        "1s",
        "--store",
        str(tmp_path / "choices.sqlite"),
        "--report",
        str(tmp_path / "no" / "page.html"),
    ]
    done = CliRunner().invoke(main, ["tune", str(model), *given])
    assert done.exit_code == 1
    assert "tasks from the store" in done.output and "page.html': No such file or directory" in done.output
