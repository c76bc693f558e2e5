"""Choosing a rule for each task and building each distinct program once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, overload

from hidet.errors import ScheduleError
from hidet.ir.expr import Call
from hidet.ir.func import Function, Module, named
from hidet.ir.node import IRNode
from hidet.ir.stmt import Invoke, Launch
from hidet.ir.visit import rewrite
from hidet.records import record
from hidet.schedule.claims import Answer, Claim, claims, tried
from hidet.schedule.rule import Choice, Program
from hidet.schedule.shared_programs import Built, build, share_programs
from hidet.schedule.task import ForeignStep, Task, TaskGraph, TaskKey

if TYPE_CHECKING:
    from hidet.context import CompileContext

Result = TypeVar("Result")

OnBuilt = Callable[[str, Module, str], None]
"""Is called with the symbol, the module and the structural hash of a program as soon as it is built, in whose place
another one may be taken later (`hidet.schedule.shared_programs`)."""


@record
class Decision:
    """Why a task has its program: the parameters that it was built by, what rules said that were asked, in order, and
    in a few words why this rule and these parameters; is_chosen: whether a plug-in chose them."""

    params: object
    answers: tuple[Answer, ...]
    reason: str
    is_chosen: bool = False


CHOSEN = "a plug-in chose it (hidet_choose_schedule)"
"""The reason for parameters whose plug-in gives none."""


@record
class ScheduledTask:
    """A task and the program chosen for it. `symbol` is the entry function's name in the linked code."""

    task: Task
    rule_name: str
    program: Program
    symbol: str
    decision: Decision


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


def select_schedules(task_graph: TaskGraph, ctx: CompileContext, on_built: OnBuilt | None = None) -> ScheduledGraph:
    """Pick a rule a task (first match in falling priority, unless a hook chooses) and build its program.

    Tasks with equal keys share one program object; programs that differ in sizes only share one module, and tasks take
    parameters by which they do (`hidet.schedule.shared_programs`).
    """
    built: dict[TaskKey, Built] = {}
    first: dict[TaskKey, Task] = {}
    seen: dict[str, tuple[str, Module]] = {}
    answers: dict[TaskKey, tuple[Answer, ...]] = {}
    seconds: dict[str, list[float]] = {"injective": [], "template": []}
    for task in task_graph.tasks:
        if task.key in built:
            continue
        start = time.thread_time()
        built[task.key], answers[task.key] = _schedule(task, ctx, task_graph.claims.get(task.key))
        seconds["injective" if task.anchor is None else "template"].append(time.thread_time() - start)
        first[task.key] = task
        own = built[task.key]
        if own.digest not in seen:
            symbol = f"{task.name}_{own.digest[:16]}"
            seen[own.digest] = symbol, _named(own.program.module, symbol)
            if on_built is not None:
                on_built(*seen[own.digest], own.digest)

    def shared(choice: Choice[Any, Any], what: str, call: Callable[[], Result]) -> Result | None:
        return _tried(choice, what, call, ctx, [])

    modules: dict[str, Module] = {}
    hashes: dict[str, str] = {}
    chosen: dict[TaskKey, tuple[str, Program, str, Decision]] = {}
    for key, own in share_programs(built, ctx, shared).items():
        symbol, module = seen[own.digest]
        modules[symbol], hashes[symbol] = module, own.digest
        decision = Decision(own.choice.params, answers[key], _reason(built[key], own), not own.is_default)
        chosen[key] = (own.choice.rule_name, replace(own.program, module=module), symbol, decision)
    steps = [
        step if isinstance(step, ForeignStep) else ScheduledTask(step, *chosen[step.key]) for step in task_graph.steps
    ]
    times = {kind: tuple(each) for kind, each in seconds.items()}
    notes = [answer.note(first[key]) for key, said in answers.items() for answer in said if answer.reason]
    return ScheduledGraph(task_graph, tuple(steps), modules, hashes, tuple(notes), times)


