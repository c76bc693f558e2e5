"""What a page says of a compiled graph: plain data, ready to be written."""

from __future__ import annotations

import base64
import gzip
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import distributions
from pathlib import Path

from hidet.graph.graph import Graph
from hidet.ir.printer import print_module
from hidet.passes.manager import run_program_passes
from hidet.report.cuts import cuts_of
from hidet.report.node_text import node_text, task_title
from hidet.report.origin import Origin, PassRun
from hidet.report.places import calling_line, model_line, node_name
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep
from hidet.target import CompileJob

_MOST_LINES = 300
"""Lines of a difference that are shown."""

_LISTING_BYTES = 1_000_000
"""Compressed bytes of a page that are for listings: those of hundreds of programs."""

_FRAMEWORKS = ("torch", "onnx", "onnxruntime", "tensorflow", "jax", "numpy", "llvmlite", "transformers")


@dataclass(frozen=True, slots=True)
class Difference:
    """What a pass did. lines: nodes that went ("-") and came ("+"), in order, the first ones; more: how many others."""

    name: str
    seconds: float
    before: int
    after: int
    lines: tuple[tuple[str, str], ...]
    more: int

    @property
    def is_changed(self) -> bool:
        """Whether it did anything."""
        return bool(self.lines)


def differences(origin: Origin) -> list[Difference]:
    """Of all graph passes, in order."""
    return [_difference(run) for run in origin.passes]


def _difference(run: PassRun) -> Difference:
    before, after = run.before, run.after
    if before is after:
        return Difference(run.name, run.seconds, len(before.nodes), len(before.nodes), (), 0)
    lines = list(_changes(before, after))
    if not lines:
        lines = [(" ", "constants, inputs or layouts changed; no operator did")]
    shown = tuple(lines[:_MOST_LINES])
    return Difference(run.name, run.seconds, len(before.nodes), len(after.nodes), shown, len(lines) - len(shown))


def _changes(before: Graph, after: Graph) -> Iterator[tuple[str, str]]:
    """Passes leave nodes alone that they do not change: those that are other objects came or went."""
    kept = {id(node) for node in before.nodes} & {id(node) for node in after.nodes}
    old = iter(before.nodes)
    for node in after.nodes:
        if id(node) in kept:
            for gone in old:
                if gone is node:
                    break
                if id(gone) not in kept:
                    yield "-", node_text(gone)
        else:
            yield "+", node_text(node)
    for gone in old:
        if id(gone) not in kept:
            yield "-", node_text(gone)
    if after.prepare is not None and before.prepare is None:
        yield "+", f"prepare: {len(after.prepare.graph.nodes)} operators on constants alone, done once"


@dataclass(frozen=True, slots=True)
class CutEntry:
    """Why two tasks are two. value: what lies in memory between them."""

    value: str
    made_by: int
    made_by_title: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task of the page, or an operator outside of compiled code (kind "host", "eager", …)."""

    number: int
    title: str
    node: str
    line: str
    kind: str
    rule: str
    params: str
    reason: str
    answers: tuple[str, ...]
    symbol: str
    nodes: tuple[str, ...]
    cuts: tuple[CutEntry, ...]
    step: object


def task_entries(origin: Origin) -> list[TaskEntry]:
    """All tasks of the graph and of its sub-graphs, in order."""
    entries: list[TaskEntry] = []
    for part in origin.parts:
        entries += _entries(part.scheduled, len(entries))
    return entries


def _entries(scheduled: ScheduledGraph, first: int) -> Iterator[TaskEntry]:
    steps = scheduled.steps
    titles = [_title(step) for step in steps]
    found = cuts_of(scheduled)
    for number, step in enumerate(steps):
        if isinstance(step, ForeignStep):
            loc = step.node.loc
            text = (node_text(step.node),)
            yield TaskEntry(
                first + number,
                titles[number],
                node_name(loc),
                calling_line(loc) or model_line(loc),
                step.node.op.kind,
                "",
                "",
                "it runs outside of compiled code",
                (),
                "",
                text,
                (),
                step,
            )
            continue
        task, decision = step.task, step.decision
        cuts = [
            CutEntry(f"%{cut.value.name}: {cut.value.type}", first + cut.made_by, titles[cut.made_by], cut.reason)
            for cut in found.get(number, ())
        ]
        params = "" if decision.params is None else repr(decision.params)
        yield TaskEntry(
            first + number,
            titles[number],
            node_name(task.loc),
            calling_line(task.loc) or model_line(task.loc),
            "fallback" if step.rule_name == "fallback" else "task",
            step.rule_name,
            params,
            decision.reason,
            tuple(f"{answer.rule}: {answer}" for answer in decision.answers),
            step.symbol,
            tuple(map(node_text, task.nodes)),
            tuple(cuts),
            step,
        )


def _title(step: ScheduledTask | ForeignStep) -> str:
    return step.node.op.name if isinstance(step, ForeignStep) else task_title(step.task)


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A distinct program of a graph. texts: its stages, by name, compressed. tasks: numbers of the tasks that run it.
    is_listed: whether what the target's compiler makes of it is among the texts."""

    symbol: str
    rule: str
    tasks: tuple[int, ...]
    texts: tuple[tuple[str, str], ...]
    is_listed: bool


