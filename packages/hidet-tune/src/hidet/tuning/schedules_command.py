"""`hidet schedules`: what rules say of an operator or of a model's tasks, and what may be chosen about each program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hidet.cli.inputs import parse_shapes
from hidet.cli.model import target_option
from hidet.cli.output import json_option, print_json
from hidet.compiler.graphs import import_model
from hidet.context import CompileContext, make_context
from hidet.dtypes import dtype
from hidet.errors import OptionError
from hidet.fusion.fuse import fuse
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph
from hidet.graph.types import TensorType
from hidet.passes.manager import run_graph_passes
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.tuning.examined import Examined, Point, chosen, examine

_INDENT = (0, 0, 0, 2)


@click.command("schedules")
@click.argument("model", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--op", default="", metavar="NAME", help="An operator, such as matmul.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="SHAPES",
    help="Of an operator's inputs, such as 64x512,512x256; of an input of MODEL, such as x=1x576.",
)
@click.option("--dtype", "dtypes", default="f32", show_default=True, help="Of its inputs: of all, or f16,i64.")
@click.option("--attr", "attrs", multiple=True, metavar="NAME=VALUE", help="An attribute, such as axis=1.")
@target_option
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Show the spaces of this rule alone.")
@click.option("--most", default=8, show_default=True, help="Points of a space that are listed.")
@json_option
def schedules(
    model: Path | None,
    op: str,
    shapes: Sequence[str],
    dtypes: str,
    attrs: Sequence[str],
    target: str,
    rules: Sequence[str],
    most: int,
    as_json: bool,
) -> None:
    """Show which schedule rules take an operator, or the tasks of MODEL, what may be chosen about their programs, and
    what they predict. The machine of --target, such as cuda:sm_90a, need not be there."""
    if (model is None) == (not op):
        raise click.UsageError("name a model, or an operator: --op matmul --shape 64x512,512x256")
    if model is not None:
        imported = import_model(str(model), target=target, options={"cache": False}, shapes=parse_shapes(shapes))
        graph, ctx = imported.graph, imported.ctx
    else:
        ctx = make_context(target, {"cache": False})
        graph = _graph_of(op, ",".join(shapes), dtypes, attrs, ctx)
    known = ctx.registry.schedules
    for rule in rules:
        if rule not in known:
            raise OptionError(f"there is no schedule rule {rule!r}", hint=f"there are {', '.join(sorted(known))}")
    tasks = fuse(run_graph_passes(graph, ctx), ctx).tasks
    uses = Counter(task.key for task in tasks)
    found = [(task, uses[task.key], examine(task, ctx)) for task in {task.key: task for task in tasks}.values()]
    where = f"{ctx.target.name}{':' + ctx.machine if ctx.machine else ''}"
    if as_json:
        print_json([_as_json(task, count, where, examined, most) for task, count, examined in found])
        return
    console = Console(highlight=False)
    if model is not None and not rules:
        _print_tasks(console, found)
        return
    for number, (task, _, examined) in enumerate(found):
        if number:
            console.print()
        _print_task(console, task, where, examined, rules, most)


def _graph_of(op: str, shapes: str, dtypes: str, attrs: Sequence[str], ctx: CompileContext) -> Graph:
    """One operator on inputs of these shapes."""
    extents = [_shape(text) for text in shapes.split(",")] if shapes else []
    types = [dtype(name) for name in dtypes.split(",")]
    if len(types) == 1:
        types *= len(extents)
    if len(types) != len(extents):
        raise OptionError(f"--dtype names {len(types)} types for {len(extents)} inputs, expected one, or one for each")
    builder = GraphBuilder(ctx.registry.operators)
    inputs = [
        builder.input(TensorType(each, shape), f"x{n}")
        for n, (each, shape) in enumerate(zip(types, extents, strict=True))
    ]
    outputs = builder.emit_all(op, inputs, dict(map(_attribute, attrs)))
    return builder.build(list(outputs))


def _shape(text: str) -> tuple[int, ...]:
    """Extents from "64x512"; () from "scalar"."""
    try:
        return () if text == "scalar" else tuple(int(extent) for extent in text.split("x"))
    except ValueError:
        raise OptionError(f"{text!r} is no shape, expected one such as 64x512, or scalar") from None


def _attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--attr {text!r} has no value, expected one such as axis=1")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _print_tasks(console: Console, found: Sequence[tuple[Task, int, Sequence[Examined]]]) -> None:
    """A line a task: its rule, how much may be chosen, and the default."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("uses", "task", "rule", "valid", "default"):
        table.add_column(title, overflow="fold", justify="right" if title in ("uses", "valid") else "left")
    for task, count, examined in found:
        best = chosen(examined)
        if best is None:
            table.add_row(str(count), task.summary, "-", "-", "-")
        else:
            valid = str(len(best.points)) if best.space else "-"
            free = None if best.space is None else [knob.name for knob in _free(best.space.knobs)]
            table.add_row(str(count), task.summary, best.rule, valid, _point(best.default, free))
    console.print(table)


