"""The figure of the data path, drawn from the tables of hand-overs in docs/architecture.md.

    python -m docs.generate.data_path     # writes docs/figures/data-path.svg anew

Every step of the tables has to stand in `BANDS`, so that the figure shows what the tables say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1]
FIGURE = DOCS / "figures" / "data-path.svg"

_ROW = re.compile(r"^\| ([^|]+) \| `(\w+)` \| `(hidet/[\w/.]+)` \| (.+) \|$", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)

WIDTH, MARGIN, LABEL = 960, 16, 126
BOX, GAP, PAD = 44, 10, 12
INK, LINE = "#1b1f24", "#8b949e"


@dataclass(frozen=True, slots=True)
class Step:
    """A row of a table: what is done, by which function of which file."""

    name: str
    function: str
    file: str


@dataclass(frozen=True, slots=True)
class Band:
    """A representation with the steps that work on it: rows of steps side by side.

    rows: for each row the tables and names of its steps, "0:7 emit" for that of the first table; None leaves a place
    free.
    """

    title: str
    about: str
    colour: str
    rows: tuple[tuple[str | None, ...], ...]


BANDS = (
    Band(
        "models",
        "front-ends",
        "#ddf4ff",
        (
            (
                *("3:torch compile_fx", "4:onnx load_model", "5:tensorflow load_model", "5:tflite load_lite"),
                *("6:stablehlo load_model", None),
            ),
            ("3:torch read_trace", None, None, None, None, None),
            ("3:torch compile_traced", None, None, None, None, None),
            ("3:torch keep_artifact", None, None, None, None, None),
            ("3:torch import_module", "4:onnx table", "5:tensorflow table", None, "6:stablehlo table", None),
            (
                *("3:torch import_fx", "4:onnx import_model", "5:tensorflow import_model", "5:tflite import_lite"),
                *("6:stablehlo import_model", "6:jax from_jax"),
            ),
        ),
    ),
    Band(
        "graph",
        "tensors and operators",
        "#dafbe1",
        (
            ("0:context make_context", "0:entry compile_graph", "0:0 recall read_graph", "0:steps compile_stepwise"),
            ("0:1 verify verify_graph", "0:2 optimise run_graph_passes", "0:2a copy run_late_pass"),
        ),
    ),
    Band(
        "tasks",
        "what is computed together",
        "#fff8c5",
        (
            ("0:3 fuse fuse", "0:3a group group_nodes", "0:3b join fuse_horizontally"),
            ("0:4 schedule select_schedules",),
        ),
    ),
    Band(
        "thread IR",
        "loops, memory, launches",
        "#ffebe9",
        (
            ("0:5 host build_host_program", "0:5a cut compile_units"),
            ("0:6 lower run_program_passes",),
        ),
    ),
    Band(
        "machine code",
        "CPU, CUDA, OpenCL",
        "#fbefff",
        (
            ("0:7 emit emit_module", "1:7 emit emit_module", "2:7 emit emit_module"),
            ("0:8 compile compile_objects", "1:8 compile compile_jobs", "2:8 compile compile_programs"),
            ("0:9 load load_objects", "1:9 load load_modules", "2:9 load load_modules"),
        ),
    ),
    Band("a call", "tensors to tensors", "#eaeef2", (("0:10 plan plan_memory", "0:run run"),)),
)

WITHOUT_BOX = {"6:stablehlo read_bytecode", "6:stablehlo read_text"}
"""Steps inside of another one, which is drawn."""


def steps() -> dict[str, Step]:
    """The rows of the tables: by the number of the table, the name of the step and its function."""
    section = (DOCS / "architecture.md").read_text().partition("## The data path of one model")[2]
    section = section.partition("\n## ")[0]
    found: dict[str, Step] = {}
    for number, table in enumerate(_TABLE.findall(section)):
        for name, function, file, _ in _ROW.findall(table):
            found[f"{number}:{name} {function}"] = Step(name, function, file)
    drawn = {step for band in BANDS for row in band.rows for step in row if step}
    if drawn | WITHOUT_BOX != set(found):
        raise ValueError(f"figure and tables differ: {sorted((drawn | WITHOUT_BOX) ^ set(found))}")
    return found


def draw() -> str:
    """The figure, as SVG."""
    known = steps()
    parts: list[str] = []
    top = MARGIN
    before: float | None = None
    for band in BANDS:
        height = 2 * PAD + len(band.rows) * BOX + (len(band.rows) - 1) * GAP
        if before is not None:
            middle = (WIDTH + LABEL) / 2
            parts.append(f'<path d="M{middle} {before}V{top - 2}" class="arrow"/>')
        parts.append(
            f'<rect x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="8" fill="{band.colour}"/>'
        )
        parts.append(_text(MARGIN + 12, top + height / 2 - 2, band.title, "title"))
        parts += [
            _text(MARGIN + 12, top + height / 2 + 14 + 13 * n, line, "about")
            for n, line in enumerate(_lines(band.about, 18))
        ]
        for number, row in enumerate(band.rows):
            parts += _row([None if name is None else known[name] for name in row], top + PAD + number * (BOX + GAP))
        before = top + height
        top += height + 26
    height = top - 26 + MARGIN
    return _HEAD.format(width=WIDTH, height=height) + "\n".join(parts) + "\n</svg>\n"


def _row(row: Sequence[Step | None], top: float) -> list[str]:
    left, room = MARGIN + LABEL + PAD, WIDTH - 2 * MARGIN - LABEL - 2 * PAD
    width = (room - GAP * (len(row) - 1)) / len(row)
    parts = []
    names = [step.name for step in row if step]
    for number, step in enumerate(row):
        if step is None:
            continue
        room_of = step.file.split("/")[1]
        name = f"{step.name}, {room_of}" if names.count(step.name) > 1 else step.name
        x = left + number * (width + GAP)
        parts.append(f'<g><title>{escape(step.file)}</title><rect x="{x:g}" y="{top:g}" width="{width:g}" ')
        parts[-1] += f'height="{BOX}" rx="5" class="box"/>'
        parts.append(_text(x + width / 2, top + 18, name, "step"))
        parts.append(_text(x + width / 2, top + 34, step.function, "code") + "</g>")
    return parts


def _lines(text: str, most: int) -> list[str]:
    """Text in lines of at most so many characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>'


_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    'aria-label="The data path of a model: front-ends, graph, tasks, thread IR, machine code, calls">\n'
    "<style>text{{font-family:system-ui,sans-serif;fill:"
    + INK
    + "}}.title{{font-size:15px;font-weight:600}}.about{{font-size:11px}}.step{{font-size:12px;text-anchor:middle}}"
    ".code{{font-family:ui-monospace,monospace;font-size:11px;text-anchor:middle}}"
    ".box{{fill:#fff;stroke:" + LINE + "}}.arrow{{stroke:" + INK + ";stroke-width:2;marker-end:url(#tip)}}</style>\n"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker></defs>\n'
    '<rect width="100%" height="100%" fill="#fff"/>\n'
)


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(draw())