def _reason(built: Built, used: Built) -> str:
    """Why a task has the program `used`, after `built` was built for it."""
    if used is not built:
        return "with parameters about as good as its own, because other tasks use their program"
    if built.is_default:
        return "the first rule that takes it"
    return built.choice.reason or CHOSEN


def _schedule(task: Task, ctx: CompileContext, first: Claim | None = None) -> tuple[Built, tuple[Answer, ...]]:
    """The program of the best rule that builds one, and what the rules said that were asked.

    first: the best rule that takes the task, where that is known.
    """
    answers: list[Answer] = []
    chosen: Choice[Any, Any] | None = None
    choices = _choices(task, ctx, answers, first)
    if ctx.registry.callbacks["hidet_choose_schedule"]:
        candidates = _Candidates(choices)
        chosen = ctx.registry.choose_schedule(task, candidates, ctx) if candidates else None
        choices = chain([chosen] if chosen else [], (c for c in candidates if c is not chosen))
    for choice in choices:
        work = partial(build, choice, ctx, is_default=choice is not chosen)
        built = _tried(choice, "build", work, ctx, answers)
        if built is not None:
            return built, tuple(answers)
    why = "; ".join(answer.note(task) for answer in answers if answer.reason) or "no rule matches"
    raise ScheduleError(f"no schedule for task {task.name} on {ctx.target.name}: {why}", loc=task.loc)


class _Candidates(Sequence[Choice[Any, Any]]):
    """The choices of a task; rules are asked as far as somebody looks, because most hooks leave most tasks alone."""

    def __init__(self, choices: Iterator[Choice[Any, Any]]) -> None:
        self._rest = choices
        self._found: list[Choice[Any, Any]] = []

    def __bool__(self) -> bool:
        return self._has(0)

    def __len__(self) -> int:
        self._found += self._rest
        return len(self._found)

    @overload
    def __getitem__(self, place: int) -> Choice[Any, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Choice[Any, Any]]: ...

    def __getitem__(self, place: int | slice) -> Choice[Any, Any] | Sequence[Choice[Any, Any]]:
        if isinstance(place, slice) or place < 0 or not self._has(place):
            len(self)
        return self._found[place]

    def _has(self, place: int) -> bool:
        """Whether there are more than `place` candidates."""
        while len(self._found) <= place:
            choice = next(self._rest, None)
            if choice is None:
                return False
            self._found.append(choice)
        return True


def _choices(task: Task, ctx: CompileContext, answers: list[Answer], first: Claim | None) -> Iterator[Choice[Any, Any]]:
    """The rules that take a task, best first, with their own parameters; each asked when it is wanted."""
    found = claims(task, ctx, answers)
    if first is not None:
        answers += first.answers
        specs = ctx.registry.schedules_for(task.op_name, ctx.target.name)
        found = chain([first], claims(task, ctx, answers, specs[specs.index(first.spec) + 1 :]))
    for claim in found:
        choice = tried(claim.spec, task, ctx, answers, "default", partial(_default_choice, claim, ctx))
        if choice is not None:
            yield choice


def _default_choice(claim: Claim, ctx: CompileContext) -> Choice[Any, Any]:
    """The rule with its own parameters."""
    params = claim.rule.default(claim.match, ctx)
    return Choice(claim.spec.name, claim.rule, claim.match, params, claim.spec.is_foreign)


def _tried(
    choice: Choice[Any, Any], what: str, call: Callable[[], Result], ctx: CompileContext, answers: list[Answer]
) -> Result | None:
    """What a rule's method returns; None where it fails, with the reason in `answers`."""
    return tried(ctx.registry.schedules[choice.rule_name], choice.match.task, ctx, answers, what, call)


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
        if body is not function.body:
            return replace(function, name=name, body=body)
        return function if name == function.name else named(function, name)

    return Module(tuple(map(renamed, module.functions)), names.get(module.entry, module.entry), module.externals)
