"""Figures of docs/script.md: task mappings and layouts as grids, as the language itself computes them.

python -m docs.generate.grids     # writes docs/figures/task-mappings.svg and layouts.svg anew
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from hidet.lang import repeat, row_major, spatial

FIGURES = Path(__file__).parents[1] / "figures"

CELL, GAP, TOP, MARGIN = 26, 40, 44, 12
COLOURS = ("#ddf4ff", "#dafbe1", "#fff8c5", "#ffebe9", "#fbefff", "#eaeef2", "#ffe2c6", "#d1f5f0")
SHOWN_WORKER = 9
"""Whose tasks are outlined."""

Cell = tuple[str, str, bool]
"""Text, colour, and whether it is outlined."""


def figures() -> dict[Path, str]:
    """The figures by their files."""
    return {FIGURES / "task-mappings.svg": task_mappings(), FIGURES / "layouts.svg": layouts()}


def task_mappings() -> str:
    """Which worker does which task of an 8 x 16 grid: neighbours, and tasks that are far apart."""
    panels = []
    for title, mapping in (
        ("spatial(4, 8) * repeat(2, 2)", spatial(4, 8) * repeat(2, 2)),
        ("repeat(2, 2) * spatial(4, 8)", repeat(2, 2) * spatial(4, 8)),
    ):
        workers = {task: worker for worker in range(mapping.num_workers) for task in mapping.map(worker)}

        def cell(i: int, j: int, workers: dict[tuple[int, ...], int] = workers) -> Cell:
            worker = workers[i, j]
            return str(worker), COLOURS[(worker + worker // 8) % len(COLOURS)], worker == SHOWN_WORKER

        panels.append((f"{title}: the worker of each task", 8, 16, cell))
    return _draw(panels, "Task mappings as grids: the worker of each task")


def layouts() -> str:
    """In which of 8 banks the elements of 8 x 8 lie, row by row and with rows shifted against each other."""
    panels = []
    plain = row_major(8, 8)
    for title, layout in (("row_major(8, 8)", plain), ("row_major(8, 8).swizzle(1)", plain.swizzle(1))):

        def cell(i: int, j: int, offset: Callable[..., object] = layout) -> Cell:
            bank = int(str(offset(i, j))) % 8
            return str(bank), COLOURS[bank], j == 0

        panels.append((title, 8, 8, cell))
    return _draw(panels, "Layouts as grids: the bank of each element; a column of the second one lies in all banks")


def _draw(panels: Sequence[tuple[str, int, int, Callable[[int, int], Cell]]], label: str) -> str:
    """Panels side by side."""
    parts, left, bottom = [], float(MARGIN), 0.0
    for title, rows, columns, cell in panels:
        parts.append(f'<text x="{left:g}" y="{TOP - 14}" class="title">{escape(title)}</text>')
        outlines = []
        for i in range(rows):
            for j in range(columns):
                text, colour, is_outlined = cell(i, j)
                x, y = left + j * CELL, TOP + i * CELL
                place = f'x="{x:g}" y="{y}" width="{CELL}" height="{CELL}"'
                parts.append(f'<rect {place} fill="{colour}" class="cell"/>')
                parts.append(f'<text x="{x + CELL / 2:g}" y="{y + 17}" class="number">{text}</text>')
                if is_outlined:
                    outlines.append(f'<rect {place} class="outline"/>')
        parts += outlines
        left += columns * CELL + GAP
        bottom = max(bottom, TOP + rows * CELL)
    width, height = left - GAP + MARGIN, bottom + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" viewBox="0 0 {width:g} {height:g}" '
        f'role="img" aria-label="{escape(label)}">\n'
        "<style>text{font-family:ui-monospace,monospace;fill:#1b1f24}.title{font-size:13px}"
        ".number{font-size:11px;text-anchor:middle}.cell{stroke:#fff}.outline{fill:none;stroke:#1b1f24;stroke-width:2}"
        "</style>\n"
        '<rect width="100%" height="100%" fill="#fff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    for path, figure in figures().items():
        path.write_text(figure)
