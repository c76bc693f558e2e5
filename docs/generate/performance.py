"""The page of measurements: a figure and a table for each file in docs/measurements, as benchmarks/cpu.py and
benchmarks/gpu_models.py write them, and behind them what a file of the same name that ends in ".md" says of them.

    python benchmarks/cpu.py --json docs/measurements/cpu.json
    python benchmarks/gpu_models.py --json docs/measurements/gpu.json

Numbers stand in the files alone. A row during which something else took part of the machine is drawn pale, and said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from docs.generate.reference import write

DOCS = Path(__file__).parents[1]
COLOURS = {
    "hidet": "#1f6feb",
    "hidet-frozen": "#58a6ff",
    "eager": "#8c959f",
    "inductor": "#bc4c00",
    "onnxruntime": "#1a7f37",
}
"""Of systems, in the order of bars; others are drawn in `_OTHER`."""
_OTHER = "#6e40c9"

WIDTH, LABEL, RIGHT = 760, 150, 130
BAR, GAP, GROUP = 14, 3, 16


def write_performance(path: Path, measurements: Path = DOCS / "measurements") -> None:
    """Write the page and its figures."""
    files = sorted(measurements.glob("*.json"))
    parts = [_HEAD]
    for file in files:
        parts += _section(file, json.loads(file.read_text()), path.parent)
    if not files:
        parts.append("No measurements are in `docs/measurements`.")
    write(path, "\n\n".join([*parts, _TAIL]) + "\n")


def _section(file: Path, found: Mapping[str, Any], folder: Path) -> list[str]:
    device, versions = found["device"], found["versions"]
    known = [f"{name} {version}" for name, version in versions.items() if version]
    parts = [
        f"## {device['gpu'] or device['cpu']}",
        f"{found['date'][:10]}, {device['cores']} cores of {device['cpu']}. {', '.join(known)}.",
    ]
    for threads in sorted({row.get("threads", 0) for row in found["rows"]}):
        rows = [_row(row) for row in found["rows"] if row.get("threads", 0) == threads]
        name = f"{file.stem}-{threads}.svg" if threads else f"{file.stem}.svg"
        write(folder / name, draw([row for row in rows if row["latencies"]], threads))
        parts += [f"![Latencies of models {_where(threads)}, a bar a system]({name})", _table(rows), _slower(rows)]
    if (notes := file.with_suffix(".md")).exists():
        parts.append(notes.read_text().strip())
    return [part for part in parts if part]


def _row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with what all have: those of GPUs carry model, batch and type in one name."""
    if "name" not in row:
        return row
    model, batch, dtype = row["name"].split(":")
    return {**row, "model": model, "what": f"batch {batch}, {dtype}", "disturbed": False}


def _slower(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows whose best peer is faster, the largest loss first; empty where there is none."""
    lost = sorted(
        (row for row in rows if (row["ratio_to_best_peer"] or 0) > 1), key=lambda row: -row["ratio_to_best_peer"]
    )
    names = [f"{row['model']}, {row['what']} ({row['ratio_to_best_peer']:.2f})" for row in lost]
    return f"A peer is faster in {len(lost)} of {len(rows)} rows: {'; '.join(names)}." if lost else ""


def draw(rows: Sequence[Mapping[str, Any]], threads: int) -> str:
    """Latencies as bars, each group as long as its slowest system. SVG. threads: of a CPU; 0 for a GPU."""
    systems = _systems(rows)
    parts, top = [], 46.0
    for row in rows:
        latencies = {name: row["latencies"][name]["median"] for name in systems if name in row["latencies"]}
        height = len(latencies) * (BAR + GAP)
        note = " *" if row["disturbed"] else ""
        parts.append(_text(LABEL - 10, top + height / 2 + 4, row["model"] + note, "end"))
        slowest = max(latencies.values())
        for number, (system, seconds) in enumerate(latencies.items()):
            y, length = top + number * (BAR + GAP), (WIDTH - LABEL - RIGHT) * seconds / slowest
            pale = ' opacity="0.55"' if row["disturbed"] else ""
            parts.append(
                f'<rect x="{LABEL}" y="{y:g}" width="{length:.1f}" height="{BAR}" rx="2" {_fill(system)}{pale}/>'
            )
            parts.append(_text(LABEL + length + 6, y + BAR - 3, f"{1e3 * seconds:.3g} ms", "start"))
        top += height + GROUP
    legend, x = [], float(LABEL)
    for system in systems:
        legend.append(f'<rect x="{x:g}" y="14" width="12" height="12" rx="2" {_fill(system)}/>')
        legend.append(_text(x + 17, 24, system, "start"))
        x += 34 + 7 * len(system)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:g}" role="img" '
        f'aria-label="Latencies of models {_where(threads)}">\n'
        "<style>text{font:12px system-ui,sans-serif;fill:#1b1f24}</style>\n"
        '<rect width="100%" height="100%" fill="#fff"/>\n'
    )
    return head + "\n".join([*legend, *parts]) + "\n</svg>\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    systems = _systems(rows)
    lines = [f"| model | {' | '.join(systems)} | to the best peer |", f"|---|{'---:|' * (len(systems) + 1)}"]
    for row in rows:
        cells = [
            f"{1e3 * row['latencies'][name]['median']:.3g} ms"
            if name in row["latencies"]
            else escape(row["reasons"].get(name, "-"))
            for name in systems
        ]
        ratio = row["ratio_to_best_peer"]
        note = " \\*" if row["disturbed"] else ""
        cells.append("-" if ratio is None else f"{ratio:.2f}")
        lines.append(f"| {row['model']}, {row['what']}{note} | {' | '.join(cells)} |")
    if any(row["disturbed"] for row in rows):
        lines += ["", "\\* Something else took part of the machine meanwhile."]
    return "\n".join(lines)


def _systems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {name for row in rows for name in row["latencies"]}
    return [name for name in COLOURS if name in found] + sorted(found - set(COLOURS))


def _where(threads: int) -> str:
    if not threads:
        return "on a GPU"
    return "with one thread" if threads == 1 else f"with {threads} threads"


def _fill(system: str) -> str:
    return f'fill="{COLOURS.get(system, _OTHER)}"'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


_HEAD = """# Performance

Median latencies of whole models, beside other systems in the same process on the same inputs. Below 1 in the last
column hidet is the fastest. "hidet-frozen" is hidet with [weights that never change](../weights.md)."""

_TAIL = """## Measure it yourself

```console
$ nox -s bench -- --json docs/measurements/cpu.json
$ python benchmarks/gpu_models.py --rows resnet50:1:f16 --peers eager-graph,inductor
$ hidet bench model.onnx --against onnxruntime
```

`benchmarks/` says what is measured and how: systems take turns, so that a disturbance of the machine meets all of them;
inputs of GPU benchmarks are larger than its cache. What is written elsewhere about speed comes from there.
[Tuning](../tuning.md) says how to have schedules measured on your machine."""
