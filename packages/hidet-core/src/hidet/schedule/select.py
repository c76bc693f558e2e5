"""Choosing a rule for each task and building each distinct program once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hidet.errors import ScheduleError
from hidet.ir.expr import Call
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Invoke, Launch
from hidet.ir.visit import rewrite
from hidet.records import record
from hidet.schedule.rule import Program
from hidet.schedule.sharing import Built, Choice, build, share_programs
from hidet.schedule.task import ForeignStep, Task, TaskGraph, TaskKey

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.plugins.specs import ScheduleSpec

FALLBACK = "fallback"


@record
class ScheduledTask:
    """A task and the program chosen for it. `symbol` is the entry function's name in the linked code."""

    task: Task
    rule_name: str
    program: Program
    symbol: str


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledGraph:
    """Every task with its program; `modules` holds each distinct module once, under its symbol.

    hashes: the structural hash of each module as its rule built it, by symbol. notes: rules that were skipped and why,
    for the report. build_seconds: CPU time it took to build and hash each program, of "injective" tasks and of those
    that a "template" schedules around their anchor.
    """

    task_graph: TaskGraph
    steps: tuple[ScheduledTask | ForeignStep, ...]
    modules: dict[str, Module]
    hashes: dict[str, str]
    notes: tuple[str, ...] = ()
    build_seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def programs(self) -> int:
        """How many programs rules have built."""
        return sum(map(len, self.build_seconds.values()))


def select_schedules(task_graph: TaskGraph, ctx: CompileContext) -> ScheduledGraph:
    """Pick a rule a task (first match in falling priority, unless a hook chooses) and build its program.

    Tasks with equal keys share one program object; programs that differ in sizes only share one module, and tasks take
    parameters by which they do (`hidet.schedule.sharing`).
    """
    built: dict[TaskKey, Built] = {}
    first: dict[TaskKey, Task] = {}
    notes: list[str] = []
    seconds: dict[str, list[float]] = {"injective": [], "template": []}
    for task in task_graph.tasks:
        if task.key in built:
            continue
        start = time.thread_time()
        built[task.key], first[task.key] = _schedule(task, ctx, notes), task
        seconds["injective" if task.anchor is None else "template"].append(time.thread_time() - start)
    modules: dict[str, Module] = {}
    hashes: dict[str, str] = {}
    chosen: dict[TaskKey, tuple[str, Program, str]] = {}
    for key, own in share_programs(built, ctx.target).items():
        symbol = f"{first[key].name}_{own.digest[:16]}"
        if symbol not in modules:
            modules[symbol], hashes[symbol] = _named(own.program.module, symbol), own.digest
        chosen[key] = (own.choice.rule_name, replace(own.program, module=modules[symbol]), symbol)
    steps = [
        step if isinstance(step, ForeignStep) else ScheduledTask(step, *chosen[step.key]) for step in task_graph.steps
    ]
    times = {kind: tuple(each) for kind, each in seconds.items()}
    return ScheduledGraph(task_graph, tuple(steps), modules, hashes, tuple(notes), times)


def _schedule(task: Task, ctx: CompileContext, notes: list[str]) -> Built:
    choices = _choices(task, ctx, notes)
    chosen = ctx.registry.choose_schedule(task, choices, ctx.target) if choices else None
    ordered = ([chosen] if isinstance(chosen, Choice) else []) + [c for c in choices if c is not chosen]
    for choice in ordered:
        try:
            return build(choice, ctx.target, is_default=choice is not chosen)
        except ScheduleError as error:
            notes.append(f"{task.name}: rule {choice.rule_name} gave up: {error.message}")
    reasons = "; ".join(note for note in notes if note.startswith(f"{task.name}:")) or "no rule matches"
    raise ScheduleError(f"no schedule for task {task.name} on {ctx.target.name}: {reasons}", loc=task.loc)


def _choices(task: Task, ctx: CompileContext, notes: list[str]) -> list[Choice]:
    found = []
    for spec in ctx.registry.schedules_for(task.op_name, ctx.target.name):
        rule = _rule(spec)
        try:
            match = rule.match(task, ctx.target)
        except ScheduleError as error:
            notes.append(f"{task.name}: rule {spec.name} cannot: {error.message}")
            continue
        if match is not None:
            found.append(Choice(spec.name, rule, match, rule.default(match, ctx.target)))
    return found


def _rule(spec: ScheduleSpec) -> Any:
    loaded: Any = spec.resolve()
    return loaded() if isinstance(loaded, type) else loaded


def _named(module: Module, symbol: str) -> Module:
    """Give what a linker sees, kernels and host functions, names that no other kernel of the process has."""
    visible = [f.name for f in module.functions if f.kind != "device"]
    return rename_module(module, {n: symbol if n == module.entry else f"{symbol}_{n}" for n in visible})


def rename_module(module: Module, names: dict[str, str]) -> Module:
    """The module with functions renamed, in definitions, launches and calls. Only host functions name kernels."""
    calls_change = any(f.kind == "device" and f.name in names for f in module.functions)
    return _renamed(module, names, calls_change)


def _renamed(module: Module, names: dict[str, str], calls_change: bool) -> Module:
    def change(n: IRNode) -> IRNode | None:
        if isinstance(n, Launch) and n.kernel in names:
            return replace(n, kernel=names[n.kernel])
        if isinstance(n, Invoke) and n.function in names:
            return replace(n, function=names[n.function])
        if isinstance(n, Call) and n.callee in names:
            return replace(n, callee=names[n.callee])
        return None

    def renamed(function: Function) -> Function:
        looked_into = calls_change or function.kind == "host"
        body = rewrite(function.body, change) if looked_into else function.body
        name = names.get(function.name, function.name)
        # A function that stays as it is keeps the digest that it has.
        return function if name == function.name and body is function.body else replace(function, name=name, body=body)

    return Module(tuple(map(renamed, module.functions)), names.get(module.entry, module.entry), module.externals)
