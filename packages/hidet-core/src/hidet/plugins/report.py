"""What `hidet plugins` prints: one row a plug-in, then what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hidet.plugins.isolation import Failure, attempt
from hidet.plugins.merge import SPEC_KINDS
from hidet.plugins.registry import PluginRecord, Registry
from hidet.plugins.specs import ANY, FAMILY

if TYPE_CHECKING:
    from rich.console import Console


def plugins_as_json(registry: Registry) -> list[dict[str, object]]:
    """One JSON object a plug-in; `problems` is a list of {stage, message, is_remark, traceback}."""
    return [
        {
            "plugin": record.owner.plugin,
            "dist": record.owner.dist,
            "version": record.owner.version,
            "module": record.module,
            "api": record.api,
            "status": record.status,
            "hooks": list(record.hooks),
            "counts": dict(record.counts or {}),
            "problems": [
                {
                    "stage": problem.stage,
                    "message": problem.message,
                    "is_remark": problem.is_remark,
                    "traceback": problem.traceback,
                }
                for problem in record.problems
            ],
        }
        for record in registry.plugins
    ]


def print_plugins(registry: Registry, console: Console, *, is_verbose: bool) -> None:
    """The table of plug-ins. is_verbose: also every spec's name, with what decides between schedules and what
    options take, and the traceback of each problem."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("plug-in", "distribution", "version", "API", "status", "offers"):
        table.add_column(title, overflow="fold")
    for record in registry.plugins:
        table.add_row(
            record.owner.plugin,
            record.owner.dist or "-",
            record.owner.version or "-",
            "-" if record.api is None else str(record.api),
            f"[green]{record.status}[/]" if record.status == "active" else f"[red]{record.status}[/]",
            _offers(record.counts or {}, record.hooks),
        )
    console.print(table)
    for record in registry.plugins:
        _print_details(registry, record, console, is_verbose=is_verbose)


def rules_for(registry: Registry, op: str, targets: Sequence[str]) -> list[dict[str, object]]:
    """The schedule rules that are asked for an operator, in the order in which they are: one JSON object each.

    targets: their names; none for all. Raises UnsupportedOp and OptionError for names that nobody has.
    """
    spec = registry.operator(op)
    wanted = [registry.target(name).name for name in targets] or list(registry.targets)
    return [
        {
            "target": target,
            "rule": rule.name,
            "plugin": registry.owners["schedules", rule.name].plugin,
            "priority": rule.priority,
            "for": op if op in rule.ops else f"{FAMILY}{spec.family}" if f"{FAMILY}{spec.family}" in rule.ops else ANY,
            "prologue": rule.prologue,
            "epilogue": rule.epilogue,
            "doc": rule.doc,
        }
        for target in wanted
        for rule in registry.schedules_for(op, target)
    ]


def print_rules(rules: Sequence[Mapping[str, object]], console: Console) -> None:
    """The table of `rules_for`, and how to see which rule takes a task."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("target", "rule", "plugin", "priority", "for", "doc")
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title == "priority" else "left")
    for rule in rules:
        table.add_row(*(Text(str(rule[title])) for title in titles))
    console.print(table)
    console.print(
        Text("The first one that matches a task takes it; hidet schedules, of hidet-tune, says which one and why.")
    )


def _offers(counts: Mapping[str, int], hooks: tuple[str, ...]) -> str:
    many = {**{kind: kind.replace("_", " ") for kind in SPEC_KINDS}, "intrinsics": "families of intrinsics"}
    offered = [f"{count} {SPEC_KINDS[kind][0] if count == 1 else many[kind]}" for kind, count in counts.items()]
    observed = [name for name in (hook.removeprefix("hidet_") for hook in hooks) if name not in SPEC_KINDS]
    return ", ".join(offered + observed) or "nothing"


def _print_details(registry: Registry, record: PluginRecord, console: Console, *, is_verbose: bool) -> None:
    for problem in record.problems:
        lead = "[yellow]remark[/]" if problem.is_remark else "[red]problem[/]"
        console.print(f"{lead} {record.owner.plugin}: ", end="")
        # Messages quote user code: brackets in them are not markup.
        console.print(problem.message, markup=False, soft_wrap=True)
        if is_verbose and problem.traceback is not None:
            console.print(problem.traceback, markup=False, highlight=False)
    if not is_verbose:
        return
    for kind in record.counts or {}:
        names = [name for (owned, name), owner in registry.owners.items() if owned == kind and owner == record.owner]
        console.print(f"{record.owner.plugin} {kind}:", markup=False)
        if kind in _LINES:
            for name in names:
                console.print(Padding(Text(_LINES[kind](registry, name)), (0, 0, 0, 2)))
        else:
            console.print(Padding(Text(", ".join(names)), (0, 0, 0, 2)))


def _schedule_line(registry: Registry, name: str) -> str:
    spec = registry.schedules[name]
    joined = f"prologue {spec.prologue}, epilogue {spec.epilogue}"
    targets = " ".join([*spec.targets, *(f"any {kind}" for kind in spec.kinds)])
    return f"{spec.name} (priority {spec.priority}, {targets}; {joined}): {' '.join(spec.ops)}"


def _option_line(registry: Registry, name: str) -> str:
    spec = registry.options[name]
    return f"{name} ({spec.type.__name__}, default {spec.default!r}): {spec.doc}"


def _target_line(registry: Registry, name: str) -> str:
    spec = registry.targets[name]
    found = attempt(spec.list_machines)
    machines = () if isinstance(found, Failure) else found
    return "\n  ".join(
        [f"{' or '.join((name, *spec.aliases))} (kind {spec.kind or 'of its own'}): {spec.doc}", *machines]
    )


_LINES: Mapping[str, Callable[[Registry, str], str]] = {
    "schedules": _schedule_line,
    "options": _option_line,
    "targets": _target_line,
}
"""Kinds of which more than names is printed."""
