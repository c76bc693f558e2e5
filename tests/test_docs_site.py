"""The built documentation site (`nox -s docs`): every public name has a place, and its search answers questions."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from docs.generate import data_path, grids
from docs.generate.docstrings import markdown_of
from docs.generate.gallery import ORDER
from docs.generate.operators import functions_by_family
from docs.generate.performance import draw, write_performance
from docs.generate.reference import FOR_USERS, modules_for_authors, public_names

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "_build" / "html"
built = pytest.mark.skipif(not (SITE / "objects.inv").exists(), reason="the site is not built: nox -s docs")

QUESTIONS = {
    "profile": "seeing",
    "which kernel is wrong": "seeing",
    "how do I see why it recompiled?": "troubleshooting",
    "what does freeze do": "weights",
    "can I use my own kernel": "script",
    "which options act": "torch",
    "dynamic sizes": "torch",
    "freeze weights": "weights",
    "no CUDA driver": "troubleshooting",
    "install gpu": "install",
    "environment variables": "environment",
    "cache directory": "environment",
    "race": "memory-model",
    "wrong results": "troubleshooting",
    "deploy without torch": "torch",
    "generate": "recipes",
    "diffusers": "recipes",
    "16-bit floats": "mixed-precision",
    "same bits": "numerics",
    "write a plug-in": "plugins",
    "profile a model of torch.compile": "seeing",
    "profile the backward pass": "seeing",
    "tuning curves": "seeing",
    "minify": "seeing",
    "smallest part of a model": "seeing",
    "is my GPU found": "troubleshooting",
    "driver is old": "troubleshooting",
    "nvrtc not found": "troubleshooting",
    "shadowing": "troubleshooting",
    "report a bug": "troubleshooting",
    "quantized to int8": "troubleshooting",
    "accumulate in float16": "troubleshooting",
    "OutOfMemory": "troubleshooting",
    "how many threads": "troubleshooting",
    "first call is slow": "troubleshooting",
    "save a compiled model": "optimize-onnx-model",
    "benchmark against onnxruntime": "reference/performance",
    "keras": "tensorflow",
    "jax": "stablehlo",
    "HTML page": "seeing",
    "softmax": "reference/operators/normalize",
    "hidet.compile": "reference/hidet",
    "CompiledGraph": "reference/hidet.runtime.compiled",
}
"""What people ask, and a page that answers it: among the first five results."""


def documented() -> set[str]:
    """Full names of Python objects with a place on the site."""
    data = (SITE / "objects.inv").read_bytes()
    body = zlib.decompress(data.split(b"\n", 4)[4]).decode()
    return {line.split(" ", 1)[0] for line in body.splitlines() if " py:" in line}


@built
@pytest.mark.parametrize("module", [*FOR_USERS, *modules_for_authors()])
def test_every_public_name_has_a_place(module: str) -> None:
    names = {f"{module}.{name}" for name in public_names(importlib.import_module(module))}
    assert not names - documented()


@built
def test_every_operator_has_a_place() -> None:
    names = {f"hidet.ops.{name}" for names in functions_by_family().values() for name in names}
    assert len(names) > 300
    assert not names - documented()


@built
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run the site's own search")
def test_the_search_answers_questions() -> None:
    command = ["node", str(ROOT / "tests" / "site" / "search.js"), str(SITE), *QUESTIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = {
        query: [page for page, _ in results[:5]]
        for query, results in zip(QUESTIONS, json.loads(done.stdout), strict=True)
    }
    assert {query: pages for query, pages in found.items() if QUESTIONS[query] not in pages} == {}


class _Links(HTMLParser):
    """Where links and pictures of a page lead, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.targets += [value for name in ("href", "src") if (value := given.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}


@built
def test_no_page_shows_where_something_lay_in_memory() -> None:
    shown = {
        path.name for path in SITE.glob("**/*.html") if re.search(r"\bat\b(\s|<[^>]*>)*0x[0-9a-f]{9}", path.read_text())
    }
    assert not shown


@built
def test_links_of_the_site_lead_somewhere() -> None:
    pages: dict[Path, _Links] = {}
    for path in SITE.glob("**/*.html"):
        pages[path] = _Links()
        pages[path].feed(path.read_text())
    broken = set()
    for path, page in pages.items():
        for target in page.targets:
            if re.match(r"\w+:|//", target):
                continue
            file, _, anchor = target.partition("#")
            found = (path.parent / file.partition("?")[0]).resolve() if file else path
            is_there = found.exists() and (not anchor or found not in pages or anchor in pages[found].anchors)
            if not is_there:
                broken.add(f"{path.relative_to(SITE)}: {target}")
    assert not broken


@pytest.mark.parametrize("figure", grids.figures().items(), ids=lambda figure: figure[0].stem)
def test_figures_of_mappings_and_layouts_show_what_the_language_computes(figure: tuple[Path, str]) -> None:
    path, drawn = figure
    assert path.read_text() == drawn, "python -m docs.generate.grids draws it anew"


def test_every_script_of_the_gallery_has_a_place_in_it() -> None:
    scripts = {path.stem for path in (ROOT / "examples" / "gallery").glob("*.py")}
    assert scripts == set(ORDER) and len(ORDER) == len(scripts)


def test_lines_about_arguments_become_items() -> None:
    text = "Does it.\n\nsize: how large;\nNone for all of it.\nother: 2 * size.\nRaises ShapeError."
    assert markdown_of(text, {"size", "other"}).splitlines() == [
        "Does it.",
        "",
        "- `size`: how large;",
        "  None for all of it.",
        "- `other`: 2 \\* size.",
        "",
        "Raises ShapeError.",
    ]


def test_arguments_behind_a_sentence_become_items_too() -> None:
    text = "a: one. b, *c: two; more.\nit: nothing."
    assert markdown_of(text, {"a", "b", "c"}).splitlines() == [
        "- `a`: one.",
        "- `b`, `*c`: two; more.",
        "  it: nothing.",
    ]


def test_examples_and_blocks_of_text_stay_as_they_are() -> None:
    text = "Adds.\n\n    a + b\n\n>>> add(1, 2)\n3"
    assert markdown_of(text) == "Adds.\n\n```text\na + b\n```\n\n```pycon\n>>> add(1, 2)\n3\n```"


def test_the_figure_of_the_data_path_shows_what_the_tables_say() -> None:
    assert data_path.FIGURE.read_text() == data_path.draw(), "python -m docs.generate.data_path draws it anew"


def test_a_figure_of_latencies_draws_a_bar_a_system_and_marks_disturbed_rows() -> None:
    fast, slow = {"median": 0.001}, {"median": 0.004}
    row = {"model": "net", "disturbed": True, "latencies": {"eager": slow, "hidet": fast}}
    figure = draw([row], threads=1)
    assert "net *" in figure and "1 ms" in figure and "4 ms" in figure
    lengths = {float(width) for width in re.findall(r'width="([\d.]+)" height="14"', figure)}
    assert max(lengths) == 4 * min(lengths)


@pytest.mark.parametrize("module", FOR_USERS)
def test_every_function_for_users_has_a_docstring(module: str) -> None:
    found = importlib.import_module(module)
    values = {name: getattr(found, name) for name in public_names(found)}
    own = {n: v for n, v in values.items() if inspect.isfunction(v) or inspect.isclass(v) or isinstance(v, ModuleType)}
    assert not [name for name, value in own.items() if not inspect.getdoc(value)]


def test_measurements_of_a_gpu_list_what_peers_are_faster_in_and_what_is_said_of_it(tmp_path: Path) -> None:
    def row(name: str, **milliseconds: float) -> dict[str, object]:
        latencies = {system: {"median": value / 1e3} for system, value in milliseconds.items()}
        ratio = milliseconds["hidet"] / milliseconds["inductor"] if milliseconds else None
        reasons = {} if milliseconds else {"hidet": "too late"}
        return {"name": name, "latencies": latencies, "reasons": reasons, "ratio_to_best_peer": ratio}

    rows = [row("bert:1:f16", hidet=1, inductor=2), row("swin:8:f16", hidet=3, inductor=2), row("late:1:f16")]
    found = {
        "date": "2026-01-02T03",
        "device": {"gpu": "A GPU", "cpu": "A CPU", "cores": 2},
        "versions": {},
        "rows": rows,
    }
    (tmp_path / "gpu.json").write_text(json.dumps(found))
    (tmp_path / "gpu.md").write_text("swin waits for its windows.\n")
    write_performance(tmp_path / "page.md", tmp_path)
    page = (tmp_path / "page.md").read_text()
    assert "| swin, batch 8, f16 | 3 ms | 2 ms | 1.50 |" in page and "| late, batch 1, f16 | too late | - | - |" in page
    assert "A peer is faster in 1 of 3 rows: swin, batch 8, f16 (1.50).\n\nswin waits" in page
    assert (tmp_path / "gpu.svg").read_text().count("<rect") == 2 + 1 + 4