def kernel_entries(
    origin: Origin, entries: Sequence[TaskEntry], seconds: Mapping[str, float], listing_bytes: int = _LISTING_BYTES
) -> list[KernelEntry]:
    """Programs with thread IR as rules built it, what the compiler got and the assembly: the latter of those that take
    longest, as long as there is room for them.

    seconds: by program, of a call; listing_bytes: how much room there is, compressed; 0 for none.
    """
    users: dict[str, list[TaskEntry]] = {}
    for entry in entries:
        if entry.symbol:
            users.setdefault(entry.symbol, []).append(entry)
    listings: dict[str, list[tuple[str, str]]] = {}
    room = listing_bytes
    for symbol in sorted(users, key=lambda symbol: -seconds.get(symbol, 0.0)):
        if room <= 0:
            break
        listings[symbol] = [(name, _packed(text)) for name, text in _listings(origin, symbol, users[symbol][0].step)]
        room -= sum(len(text) for _, text in listings[symbol])
    found = []
    for symbol, tasks in users.items():
        step = tasks[0].step
        assert isinstance(step, ScheduledTask)
        texts = [(f"tiles of {kernel.name}", _packed(kernel.text())) for kernel in step.program.lowered_from]
        texts.append(("thread IR", _packed(print_module(step.program.module))))
        numbers = tuple(task.number for task in tasks)
        texts += listings.get(symbol, ())
        found.append(KernelEntry(symbol, tasks[0].rule, numbers, tuple(texts), symbol in listings))
    return found


def _listings(origin: Origin, symbol: str, step: object) -> list[tuple[str, str]]:
    assert isinstance(step, ScheduledTask)
    names = {".ll": "LLVM IR", ".s": "assembly", ".cu": "CUDA C++", ".ptx": "PTX", ".cl": "OpenCL C"}
    try:
        job = CompileJob(symbol, run_program_passes(step.program.module, origin.ctx))
        return [(names.get(ending, ending), str(text)) for ending, text in origin.ctx.target.listings(job)]
    except Exception as error:  # noqa: BLE001  # what no compiler can be had for has no listing
        return [("listing", f"cannot be had here: {error}")]


def _packed(text: str) -> str:
    """A long text, compressed: listings of a large model would be most of the page."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def environment(origin: Origin) -> list[tuple[str, str]]:
    """Machine, versions and options, for somebody who wants to see the same."""
    ctx = origin.ctx
    versions = {dist.metadata["Name"]: dist.version for dist in distributions() if _counts(dist.metadata["Name"] or "")}
    rows = [
        ("Python", f"{platform.python_version()} ({sys.implementation.name})"),
        ("system", platform.platform()),
        ("target", f"{ctx.target.name}, {ctx.target.arch}"),
        *sorted(versions.items()),
    ]
    defaults = type(ctx.options)()
    for field in fields(ctx.options):
        value = getattr(ctx.options, field.name)
        if value != getattr(defaults, field.name):
            rows.append((f"option {field.name}", str(value)))
    return rows


def model_file(origin: Origin) -> str:
    """The file that the graph was read from, whose nodes have names and no lines; "" where there is none."""
    places = (node.loc for node in origin.graph.nodes if node.loc is not None)
    return next((Path(place.file).name for place in places if place.file is not None and place.line is None), "")


def _counts(name: str) -> bool:
    return name.startswith("hidet") or name in _FRAMEWORKS


def unscheduled(entries: Sequence[TaskEntry]) -> list[TaskEntry]:
    """Tasks on the fallback nest, and operators outside of compiled code."""
    return [entry for entry in entries if entry.kind not in ("task", "check", "control")]


def phases(seconds: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Phases of a compilation with seconds and shares."""
    total = sum(seconds.values()) or 1.0
    return [(name, value, value / total) for name, value in seconds.items()]
