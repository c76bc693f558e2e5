"""Pages about compilations: what they say, and that a browser shows them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet.cli import main
from hidet.errors import OptionError
from hidet.report import check_accuracy
from hidet.report.blocks import Repeat, find_repeats
from hidet.report.contents import differences, kernel_entries, task_entries
from hidet.report.drawing import draw_graph
from hidet.report.layout import Box, lay_out
from hidet.report.origin import origin_of
from hidet.report.page import page_html

from .conftest import LAYER, counted, graph

BLOCKS = "graph deep(%x0: f32[4, 8]):\n" + "".join(
    f"  %a{n}: f32[4, 8] = softmax(%x{n}, axis=1)  # model.py:3 (layer.{n}.norm)\n"
    f"  %b{n}: f32[4, 8] = exp(%a{n})  # model.py:4 (layer.{n})\n"
    f"  %x{n + 1}: f32[4, 8] = add(%b{n}, %x{n})  # model.py:5 (layer.{n})\n"
    for n in range(12)
)
BLOCKS += "  return %x12\n"


def test_repeats_of_blocks_are_found_wherever_they_begin() -> None:
    assert find_repeats("xy" + "abc" * 4 + "z") == [Repeat(2, 3, 4)]
    assert find_repeats("abcd" * 2 + "!" + "efg" * 3) == [Repeat(0, 4, 2), Repeat(9, 3, 3)]
    assert find_repeats("abcdefgh") == [] == find_repeats("")


def test_a_block_that_repeats_is_drawn_once() -> None:
    drawing = draw_graph(graph(BLOCKS))
    # An input, three operators, what stands for eleven more blocks, an output.
    assert (drawing.boxes, drawing.operators) == (6, 36)
    assert "11 more such blocks" in drawing.svg and "layer.0.norm" in drawing.svg and "layer.3" not in drawing.svg
    assert any("layer.3" in fact for facts in drawing.facts for fact in facts)


def test_edges_point_down_and_boxes_do_not_overlap() -> None:
    boxes = [Box(40.0 + 10 * number, 20.0) for number in range(8)]
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5), (4, 6), (5, 6), (0, 6), (6, 7)]
    layout = lay_out(boxes, edges)
    for path in layout.edges:
        assert all(lower > upper for (_, upper), (_, lower) in pairwise(path))
    for one, (x, y) in enumerate(layout.places):
        assert x - boxes[one].width / 2 > 0 and x + boxes[one].width / 2 < layout.width and 0 < y < layout.height
        for other in range(one):
            a, b = layout.places[other]
            assert abs(x - a) >= (boxes[one].width + boxes[other].width) / 2 or abs(y - b) >= 20


def test_passes_are_shown_by_what_came_and_went(layer) -> None:
    text = "graph g(%x: f32[2]):\n  %0: f32[2] = neg(%x)\n  %1: f32[2] = exp(%x)\n  return %0\n"
    found = {each.name: each for each in differences(origin_of(hidet.compile(graph(text)).report()))}
    (changed,) = (each for each in found.values() if each.is_changed)
    assert changed.name == "eliminate-dead" or changed.after < changed.before
    assert changed.lines == (("-", "%1: f32[2] = exp(%x)"),)


def test_each_cut_between_tasks_has_its_reason(layer) -> None:
    product, softmax = task_entries(origin_of(layer.report()))
    assert not product.cuts
    (cut,) = softmax.cuts
    assert (cut.made_by, cut.made_by_title) == (product.number, "matmul + 2")
    assert cut.reason == "matmul and softmax have schedules of their own"
    text = "graph g(%x: f32[8, 64]):\n  %0: f32[8, 64] = exp(%x)\n  %1: f32[8, 64] = softmax(%0, axis=1)\n"
    text += "  %2: f32[8, 64] = softmax(%0, axis=0)\n  return %1, %2\n"
    entries = task_entries(origin_of(hidet.compile(graph(text)).report()))
    reasons = {cut.reason for entry in entries for cut in entry.cuts if cut.made_by_title == "exp"}
    assert reasons == {"several operators read it, or it is a result"}


def test_a_page_names_all_there_is_and_asks_nobody_for_anything(layer) -> None:
    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    text = page_html(layer.report(), layer.profile(*given, seconds=0.01))
    words = ("matmul + 2", "model.py:7", "cpu.matmul", "thread IR", "LLVM IR", "assembly", "fold-constants", "Python")
    assert [word for word in words if word not in text] == []
    # Names of a namespace and of a project, which nobody asks for anything.
    others = text.replace("http://www.w3.org/2000/svg", "").replace("https://github.com/leeoniya/uPlot", "")
    assert not re.findall(r'(?:src|href)="(?!#)', text) and "http://" not in others and "https://" not in others


def test_listings_are_those_of_the_programs_that_take_longest_as_long_as_there_is_room(layer) -> None:
    origin = origin_of(layer.report())
    entries = task_entries(origin)
    product, softmax = (entry.symbol for entry in entries)
    for longest in (product, softmax):
        found = {each.symbol: each for each in kernel_entries(origin, entries, {longest: 1.0}, listing_bytes=1)}
        assert [symbol for symbol, each in found.items() if each.is_listed] == [longest]
        assert "assembly" in dict(found[longest].texts)
        assert all("thread IR" in dict(each.texts) for each in found.values())
    assert not any(each.is_listed for each in kernel_entries(origin, entries, {}, listing_bytes=0))


def test_errors_of_kernels_are_a_part_of_the_page(layer) -> None:
    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    text = page_html(layer.report(), accuracy=check_accuracy(layer, *given), listings=False)
    assert 'id="accuracy"' in text and "all 2 results are as near to float64 as rounding allows" in text


@dataclass(frozen=True)
class Trial:
    params: str
    at: float
    ratio: float | None
    failure: str = ""


@dataclass(frozen=True)
class Task:
    """As `hidet.tuning.TaskReport`."""

    summary: str
    params: str
    default_seconds: float | None
    trials: tuple[Trial, ...]
    rule: str = "cpu.matmul"

    def __str__(self) -> str:
        return f"1 x {self.summary}, {self.rule}: {self.params} is faster"


@dataclass(frozen=True)
class Tuned:
    tasks: tuple[Task, ...]


def data_of(page: str) -> Any:
    """What a page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_kernels_stand_apart_on_the_roofline(layer) -> None:
    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    profile = layer.profile(*given, seconds=0.01)
    row = profile.rows[0]
    page = page_html(layer.report(), replace(profile, rows=(row, row)), listings=False)
    places = data_of(page)["places"]
    assert [place["number"] for place in places] == [0, 1] and 'id="roofline-chart"' in page
    assert places[0]["intensity"] < places[1]["intensity"] < 1.001 * places[0]["intensity"]
    assert places[0]["rate"] == row.rate


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on PATH")
def test_a_browser_draws_the_charts_and_keys_mark_rows_of_kernels(layer, tmp_path: Path) -> None:
    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    tuned = Tuned((Task("matmul(f32)", "b", 8e-6, (Trial("a", 1.0, 0.25), Trial("b", 3.0, 0.5))),))
    page = page_html(layer.report(), layer.profile(*given, seconds=0.01), tuning=tuned, listings=False)
    keys = "".join(
        f"place.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}));" for key in ("End", "Enter")
    )
    script = f"<script>const place = document.getElementById('roofline-chart'); {keys}</script>"
    file = tmp_path / "page.html"
    file.write_text(page.replace("</body>", f"{script}</body>"))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    shown = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=60).stdout
    assert shown.count("<canvas") == 2
    assert re.search(r'<tr id="row-\d+" class="marked"', shown)
    assert re.search(r'id="roofline-chart-reading"[^>]*>[^<]*operations a byte', shown)