def _print_task(
    console: Console, task: Task, where: str, examined: Sequence[Examined], rules: Sequence[str], most: int
) -> None:
    console.print(Text(f"{task.summary} on {where}", style="bold"))
    best = chosen(examined)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("rule", "priority", "answer"):
        table.add_column(title, overflow="fold", justify="right" if title == "priority" else "left")
    for each in examined:
        is_best = best is not None and each is best
        answer = "matched, the first: it schedules the task" if is_best else str(each.answer)
        table.add_row(Text(each.rule, style="green" if is_best else ""), str(each.priority), Text(answer))
    console.print(table)
    for each in examined:
        if each.space and (each.rule in rules or not rules):
            console.print()
            _print_space(console, each, each.space, most)


def _print_space(console: Console, examined: Examined, space: Space[Any], most: int) -> None:
    """Knobs and constraints of a rule's space, its default, and the best of its points."""
    valid = f"{len(examined.points)} of {space.size} points are valid"
    console.print(Text.assemble((examined.rule, "bold"), f": {valid}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("knob", "values", "what it decides"):
        table.add_column(title, overflow="fold")
    for knob in _free(space.knobs):
        table.add_row(knob.name, Text(", ".join(map(_text, knob.values))), Text(knob.doc))
    console.print(Padding(table, _INDENT, expand=False))
    for constraint in space.constraints:
        console.print(Padding(Text(f"- {constraint.doc}"), _INDENT, expand=False))
    console.print(Padding(Text(f"default: {_point(examined.default)}"), _INDENT, expand=False))
    console.print(Padding(Text(f"why: {examined.why}"), _INDENT, expand=False))
    # Points without a prediction come last.
    ranked = [(rank, point) for rank, point in enumerate(examined.points, 1) if point.seconds is not None]
    ranked = [(rank, point) for rank, point in ranked if rank <= most or point is examined.default]
    if ranked:
        console.print(Padding(_ranking(_free(space.knobs), ranked, examined.default), _INDENT, expand=False))


def _free(knobs: Sequence[Knob]) -> list[Knob]:
    """Those that have more than one value for this task."""
    return [knob for knob in knobs if len(knob.values) > 1]


def _ranking(knobs: Sequence[Knob], ranked: Sequence[tuple[int, Point]], default: Point | None) -> Table:
    """Points by what is predicted, after their ranks; * marks the default."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("rank", "predicted", *(knob.name for knob in knobs)):
        table.add_column(title, overflow="fold", justify="right" if title in ("rank", "predicted") else "left")
    for rank, point in ranked:
        mark = "*" if point is default else ""
        values = [Text(_text(point.knobs[knob.name])) for knob in knobs]
        table.add_row(f"{mark}{rank}", _duration(point.seconds), *values)
    return table


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _point(point: Point | None, names: Sequence[str] | None = None) -> str:
    """The values of a point's knobs, or of those in `names`; its parameters where the space does not have it, "-" where
    there are none."""
    if point is None or (not point.knobs and point.params is None):
        return "-"
    shown = [f"{name} {_text(value)}" for name, value in point.knobs.items() if names is None or name in names]
    return ", ".join(shown) or str(point.params)


def _as_json(task: Task, count: int, where: str, examined: Sequence[Examined], most: int) -> Mapping[str, Any]:
    best = chosen(examined)
    return {
        "task": task.summary,
        "uses": count,
        "target": where,
        "rule": None if best is None else best.rule,
        "rules": [_rule_as_json(each, most) for each in examined],
    }


def _rule_as_json(examined: Examined, most: int) -> Mapping[str, Any]:
    said = {
        "rule": examined.rule,
        "plugin": examined.plugin,
        "priority": examined.priority,
        "answer": examined.answer.outcome,
        "reason": examined.answer.reason,
    }
    if not examined.space:
        return said
    space = examined.space
    return {
        **said,
        "knobs": [{"name": k.name, "values": list(map(_plain, k.values)), "doc": k.doc} for k in space.knobs],
        "constraints": [constraint.doc for constraint in space.constraints],
        "size": space.size,
        "valid": len(examined.points),
        "default": _point_as_json(examined.default),
        "why": examined.why,
        "points": [_point_as_json(point) for point in examined.points[:most]],
    }


def _point_as_json(point: Point | None) -> Mapping[str, Any] | None:
    if point is None:
        return None
    return {"knobs": {name: _plain(value) for name, value in point.knobs.items()}, "seconds": point.seconds}


def _plain(value: object) -> object:
    """What JSON has, as it is; other values as their short text."""
    return value if isinstance(value, bool | int | float | str) else str(value)
