"""Graphs as SVG: a box for each operator or task, blocks that repeat drawn once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from hidet.graph.graph import Graph, Node, Value
from hidet.report.blocks import find_repeats
from hidet.report.layout import Box, lay_out
from hidet.report.node_text import node_text, task_title
from hidet.report.places import calling_line, model_line, node_name
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep

_CHARACTER, _HEIGHT, _MOST_CHARACTERS = 6.6, 36.0, 42


@dataclass(frozen=True, slots=True)
class Item:
    """A box before it is placed.

    title, note: its two lines. kind: what its colour tells. facts: what is shown when it is chosen. key: equal for
    boxes that differ in their place alone. reads, makes: values.
    """

    title: str
    note: str
    kind: str
    facts: tuple[str, ...]
    key: Hashable
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph as SVG. facts: of each box, by number. boxes, operators: how many are drawn, and stand for how many."""

    svg: str
    facts: tuple[tuple[str, ...], ...]
    boxes: int
    operators: int


def draw_graph(graph: Graph) -> Drawing:
    """A graph of operators, without its constants."""
    items = [_input(value) for value in graph.inputs if value not in graph.parameters]
    items += [_operator(node) for node in graph.nodes]
    items += [_output(value, number) for number, value in enumerate(graph.outputs)]
    return _draw(items, len(graph.nodes))


def draw_tasks(scheduled: ScheduledGraph, numbers: Mapping[int, int]) -> Drawing:
    """The tasks of a graph. numbers: of tasks in the page, by the identity of the step."""
    graph = scheduled.task_graph.graph
    aliases = scheduled.task_graph.aliases
    items = [_input(value) for value in graph.inputs if value not in graph.parameters]
    for step in scheduled.steps:
        items.append(_task(step, numbers) if isinstance(step, ScheduledTask) else _foreign(step))
    items += [_output(value, number) for number, value in enumerate(graph.outputs)]

    def root(value: Value) -> Value:
        """What a view looks at, which is drawn in its place."""
        while value in aliases:
            value = aliases[value].base
        return value

    rooted = [
        Item(i.title, i.note, i.kind, i.facts, i.key, tuple(map(root, i.reads)), tuple(map(root, i.makes)))
        for i in items
    ]
    return _draw(rooted, len(graph.nodes))


def _input(value: Value) -> Item:
    return Item(
        f"%{value.name}", str(value.type), "input", (f"input %{value.name}: {value.type}",), value, (), (value,)
    )


def _output(value: Value, number: int) -> Item:
    fact = f"output {number}: %{value.name}: {value.type}"
    return Item(f"output {number}", str(value.type), "output", (fact,), ("output", number), (value,), ())


def _operator(node: Node) -> Item:
    name = node_name(node.loc)
    key = (node.op.name, node.attrs, tuple(str(v.type) for v in node.values), tuple(str(v.type) for v in node.outputs))
    return Item(
        node.op.name,
        name or str(node.outputs[0].type if node.outputs else ""),
        node.op.kind,
        (node_text(node), *_places(node)),
        key,
        node.values,
        node.outputs,
    )


def _task(step: ScheduledTask, numbers: Mapping[int, int]) -> Item:
    task = step.task
    facts = [f"task {numbers[id(step)]}: {step.rule_name}", *(node_text(node) for node in task.nodes)]
    return Item(
        task_title(task),
        node_name(task.loc) or ", ".join(str(tensor.type) for tensor in task.outputs),
        "fallback" if step.rule_name == "fallback" else "task",
        (*facts, *_places(task.nodes[-1])),
        (step.symbol, tuple(str(tensor.type) for tensor in task.outputs)),
        tuple(tensor.value for tensor in task.inputs),
        tuple(tensor.value for tensor in task.outputs),
    )


def _foreign(step: ForeignStep) -> Item:
    return _operator(step.node)


def _places(node: Node) -> tuple[str, ...]:
    found = (f"at {model_line(node.loc)}" if model_line(node.loc) else "", calling_line(node.loc))
    return tuple(text if number == 0 else f"called at {text}" for number, text in enumerate(found) if text)


def _draw(items: Sequence[Item], operators: int) -> Drawing:
    shown, place_of, frames = _folded(items)
    made = {value: place_of[number] for number, item in enumerate(items) for value in item.makes}
    pairs = {
        (made[value], place_of[number])
        for number, item in enumerate(items)
        for value in item.reads
        if value in made and made[value] < place_of[number]
    }
    edges = sorted(pairs)
    boxes = [Box(max(len(_cut(text)) for text in (item.title, item.note)) * _CHARACTER + 20, _HEIGHT) for item in shown]
    layout = lay_out(boxes, edges)
    parts = [
        f'<svg class="graph" viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" xmlns="http://www.w3.org/2000/svg">',
        '<g class="edges">',
        *(f'<path d="{_path(points)}"/>' for points in layout.edges),
        "</g>",
    ]
    for number, (item, box, (x, y)) in enumerate(zip(shown, boxes, layout.places, strict=True)):
        frame = " repeated" if number in frames else ""
        parts.append(
            f'<g class="box {item.kind}{frame}" data-box="{number}"><rect x="{x - box.width / 2:.0f}" '
            f'y="{y - box.height / 2:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="4"/>'
            f'<text x="{x:.0f}" y="{y - 3:.0f}">{escape(_cut(item.title))}</text>'
            f'<text class="note" x="{x:.0f}" y="{y + 11:.0f}">{escape(_cut(item.note))}</text></g>'
        )
    parts.append("</svg>")
    return Drawing("".join(parts), tuple(item.facts for item in shown), len(shown), operators)


def _folded(items: Sequence[Item]) -> tuple[list[Item], list[int], set[int]]:
    """Items with repeats of blocks folded into one each; the number of the shown item for each; those of blocks that
    are shown for others."""
    repeats = {repeat.start: repeat for repeat in find_repeats([item.key for item in items])}
    shown: list[Item] = []
    place_of = [0] * len(items)
    frames: set[int] = set()
    number = 0
    while number < len(items):
        repeat = repeats.get(number)
        if repeat is None:
            place_of[number] = len(shown)
            shown.append(items[number])
            number += 1
            continue
        for inner in range(repeat.period):
            frames.add(len(shown))
            place_of[number + inner] = len(shown)
            shown.append(items[number + inner])
        more = repeat.count - 1
        title = f"{more} more such block{'s' if more > 1 else ''}"
        names = [items[number + block * repeat.period].note for block in range(1, repeat.count)]
        facts = (f"{title} of {repeat.period} boxes each, as the {repeat.period} boxes before", *names)
        for inner in range(number + repeat.period, repeat.end):
            place_of[inner] = len(shown)
        shown.append(Item(title, f"{repeat.period} boxes each", "folded", facts, None, (), ()))
        number = repeat.end
    return shown, place_of, frames


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:12]}…{text[-(_MOST_CHARACTERS - 13) :]}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    text = f"M{x:.0f} {y:.0f}"
    for a, b in rest:
        middle = (y + b) / 2
        text += f"C{x:.0f} {middle:.0f} {a:.0f} {middle:.0f} {a:.0f} {b:.0f}"
        x, y = a, b
    return text