def test_curves_of_tuning_are_a_part_of_the_page(layer) -> None:
    trials = (Trial("<a>", 1.0, 0.25), Trial("<a>", 2.0, 1.5), Trial("b", 3.0, 0.5), Trial("c", 4.0, None))
    tuned = Tuned((Task("matmul(f32)", "b", 8e-6, trials), Task("softmax(f32)", "", None, ())))
    page = page_html(layer.report(), tuning=tuned, listings=False)
    assert 'id="tuning"' in page and "b is faster" in page and page.count('class="chart" data-task') == 1
    (curve, _) = data_of(page)["tasks"]
    assert [trial["seconds"] for trial in curve["trials"]] == [2e-6, 12e-6, 4e-6, None]
    # The first measurement of a point counts no longer once it was measured again.
    assert [trial["best"] for trial in curve["trials"]] == [2e-6, 8e-6, 4e-6, 4e-6]
    assert re.search(r"Not measured now.*softmax\(f32\)", page, re.S)


def test_what_a_model_says_cannot_end_a_script() -> None:
    text = "graph g(%x: f32[2]):\n  %0: f32[2] = exp(%x)  # a.py:1 (</script><b>)\n  return %0\n"
    page = page_html(hidet.compile(graph(text)).report(), listings=False)
    assert "</script><b>" not in page


