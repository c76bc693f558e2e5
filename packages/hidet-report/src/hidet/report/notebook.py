"""What notebooks show of hidet's values, as HTML that needs no script and no network, in light and in dark.

Values of other wheels that are `hidet.notebook.Shown` are shown as they print; a table stays one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from html import escape

from hidet.api.flow.graph import FlowGraph
from hidet.api.tensors.tensor import Tensor
from hidet.graph import Graph
from hidet.runtime.compiled import CompiledGraph, CompileReport
from hidet.runtime.module import CompiledModule
from hidet.runtime.program import InputSlot

_OPEN_LINES = 24
"""Texts of so many lines are shown at once, longer ones when they are asked for."""
_MOST_LINES = 2000
_CLASSES = (
    ("scheduled", "#2da44e"),
    ("fallback", "#bf8700"),
    ("routine", "#0969da"),
    ("control", "#8250df"),
    ("host", "#57606a"),
    ("eager", "#cf222e"),
)
"""Classes of nodes as a report counts them, with their colours."""


@functools.singledispatch
def html_of(value: object) -> str:
    """HTML of a value: what it prints, where its class has nothing of its own."""
    return f"<pre>{escape(str(value))}</pre>"


@html_of.register
def _(value: Tensor) -> str:
    text, _, elements = repr(value).partition("\n")
    return _head(text) + (f"<pre>{escape(elements)}</pre>" if elements else "")


@html_of.register
def _(value: FlowGraph) -> str:
    counts = f"{len(value.inputs)} inputs, {len(value.nodes)} operators, {len(value.outputs)} outputs"
    return _head(f"{type(value).__name__}: {counts}") + _text("graph", str(value))


@html_of.register
def _(value: Graph) -> str:
    counts = f"{len(value.inputs)} inputs, {len(value.parameters)} of them parameters, {len(value.nodes)} nodes"
    return _head(f"Graph {value.name}: {counts}, {len(value.outputs)} outputs") + _text("graph", str(value))


@html_of.register
def _(value: CompileReport) -> str:
    return _head("CompileReport") + _bar(value) + _table(_rows(value))


@html_of.register
def _(value: CompiledGraph) -> str:
    inputs = [(slot.name, _type(slot)) for slot in value.bundle.program.inputs]
    report = value.report()
    head = f"CompiledGraph for {value.bundle.target}: {report.kernels} kernels"
    details = f"<details><summary>report</summary>{_table(_rows(report))}</details>"
    return _head(head) + _bar(report) + _table(inputs, ("input", "type")) + details


@html_of.register
def _(value: CompiledModule) -> str:
    functions = ", ".join(function.name for function in value.ir_module.functions if function.kind != "device")
    kernels = [(name, used.registers, used.spill_bytes) for name, used in value.kernels.items()]
    table = _table(kernels, ("kernel", "registers", "bytes spilled")) if kernels else ""
    return _head(f"CompiledModule with {functions}") + table + _text("source", value.source(), is_open=False)


def _type(slot: InputSlot) -> str:
    return "int" if slot.tensor is None else f"{slot.tensor.dtype.short}[{', '.join(map(str, slot.tensor.shape))}]"


def _rows(report: CompileReport) -> list[tuple[str, str]]:
    return [(line[:9].strip(), line[9:]) for line in str(report).splitlines()]


def _head(text: str) -> str:
    return f"<div><strong>{escape(text)}</strong></div>"


def _text(title: str, text: str, *, is_open: bool = True) -> str:
    """A text to be opened; a short one is open."""
    lines = text.splitlines()
    shown = "\n".join(lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        shown += f"\n… {len(lines) - _MOST_LINES} more lines: print it"
    mark = " open" if is_open and len(lines) <= _OPEN_LINES else ""
    return f"<details{mark}><summary>{title}, {len(lines)} lines</summary><pre>{escape(shown)}</pre></details>"


def _table(rows: Iterable[Sequence[object]], titles: Sequence[str] = ()) -> str:
    cell = '<{0} style="text-align:left;white-space:pre-wrap">{1}</{0}>'
    head = "".join(cell.format("th", escape(title)) for title in titles)
    lines = ["".join(cell.format("td", escape(str(value))) for value in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in [head, *lines] if line) + "</table>"


def _bar(report: CompileReport) -> str:
    """How many nodes are of which class, as a bar."""
    counts = [(name, getattr(report.nodes, name), colour) for name, colour in _CLASSES]
    present = [(name, count, colour) for name, count, colour in counts if count]
    if not present:
        return ""
    style = "display:flex;height:10px;max-width:480px;border-radius:5px;overflow:hidden"
    parts = "".join(f'<span style="flex:{count};background:{colour}"></span>' for _, count, colour in present)
    named = ", ".join(f'<span style="color:{colour}">■</span> {count} {name}' for name, count, colour in present)
    return f'<div role="img" aria-label="nodes by class" style="{style}">{parts}</div><div>{named}</div>'