def test_sub_graphs_have_drawings_of_their_own() -> None:
    page = page_html(hidet.compile(counted()).report(), listings=False)
    assert 'id="panel-inner-1"' in page and "Sub-graph body" in page
    main = re.search(r'data-graph="after".*?</svg>', page, re.S)
    inner = re.search(r'data-graph="inner-1".*?</svg>', page, re.S)
    assert main is not None and ">while<" in main[0] and ">exp<" not in main[0]
    assert inner is not None and ">exp<" in inner[0]
    # A pass that ran over both and changed neither is named once.
    idle = re.search(r"Changed nothing: (.*?)</p>", page)
    assert idle is not None and idle[1].count("common-subexpr (") == 1 and " in 2 runs" in idle[1]


def test_a_page_is_written_by_the_report_and_by_the_command(layer, tmp_path) -> None:
    layer.report().html(tmp_path / "page.html", listings=False)
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text()
    with pytest.raises(OptionError, match="cannot be written to"):
        layer.report().html(tmp_path / "missing" / "page.html", listings=False)
    (tmp_path / "layer.hir").write_text(LAYER)
    arguments = ["report", str(tmp_path / "layer.hir"), "-o", str(tmp_path / "other.html"), "--seconds", "0.01"]
    result = CliRunner().invoke(main, [*arguments, "--no-listings", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["bytes"] == (tmp_path / "other.html").stat().st_size
    assert "Roofline" in (tmp_path / "other.html").read_text()


def test_a_folder_of_the_environment_gets_a_page_for_each_graph(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_REPORT", str(tmp_path / "pages"))
    for _ in range(2):
        hidet.compile(graph(LAYER))
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["layer_0.html", "layer_1.html"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on PATH")
def test_a_browser_shows_the_page_without_an_error(layer, tmp_path: Path) -> None:
    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    page = tmp_path / "page.html"
    text = page_html(layer.report(), layer.profile(*given, seconds=0.01))
    # What a person does: choose a box, go on to the next one, open a listing, show the other graph, sort the table.
    acts = """<script>
      const view = document.querySelector(".canvas");
      view.querySelector(".box text").dispatchEvent(new MouseEvent("click", { bubbles: true }));
      view.dispatchEvent(new KeyboardEvent("keydown", { key: "n" }));
      view.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
      document.querySelector("pre.source").parentElement.open = true;
      document.querySelector("#tab-before").click();
      document.querySelector(".sortable th.number").click();
    </script></body>"""
    page.write_text(text.replace("</body>", acts))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [*command, "--enable-logging=stderr", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert "Uncaught" not in done.stderr and "CONSOLE" not in done.stderr
    after = re.search(r'id="facts-after"[^>]*>(.*?)</pre>', done.stdout, re.S)
    assert after is not None and "input %w" in after[1]
    assert 'aria-sort="descending"' in done.stdout
    source = re.search(r'<pre class="source" data-text="0"[^>]*>(.*?)</pre>', done.stdout, re.S)
    assert source is not None and source[1].startswith("module(entry=")
    assert re.search(r'id="panel-before"[^>]*hidden', done.stdout) is None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on PATH")
def test_a_graph_that_is_wider_than_the_window_begins_with_all_of_its_first_boxes(tmp_path: Path) -> None:
    rows = "".join(f"  %{n}: f32[{n + 2}] = exp(%x{n})  # model.py:{n} (a.branch.of.the.model.{n})\n" for n in range(8))
    inputs, names = ", ".join(f"%x{n}: f32[{n + 2}]" for n in range(8)), ", ".join(f"%{n}" for n in range(8))
    text = page_html(hidet.compile(graph(f"graph g({inputs}):\n{rows}  return {names}\n")).report(), listings=False)
    page = tmp_path / "page.html"
    page.write_text(text)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [*command, "--window-size=1300,900", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    (_, _, whole, _), (left, _, width, _) = (
        map(float, re.search(r'data-graph="after".*?viewBox="([^"]*)"', shown, re.S)[1].split())
        for shown in (text, done.stdout)
    )
    assert 1300 < whole < 1900 and left <= 0 and left + width >= whole
